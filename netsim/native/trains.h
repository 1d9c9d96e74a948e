/* Queues: flows as trains of packets that pass first-in-first-out links one after the other, with late facts.
 *
 * A flow is cut into trains. A link serves what reaches it in the order of arrival, so one number says when it is free
 * again, and a train needs one event per link. While a train is still arriving, packets of others come in between: what
 * a link expects of trains that have begun and not ended counts only for those that come later. Senders give the flows
 * of a port turns by bytes. With DCQCN, a train that meets a long queue brings a mark back to its sender, which cuts
 * its rate, and recovers by its timer (Zhu et al., SIGCOMM 2015).
 *
 * The state after all events before an instant is a function of the facts alone: events of one instant are ordered by
 * kind, by the flow's own order and by its count of events, never by when they were told. A late fact goes back to the
 * last kept state before it and runs from there.
 */
#ifndef TRAINS_H
#define TRAINS_H

#include "netsim.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int64_t packet, ack;                     /* bytes of a packet, and what answers it on the way back */
    int64_t parts, span;                     /* a train: a flow's bytes / parts, and no longer than `span` ticks, */
    int64_t joint_spans;                     /* or than so many spans if it is a group's */
    int64_t marking;                         /* 0: no DCQCN */
    int64_t mark_from, mark_to;              /* ticks that a link needs for its queue: nobody, everybody is marked */
    int64_t alpha_every, cut_every, recover; /* ticks */
    double mark_most, gain, least_rate;      /* the share marked just before `mark_to`; alpha's gain; rate units */
} nt_rules;

enum train_kind { TURN, START, REACH, PORT, MARKED, CUT, RECOVER };

typedef struct {
    int64_t at;
    uint64_t order; /* ties: kind, order, serial */
    uint32_t serial, generation;
    int32_t kind, flow; /* flow: the link, for PORT */
    int32_t hop, path;
    int64_t nbytes, tail; /* tail: when the train's last packet is there; MARKED: how long marks come */
    int32_t marked;
} happening;

typedef struct {
    happening *items;
    int32_t n, room;
} happenings;

/* A train that has begun to reach a link and not ended. */
typedef struct {
    int64_t head, tail, nbytes;
    int32_t next;
} arriving;

typedef struct {
    int64_t rate, free, woken; /* woken: the instant of the port's next event, or -1 */
    double turn;               /* bytes that the port's flows have had: where a flow that starts begins to count */
    int32_t arriving, sends;   /* first entries, or -1 */
} queue_;

typedef struct {
    int64_t sent, arrived, tail, next, done;
    double rate, target, alpha, had, marks;
    int64_t alpha_at, seen_until, cut_from;
    uint32_t serial, timer;
    int32_t next_send, stage;
    bool started, congested, cut_once, cut_due, waits;
} sending;

typedef struct {
    int64_t start, nbytes, cap, answer; /* answer: ticks until a mark is back */
    uint64_t order;
    int32_t *links, *weights, *first; /* path p: hops first[p] to first[p + 1] - 1 */
    int64_t *from;
    int32_t npaths, port;
    uint32_t generation;
    bool joint, used, dropped;
} train_flow;

/* All that changes as events happen. */
typedef struct {
    int64_t last;   /* the instant of the last event that has happened, or -1 */
    int32_t turned; /* turns that have happened */
    int32_t down;   /* links that are down */
    queue_ *queues;
    sending *sendings;
    happenings events;
    arriving *arrivals;
    int32_t nsendings, sendings_room, narrivals, arrivals_room, free_arrival;
} train_state;

typedef struct {
    int64_t at;
    uint64_t order;
    int32_t flow;
} start_;

typedef struct {
    int64_t at, rate;
    int32_t link; /* -1: a flow takes another path */
} turn_;

struct trains {
    nt_rules rules;
    int32_t nlinks;
    int32_t *reverse;           /* the link of the other direction, or -1 */
    int64_t *latencies, *built; /* built: rates at first */
    train_flow *flows;
    int32_t nflows, flows_room;
    int32_t *free_flows, nfree, free_room;
    turn_ *turns; /* by instant */
    int32_t nturns, turns_room;
    start_ *starts; /* a heap */
    int32_t nstarts, starts_room;
    int32_t *fresh, nfresh, fresh_room; /* flows whose completion is found and not given out */
    train_state now;
    train_state *kept; /* states of before, the oldest first */
    int32_t nkept, kept_room;
    int64_t since; /* events since the last one was kept */
    int64_t present, horizon;
    int64_t *before;
    int32_t before_room;
    ns_moved *moved;
    int32_t nmoved, moved_room;
    int64_t *out_flows, *out_ticks;
    int32_t nout, out_room;
    ns_segment segment;
    int64_t events, rollbacks, redone;
};

/* memory.c */
void *grow(void *old, int32_t *room, int32_t need, size_t size);

/* trains.c: what happens */
int64_t next_happening(const trains *s);
void happen_next(trains *s);
void push_happening(happenings *h, happening e);
int32_t path_of(const train_flow *f, int64_t at);

/* train_facts.c */
void push_start(trains *s, int32_t flow);
void pop_start(trains *s);

#endif
