/* What the core's parts share: flows, links and the two views of time.
 *
 * Two views of the state exist side by side: NOW, after the last event processed, and PAST, at the moment that a
 * rollback is redoing. A view's rates are the max-min solution, which is unique:
 *
 *     level(l) = min { x : sum over flows f on l of weight * (rate(f) < x ? rate(f) : x + 1) > capacity(l) }
 *     rate(f)  = min over links l of f of level(l)
 *
 * (shares round down; links that tie saturate together). Proof that it is unique, by induction over the levels: no flow
 * can have less than the least share s = min capacity / weight, because on a link of level r below s all flows have at
 * least r, and (r + 1) * weight must exceed its capacity. So all flows on links of share s have s, and no other flow
 * has; without these flows and their capacity the same holds for the rest. So it does not matter how it is reached.
 *
 * Flows that the same link limits have the same rate, the link's level, and are a *class*. Nearly always a flow's rate
 * changes because its class's level does, so rates are kept by class, and named by the link:
 *
 *   - A link's stretches are its level over time and `sum`, what a member of its class has got up to then.
 *   - A flow's segments say which class it was in from when on, and its `target`, the sum at which it is done. So what
 *     is left of it is target - sum at any time, exactly, and a change of the level changes nothing in the flow.
 *   - A class keeps its members by target: its next completion is that of the least. Classes wait in one heap.
 *   - On each link the flows of one class are a *bundle*. Loads change, and links are looked through, by bundle.
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
    int64_t at;
    wide target; /* the sum of the limit's class at which the flow is done: bytes in rate units x ticks */
    int32_t limit, path;
} segment;

typedef struct {
    int64_t at, level;
    wide sum; /* at `at` */
} stretch;

typedef struct {
    int32_t link, weight, path;
    int32_t entry;             /* its place among all that ever cross the link */
    int32_t bundle[2], pos[2]; /* by view, while the flow is on the link: its bundle, and the place in it */
} hop;

/* Is the hop part of a path? One with path -1 (a flow's own cap) is part of all. */
static inline bool part_of(const hop *h, int32_t path) { return h->path == path || h->path < 0; }

typedef struct {
    int32_t limit, path; /* limit: the link whose class it is in; -1: its rate is sought */
    bool on;
} flow_view;

typedef struct {
    int64_t from;
    int32_t path;
} epoch;

typedef struct {
    flow_view view[2];
    hop *hops;
    int32_t nhops;
    bool in_set, live, fresh;
    uint32_t moved; /* the last solve in which it changed its class */
    int32_t old_limit;
    wide left; /* while its rate is sought */

    segment *segments;
    int32_t nsegments, room;
    int64_t start, nbytes, done, due, before; /* due: of a flow without links */
    epoch *epochs;                            /* the path from when on; the first from ever */
    int32_t nepochs, npaths, cursor, heap_pos;
    uint32_t generation, seen;
    uint8_t state;
} flow;

typedef struct {
    int32_t flow, hop;
} member;

typedef struct {
    member *items;
    int32_t n, room;
} roster;

/* The flows on a link that the same link limits. */
typedef struct {
    int32_t link, limit;
    int32_t on, of; /* its places among the link's shares, and among those of its class */
    roster flows;
} bundle;

/* A bundle as one of its link sees it (other: what limits it) or its class (other: where it is). */
typedef struct {
    int32_t other, bundle;
    int64_t weight;
} share;

typedef struct {
    share *items;
    int32_t n, room;
} shares;

enum { NOT_ON = -1 }; /* the level of a class while it is sought */

typedef struct {
    wide target;
    int32_t flow;
} aim;

typedef struct {
    int64_t at, capacity;
} step;

typedef struct {
    int64_t capacity, load, weight; /* load: sum of weight * rate; weight: sum of weights, of the flows with a rate */
    int64_t own;                    /* sum of weights of its class's flows */
} link_view;

