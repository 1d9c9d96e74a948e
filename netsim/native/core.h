/* What the core's parts share: flows, links and the two views of time.
 *
 * Every flow keeps the segments of its rate since the horizon. Two views of the state exist side by side: NOW, after
 * the last event processed, and PAST, at the moment that a rollback is redoing. A view's rates are the max-min
 * solution, which is unique:
 *
 *     level(l) = min { x : sum over flows f on l of weight * (rate(f) < x ? rate(f) : x + 1) > capacity(l) }
 *     rate(f)  = min over links l of f of level(l)
 *
 * (shares round down; links that tie saturate together). Proof that it is unique, by induction over the levels: no flow
 * can have less than the least share s = min capacity / weight, because on a link of level r below s all flows have at
 * least r, and (r + 1) * weight must exceed its capacity. So all flows on links of share s have s, and no other flow
 * has; without these flows and their capacity the same holds for the rest. So it does not matter how it is reached.
 */
#ifndef CORE_H
#define CORE_H

#include "netsim.h"

#include <stdbool.h>
#include <stddef.h>

typedef __int128 wide;

enum view { NOW, PAST };
enum state { FREE, PENDING, ACTIVE, DONE };
enum change { CAPACITY, REROUTE };

typedef struct {
    int64_t at, rate;
    wide left; /* at the segment's start: bytes in rate units x ticks */
    int32_t limit, path;
} segment;

typedef struct {
    int32_t link, weight, path;
    int32_t pos[2]; /* this hop's place in the link's rosters */
} hop;

/* Is the hop part of a path? One with path -1 (a flow's own cap) is part of all. */
static inline bool part_of(const hop *h, int32_t path) { return h->path == path || h->path < 0; }

typedef struct {
    int64_t rate;
    int32_t limit, path; /* limit: a link whose level is the rate; -1: none yet */
    bool on;
} flow_view;

typedef struct {
    int64_t from;
    int32_t path;
} epoch;

typedef struct {
    /* What a sweep reads of every flow, together in memory: */
    flow_view view[2];
    hop *hops;
    int32_t nhops;
    bool in_set, fixed, live, fresh;
    uint32_t sought; /* the last sweep that gave it a rate */
    int32_t old_limit;
    int64_t old_rate;

    segment *segments;
    int32_t nsegments, room;
    int64_t start, nbytes, done, due, before;
    epoch *epochs; /* the path from when on; the first from ever */
    int32_t nepochs, npaths, cursor, heap_pos;
    uint32_t generation, seen, version;
    uint8_t state;
} flow;

typedef struct {
    int32_t flow, hop, weight;
} member;

/* Who may be on a link in a view, and at which rates: one after the other in memory, as every look at a link reads
 * them.
 */
typedef struct {
    member *members;
    int64_t *rates; /* NOT_ON: it is not on the link, or its rate is sought */
    int32_t n, room;
} roster;

enum { NOT_ON = -1 };

typedef struct {
    int64_t at, capacity;
} step;

typedef struct {
    int64_t capacity, load, weight; /* load: sum of weight * rate; weight: sum of weights, of the flows on it */
    int64_t limited, level;         /* sum of weights, and the rate, of the flows that name it as their limit */
} link_view;

typedef struct {
    /* In a sweep (solve.c): */
    uint32_t mark, doubt;    /* the last sweep it took part in; the last one before which its rates were wrong */
    int64_t left;            /* capacity less what all flows take that have a rate */
    int64_t unfixed, others; /* weight of the set's flows without a rate, and of those that are not in the set */
    int64_t highest;         /* nobody outside of the set has a higher rate */
    /* The flows that would take more: those without a rate, and those outside of the set whose rate is not less than
     * `greedy_from`. Their weight, and the capacity that all others leave them.
     */
    int64_t greedy, greedy_left, greedy_from;
    int64_t key, share;   /* the level at which it is looked at next; the one at which it is full */
    int32_t place, first; /* in the heap of looks, or -1; its first entry */
    bool full, exact;     /* exact: `key` is its level */

    bool touched;
    uint32_t seen, altered; /* altered: the replay in which its history came to differ from the recorded */
    link_view view[2];
    /* NOW: all whose path of any time crosses it, the `on` that are on it first. PAST, while redoing: those that are on
     * it at some time from then to the last event.
     */
    roster rosters[2];
    step *steps;
    int32_t on, nsteps;
} link_;

typedef struct {
    int64_t at;
    int32_t what, id;
    uint32_t version;
} event;

typedef struct {
    event *items;
    int32_t n, room;
} event_heap;

typedef struct {
    int32_t flow, next; /* next: the link's next entry, or -1 */
} entry;

typedef struct {
    int64_t level;
    int32_t link;
} look;

typedef struct {
    int32_t *items;
    int32_t n, room;
} list;

typedef struct {
    int64_t at;
    int32_t flow;
} timed;

typedef struct {
    timed *items;
    int32_t n, room;
} timed_heap;

struct netsim {
    flow *flows;
    link_ *links;
    int32_t nflows, flows_room, nlinks, links_room;
    list free_flows, free_links;
    timed_heap heaps[4]; /* by state: PENDING by start, ACTIVE by due, DONE by done */
    event_heap changes;  /* capacity and path changes after the last event */
    int64_t last, present, horizon;
    enum view view;
    int64_t at; /* the instant being solved */
    list touched, set, full, joining, fresh;
    int64_t level; /* that the sweep has reached */
    look *looks;   /* heap of links by the level at which the sweep looks at them */
    entry *entries;
    int32_t nlooks, looks_room, nentries, entries_room;
    int64_t *rates;
    int32_t *weights;
    int32_t gather_room;
    uint32_t mark, replay;
    event_heap queue;
    list live, stamped, starters;
    ns_moved *moved;
    int32_t nmoved, moved_room;
    int64_t *out_flows, *out_ticks;
    int32_t nout, out_room;
    ns_segment *out_segments;
    int32_t segments_room;
    ns_counters count;
};

/* memory.c */
void *grow(void *old, int32_t *room, int32_t need, size_t size);
void list_push(list *l, int32_t value);
void event_push(event_heap *h, event e);
event event_pop(event_heap *h);
void heap_put(netsim *s, int32_t f, uint8_t state); /* into the heap of that state, out of the one it is in */
int32_t heap_top(const netsim *s, uint8_t state);   /* -1: empty */

/* solve.c: bring the view's rates back to the solution after flows and links were touched */
void touch(netsim *s, int32_t link);
void join_set(netsim *s, int32_t f);
void solve(netsim *s);

/* looks.c: the links that a sweep has to look at */
void look_put(netsim *s, int32_t link, int64_t level); /* adds it, or moves it if it is there */
int32_t look_pop(netsim *s);                           /* the one of the least level */

/* segments.c */
/* The flow's history is about to be written to: it is far from other flows' in memory. */
static inline void prefetch_tail(const flow *f) {
    if (f->nsegments) __builtin_prefetch(&f->segments[f->nsegments - 1]);
}
void write_segment(netsim *s, flow *f, int64_t at);
int64_t completion_of(const flow *f);
int64_t capacity_at(const link_ *l, int64_t at);
int32_t path_at(const flow *f, int64_t at);

/* members.c */
void attach(netsim *s, int32_t f, int32_t first); /* hops from number `first` on */
void detach(netsim *s, int32_t f);
void place(netsim *s, int32_t f); /* put the flow's hops, with its rate, among those on or not on their links NOW */
void roster_push(roster *r, member m, int64_t rate);

/* timeline.c */
int64_t next_event(const netsim *s);
void run(netsim *s, int64_t until);
void process(netsim *s, int64_t at);
static inline bool instant(const flow *f) { return f->nbytes == 0 || f->nhops == 0; }

/* facts.c */
/* A flow of one path of n links, each of weight 1, and no cap; what it is called outside. */
int64_t add_plain(netsim *s, int64_t start, int64_t nbytes, int32_t n, const int32_t *links);
int64_t name_of(const netsim *s, int32_t f);      /* what a flow is called outside: slot and generation */
int32_t find_flow(const netsim *s, int64_t name); /* -1: no such flow */
int64_t known(const netsim *s, int64_t done);     /* NS_NEVER if after the present */
void drop_flow(netsim *s, int32_t f);

/* replay.c */
void stamp(netsim *s, int32_t link);
void replay_flow(netsim *s, int32_t f, int64_t old_start, int64_t new_start);
void replay_switch(netsim *s, int32_t f, int64_t at);
void replay_capacity(netsim *s, int32_t link, int64_t at);

#endif