typedef struct {
    /* In a sweep (solve.c): */
    uint32_t mark, doubt;    /* the last sweep it took part in; the last one before which its rates were wrong */
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
    shares on[2]; /* by view: the bundles on it (PAST: while redoing, if it is stamped) */
    roster all;   /* all whose path of any time crosses it */
    step *steps;
    int32_t nsteps;

    /* As a class: */
    shares of[2];       /* by view: its flows' bundles on all links (PAST: on stamped links) */
    int32_t self[2];    /* the one on the link itself, if any */
    stretch *stretches; /* since the horizon */
    stretch *recorded;  /* while it is live: from then on as they were */
    int32_t nstretches, stretches_room, cursor, nrecorded, recorded_room;
    aim *aims; /* heap: its flows by target; those NOW, or in the PAST if it is live */
    int32_t naims, aims_room;
    int32_t due_pos;             /* in the heap of classes, or -1 */
    uint32_t noted, gained;      /* the last solve in which it was sought or got a flow; in which it got one */
    uint32_t followed, prepared; /* the last replay in which it was, and that stamped all its flows' links, */
    uint32_t aims_altered, emptied, version; /* that changed its aims, that removed them all */
    int64_t old_level;
    bool live, dirty;
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
    int64_t *levels[2]; /* by view and link: its class's rate, NOT_ON while it is sought */
    bundle *bundles;
    int32_t nflows, flows_room, nlinks, links_room, nbundles, bundles_room;
    list free_flows, free_links, free_bundles;
    timed_heap heaps[4]; /* by state: PENDING by start, ACTIVE (those without links) by due, DONE by done */
    timed_heap dues;     /* classes by their next completion */
    event_heap changes;  /* capacity and path changes after the last event */
    int64_t last, present, horizon;
    enum view view;
    int64_t at;       /* the instant being solved */
    list set;         /* flows that have no class */
    list wrong, over; /* touched links: classes whose level is wrong; those where others have too much */
    list movers, noted,
        dirty; /* of a solve: flows with another class; classes sought or joined; those with other aims */
    list touched, full, joining, leaving, fresh;
    int64_t level, sought; /* that the sweep has reached; how many flows it still has to find rates for */
    look *looks;           /* heap of links by the level at which the sweep looks at them */
    entry *entries;
    int32_t nlooks, looks_room, nentries, entries_room;
    int64_t *rates, *weights;
    int32_t gather_room;
    uint32_t mark, replay;
    event_heap queue;
    list live, live_classes, stamped, altered;
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
void event_push(event_heap *h, event e); /* by `at`, then by `what` */
event event_pop(event_heap *h);
void heap_put(netsim *s, int32_t f, uint8_t state); /* into the heap of that state, out of the one it is in */
int32_t heap_top(const netsim *s, uint8_t state);   /* -1: empty */

void due_put(netsim *s, int32_t link, int64_t due); /* among the classes that wait; NS_NEVER: out of them */
void aim_put(netsim *s, int32_t link, int32_t f, wide target);
void aim_drop(netsim *s, int32_t link, int32_t f);

/* solve.c: bring the view's rates back to the solution after flows and links were touched */
void touch(netsim *s, int32_t link);
void seek(netsim *s, int32_t f); /* the flow, which is in no class, needs one */
void solve(netsim *s);

/* looks.c: the links that a sweep has to look at */
void look_put(netsim *s, int32_t link, int64_t level); /* adds it, or moves it if it is there */
int32_t look_pop(netsim *s);                           /* the one of the least level */
void looks_order(netsim *s, int32_t n);                /* they are the first n, in any order */

/* segments.c */
void write_segment(netsim *s, flow *f, int64_t at); /* its class, and the target that `left` makes of it */
void write_stretch(netsim *s, int32_t link);        /* its class's level in the view from s->at on */
wide sum_at(const netsim *s, int32_t link);         /* of its class, in the view, at s->at */
wide left_at(const netsim *s, const flow *f);       /* of a flow with a class, in the view, at s->at */
int64_t due_of(const netsim *s, int32_t link);      /* the next completion in a class, after s->at */
bool aim_reached(const link_ *l, wide target, int64_t at);
void soil(netsim *s, int32_t link); /* its next completion has to be found anew */
int64_t capacity_at(const link_ *l, int64_t at);
int32_t path_at(const flow *f, int64_t at);

/* members.c */
void attach(netsim *s, int32_t f, int32_t first); /* hops from number `first` on */
void detach(netsim *s, int32_t f);
void join_bundle(netsim *s, enum view v, int32_t f, int32_t hop, int32_t limit);
void leave_bundle(netsim *s, enum view v, int32_t f, int32_t hop);
void free_bundles_on(netsim *s, int32_t link);           /* in the PAST */
const roster *members_of(const netsim *s, int32_t link); /* the flows of its class in the view */

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
void stamp_path(netsim *s, int32_t f); /* the links it is on */
void prepare(netsim *s, int32_t link); /* stamps all links of its class's flows */
void follow_class(netsim *s, int32_t link);
void replay_flow(netsim *s, int32_t f, int64_t old_start, int64_t new_start);
void replay_switch(netsim *s, int32_t f, int64_t at);
void replay_capacity(netsim *s, int32_t link, int64_t at);

#endif
