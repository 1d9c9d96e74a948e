/* Facts about trains come in, completions go out; late facts go back to a kept state. See trains.h. */
#include "trains.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_EVERY = 256, MOST_KEPT = 48 };

static bool earlier(const start_ *a, const start_ *b) {
    return a->at != b->at ? a->at < b->at : a->order != b->order ? a->order < b->order : a->flow < b->flow;
}

static void sift_start(trains *s, int32_t i, start_ x) {
    start_ *h = s->starts;
    for (; i && earlier(&x, &h[(i - 1) / 2]); i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    for (int32_t child; (child = 2 * i + 1) < s->nstarts; i = child) {
        if (child + 1 < s->nstarts && earlier(&h[child + 1], &h[child])) child++;
        if (!earlier(&h[child], &x)) break;
        h[i] = h[child];
    }
    h[i] = x;
}

void push_start(trains *s, int32_t flow) {
    s->starts = grow(s->starts, &s->starts_room, s->nstarts + 1, sizeof *s->starts);
    s->nstarts++;
    sift_start(s, s->nstarts - 1, (start_){s->flows[flow].start, s->flows[flow].order, flow});
}

void pop_start(trains *s) {
    start_ tail = s->starts[--s->nstarts];
    if (s->nstarts) sift_start(s, 0, tail);
}

/* Without bytes or links a flow is done when it starts. */
static bool ends_at_once(const train_flow *f) { return !f->nbytes || !f->npaths; }

/* The flows that have not started, anew. */
static void gather_starts(trains *s) {
    s->nstarts = 0;
    for (int32_t i = 0; i < s->nflows; i++)
        if (s->flows[i].used && !s->now.sendings[i].started && !ends_at_once(&s->flows[i])) push_start(s, i);
}

static void *copy(void *to, const void *from, int64_t n, size_t size) {
    to = realloc(to, (size_t)(n ? n : 1) * size);
    if (!to) abort();
    if (n) memcpy(to, from, (size_t)n * size);
    return to;
}

static void copy_state(trains *s, train_state *to, const train_state *from) {
    train_state x = *to;
    *to = *from;
    to->queues = copy(x.queues, from->queues, s->nlinks, sizeof *x.queues);
    to->sendings = copy(x.sendings, from->sendings, from->nsendings, sizeof *x.sendings);
    to->events.items = copy(x.events.items, from->events.items, from->events.n, sizeof *x.events.items);
    to->arrivals = copy(x.arrivals, from->arrivals, from->narrivals, sizeof *x.arrivals);
    to->sendings_room = to->nsendings;
    to->events.room = to->events.n;
    to->arrivals_room = to->narrivals;
}

static void free_state(train_state *x) {
    free(x->queues);
    free(x->sendings);
    free(x->events.items);
    free(x->arrivals);
}

static void keep_state(trains *s) {
    if (s->nkept == MOST_KEPT) { /* every other one of the older half goes: the near past is asked for most */
        int32_t n = 1;
        for (int32_t i = 1; i < s->nkept; i++) {
            if (i < MOST_KEPT / 2 && i % 2)
                free_state(&s->kept[i]);
            else
                s->kept[n++] = s->kept[i];
        }
        s->nkept = n;
    }
    s->kept = grow(s->kept, &s->kept_room, s->nkept + 1, sizeof *s->kept);
    memset(&s->kept[s->nkept], 0, sizeof *s->kept);
    copy_state(s, &s->kept[s->nkept++], &s->now);
    s->since = 0;
}

static void step(trains *s) {
    if (s->since >= KEEP_EVERY && s->since >= (s->nlinks + s->now.nsendings + s->now.events.n) / 4) keep_state(s);
    happen_next(s);
}

/* All that can tell of a completion up to `until`: a flow ends after the event that finds it. */
static void run(trains *s, int64_t until) {
    while (next_happening(s) < until) step(s);
}

trains *nt_new(int links, const int64_t *capacities, const int64_t *latencies, const int32_t *reverse,
               const int64_t *whole, const double *parts) {
    trains *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->rules = (nt_rules){whole[0], whole[1], whole[2], whole[3],  whole[4], whole[5], whole[6],
                          whole[7], whole[8], whole[9], whole[10], parts[0], parts[1], parts[2]};
    s->nlinks = links;
    s->reverse = copy(NULL, reverse, links, sizeof *reverse);
    s->latencies = copy(NULL, latencies, links, sizeof *latencies);
    s->built = copy(NULL, capacities, links, sizeof *capacities);
    s->now.queues = calloc((size_t)links + 1, sizeof *s->now.queues);
    if (!s->now.queues) abort();
    for (int i = 0; i < links; i++) s->now.queues[i] = (queue_){capacities[i], 0, -1, 0, -1, -1};
    s->now.last = s->horizon = -1;
    s->now.free_arrival = -1;
    keep_state(s);
    return s;
}

static void forget_flow(train_flow *f) {
    free(f->links);
    free(f->weights);
    free(f->first);
    free(f->from);
    f->links = f->weights = f->first = NULL;
    f->from = NULL;
    f->npaths = 0;
}

void nt_free(trains *s) {
    for (int32_t i = 0; i < s->nflows; i++) forget_flow(&s->flows[i]);
    for (int32_t i = 0; i < s->nkept; i++) free_state(&s->kept[i]);
    free_state(&s->now);
    void *arrays[] = {s->reverse, s->latencies, s->built,  s->flows, s->free_flows, s->turns,    s->starts,
                      s->fresh,   s->kept,      s->before, s->moved, s->out_flows,  s->out_ticks};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(s);
}

static int64_t name_of_train(const trains *s, int32_t f) { return (int64_t)s->flows[f].generation << 32 | f; }

static int32_t find_train(const trains *s, int64_t name) {
    int32_t f = (int32_t)(name & 0x7fffffff);
    bool known =
        f < s->nflows && s->flows[f].used && !s->flows[f].dropped && s->flows[f].generation == (uint32_t)(name >> 32);
    return known ? f : -1;
}

static int64_t known_at(const trains *s, int64_t done) { return done <= s->present ? done : NS_NEVER; }

static sending unsent(void) { return (sending){.next_send = -1, .done = NS_NEVER}; }

static void gather_fresh(trains *s) {
    s->nfresh = 0;
    for (int32_t i = 0; i < s->nflows; i++) {
        int64_t done = s->now.sendings[i].done;
        if (!s->flows[i].used || done == NS_NEVER || done <= s->present) continue;
        s->fresh = grow(s->fresh, &s->fresh_room, s->nfresh + 1, sizeof *s->fresh);
        s->fresh[s->nfresh++] = i;
    }
}

/* Back to the last kept state before `at`; what happens from there follows the facts as they are. */
static void go_back(trains *s, int64_t at) {
    s->rollbacks++;
    s->redone -= s->events;
    while (s->nkept > 1 && s->kept[s->nkept - 1].last >= at) free_state(&s->kept[--s->nkept]);
    int32_t n = s->nflows;
    copy_state(s, &s->now, &s->kept[s->nkept - 1]);
    int32_t had = s->now.nsendings;
    s->now.sendings = grow(s->now.sendings, &s->now.sendings_room, n, sizeof *s->now.sendings);
    for (int32_t i = had; i < n; i++) s->now.sendings[i] = unsent();
    s->now.nsendings = n;
    s->since = 0;
    for (int32_t i = 0; i < n; i++) { /* without bytes or links: done as it starts */
        const train_flow *f = &s->flows[i];
        if (f->used && ends_at_once(f)) s->now.sendings[i].done = f->start;
    }
    gather_starts(s);
    gather_fresh(s);
}

static void begin(trains *s) {
    s->nmoved = 0;
    s->before = grow(s->before, &s->before_room, s->nflows + 1, sizeof *s->before);
    for (int32_t i = 0; i < s->nflows; i++) s->before[i] = known_at(s, s->now.sendings[i].done);
}

/* The facts have changed from `at` on. */
static void end(trains *s, int64_t at) {
    bool late = at <= s->now.last;
    if (late) go_back(s, at);
    run(s, s->present);
    if (late) s->redone += s->events;
    for (int32_t i = 0; i < s->nflows; i++) {
        int64_t before = s->before[i], after = known_at(s, s->now.sendings[i].done);
        if (!s->flows[i].used || s->flows[i].dropped || before == after) continue;
        s->moved = grow(s->moved, &s->moved_room, s->nmoved + 1, sizeof *s->moved);
        s->moved[s->nmoved++] = (ns_moved){name_of_train(s, i), before, after};
    }
    gather_fresh(s);
}

static int32_t new_train_flow(trains *s) {
    if (s->nfree) {
        int32_t i = s->free_flows[--s->nfree];
        for (int32_t k = 0; k < s->nkept; k++)
            if (i < s->kept[k].nsendings) s->kept[k].sendings[i] = unsent();
        s->now.sendings[i] = unsent();
        return i;
    }
    int32_t i = s->nflows++;
    s->flows = grow(s->flows, &s->flows_room, s->nflows, sizeof *s->flows);
    memset(&s->flows[i], 0, sizeof *s->flows);
    s->now.sendings = grow(s->now.sendings, &s->now.sendings_room, s->nflows, sizeof *s->now.sendings);
    s->now.sendings[i] = unsent();
    s->now.nsendings = s->nflows;
    return i;
}

/* Paths from `from[0]` on, in place of what the flow had from then on. */
static void set_paths(trains *s, train_flow *f, int n, const int32_t *links, const int32_t *weights,
                      const int32_t *paths, int npaths, const int64_t *from) {
    while (f->npaths && f->from[f->npaths - 1] >= from[0]) f->npaths--;
    int32_t kept = f->npaths, hops = kept ? f->first[kept] : 0;
    f->links = realloc(f->links, (size_t)(hops + n + 1) * sizeof *f->links);
    f->weights = realloc(f->weights, (size_t)(hops + n + 1) * sizeof *f->weights);
    f->first = realloc(f->first, (size_t)(kept + npaths + 1) * sizeof *f->first);
    f->from = realloc(f->from, (size_t)(kept + npaths + 1) * sizeof *f->from);
    if (!f->links || !f->weights || !f->first || !f->from) abort();
    f->first[0] = 0;
    for (int p = 0; p < npaths; p++) {
        f->from[kept + p] = from[p];
        for (int i = 0; i < n; i++)
            if (paths[i] == p) {
                f->links[hops] = links[i];
                f->weights[hops++] = weights[i];
            }
        f->first[kept + p + 1] = hops;
        if (kept + p) { /* at this instant all that waits looks for its path again */
            int32_t i = s->nturns;
            s->turns = grow(s->turns, &s->turns_room, s->nturns + 1, sizeof *s->turns);
            while (i > 0 && s->turns[i - 1].at > from[p]) i--;
            memmove(s->turns + i + 1, s->turns + i, (size_t)(s->nturns++ - i) * sizeof *s->turns);
            s->turns[i] = (turn_){from[p], 0, -1};
        }
    }
    f->npaths = kept + npaths;
}

int64_t nt_add(trains *s, int64_t start, int64_t nbytes, int64_t cap, int64_t order, int joint, int port,
               int64_t answer, int n, const int32_t *links, const int32_t *weights, const int32_t *paths, int npaths,
               const int64_t *from) {
    int32_t i = new_train_flow(s);
    train_flow *f = &s->flows[i];
    uint32_t generation = f->generation;
    *f = (train_flow){.start = start,
                      .nbytes = nbytes,
                      .cap = cap,
                      .answer = answer,
                      .order = (uint64_t)order,
                      .port = port,
                      .generation = generation,
                      .joint = joint,
                      .used = true};
    int64_t ever = INT64_MIN;
    if (n) set_paths(s, f, n, links, weights, paths, npaths, npaths > 1 ? from : &ever);
    s->nmoved = 0;
    if (!ends_at_once(f) && start > s->now.last) {
        push_start(s, i);
        if (start >= s->present) return name_of_train(s, i); /* it touches nothing that is known */
    }
    begin(s);
    if (ends_at_once(f)) {
        s->now.sendings[i].done = start;
        start = NS_NEVER;
    }
    end(s, start);
    return name_of_train(s, i);
}

static void put_out_train(trains *s, int32_t i, int64_t at) {
    if (s->nout == s->out_room) {
        int32_t room = s->out_room;
        s->out_flows = grow(s->out_flows, &room, s->nout + 1, sizeof *s->out_flows);
        s->out_ticks = grow(s->out_ticks, &s->out_room, s->nout + 1, sizeof *s->out_ticks);
    }
    s->out_flows[s->nout] = name_of_train(s, i);
    s->out_ticks[s->nout++] = at;
}

/* Events of flows that are no more go: they kept their old numbers, which would not order them among the new ones. */
static void renumber_events(const trains *s, happenings *h) {
    int32_t n = h->n;
    h->n = 0;
    for (int32_t i = 0; i < n; i++) {
        happening e = h->items[i];
        if (e.kind != PORT) {
            if (s->flows[e.flow].generation != e.generation) continue;
            e.order = s->flows[e.flow].order;
        }
        push_happening(h, e); /* at most the place that was read just now is written */
    }
}

static int by_order(const void *a, const void *b) {
    const start_ *x = a, *y = b;
    return x->order != y->order ? (x->order < y->order ? -1 : 1) : x->flow < y->flow ? -1 : x->flow > y->flow;
}

/* Flows that have ended are renumbered with the others: what a late fact has happen again may need their order. */
int nt_renumber(trains *s, int64_t gap) {
    start_ *all = NULL;
    int32_t n = 0, room = 0;
    s->nout = 0;
    for (int32_t i = 0; i < s->nflows; i++) {
        if (!s->flows[i].used) continue;
        all = grow(all, &room, n + 1, sizeof *all);
        all[n++] = (start_){.order = s->flows[i].order, .flow = i};
    }
    if (n) qsort(all, (size_t)n, sizeof *all, by_order);
    for (int32_t k = 0; k < n; k++) {
        train_flow *f = &s->flows[all[k].flow];
        f->order = (uint64_t)(k + 1) * (uint64_t)gap;
        if (!f->dropped) put_out_train(s, all[k].flow, (int64_t)f->order);
    }
    free(all);
    renumber_events(s, &s->now.events);
    for (int32_t k = 0; k < s->nkept; k++) renumber_events(s, &s->kept[k].events);
    gather_starts(s);
    return s->nout;
}

void nt_redirect(trains *s, int64_t name, int n, const int32_t *links, const int32_t *weights, const int32_t *paths,
                 int npaths, const int64_t *from) {
    begin(s);
    train_flow *f = &s->flows[find_train(s, name)];
    if (!ends_at_once(f)) {
        set_paths(s, f, n, links, weights, paths, npaths, from);
        end(s, from[0]);
    }
}

void nt_retime(trains *s, int64_t name, int64_t start) {
    begin(s);
    int32_t i = find_train(s, name);
    train_flow *f = &s->flows[i];
    int64_t old = f->start, from = old < start ? old : start;
    f->start = start;
    if (ends_at_once(f)) {
        s->now.sendings[i].done = start;
        from = NS_NEVER;
    } else if (from > s->now.last) {
        gather_starts(s);
    }
    end(s, from);
}

static void drop_train_flow(trains *s, int32_t i) {
    train_flow *f = &s->flows[i];
    forget_flow(f);
    f->used = f->dropped = false;
    f->generation = (f->generation + 1) & 0x7fffffff;
    s->now.sendings[i] = unsent();
    s->free_flows = grow(s->free_flows, &s->free_room, s->nfree + 1, sizeof *s->free_flows);
    s->free_flows[s->nfree++] = i;
}

void nt_retract(trains *s, int64_t name) {
    begin(s);
    int32_t i = find_train(s, name);
    int64_t start = ends_at_once(&s->flows[i]) ? NS_NEVER : s->flows[i].start;
    s->flows[i].used = false;
    if (start <= s->now.last) {
        end(s, start);
    } else {
        gather_starts(s);
        end(s, NS_NEVER);
    }
    drop_train_flow(s, i);
    gather_fresh(s);
}

void nt_capacity(trains *s, int link, int64_t at, int64_t capacity) {
    begin(s);
    int32_t i = s->nturns;
    s->turns = grow(s->turns, &s->turns_room, s->nturns + 1, sizeof *s->turns);
    while (i > 0 && s->turns[i - 1].at > at) i--;
    memmove(s->turns + i + 1, s->turns + i, (size_t)(s->nturns++ - i) * sizeof *s->turns);
    s->turns[i] = (turn_){at, capacity, link};
    end(s, at);
}

int nt_advance(trains *s, int64_t to) {
    s->nout = 0;
    run(s, to);
    int32_t kept = 0;
    for (int32_t k = 0; k < s->nfresh; k++) {
        int32_t i = s->fresh[k];
        int64_t done = s->now.sendings[i].done;
        if (done > to)
            s->fresh[kept++] = i;
        else if (done > s->present)
            put_out_train(s, i, done);
    }
    s->nfresh = kept;
    s->present = to;
    return s->nout;
}

int nt_next(trains *s) {
    int64_t early = NS_NEVER;
    s->nout = 0;
    for (int32_t seen = 0;; step(s)) {
        for (; seen < s->nfresh; seen++) {
            int64_t done = s->now.sendings[s->fresh[seen]].done;
            if (done > s->present && done < early) early = done;
        }
        int64_t at = next_happening(s);
        if (at == NS_NEVER || at >= early) break;
    }
    for (int32_t k = 0; k < s->nfresh && early != NS_NEVER; k++)
        if (s->now.sendings[s->fresh[k]].done == early) put_out_train(s, s->fresh[k], early);
    return s->nout;
}

const int64_t *nt_flows(const trains *s) { return s->out_flows; }
const int64_t *nt_ticks(const trains *s) { return s->out_ticks; }

int nt_moves(const trains *s, const ns_moved **moved) {
    *moved = s->moved;
    return s->nmoved;
}

int64_t nt_completion(const trains *s, int64_t name) {
    int32_t i = find_train(s, name);
    return i < 0 ? -1 : known_at(s, s->now.sendings[i].done);
}

int nt_segments(trains *s, int64_t name, const ns_segment **segments) {
    int32_t i = find_train(s, name);
    *segments = &s->segment;
    if (i < 0 || ends_at_once(&s->flows[i]) || s->flows[i].start >= s->present) return 0;
    int64_t done = known_at(s, s->now.sendings[i].done), end = done == NS_NEVER ? s->present : done;
    int64_t nbytes = done == NS_NEVER ? s->now.sendings[i].arrived : s->flows[i].nbytes;
    double rate = (double)nbytes * 0x1p60 / (double)(end - s->flows[i].start);
    s->segment = (ns_segment){s->flows[i].start, (int64_t)rate, 0, 0};
    return 1;
}

/* Flows that ended stay in memory until no kept state before the horizon knows them. */
int nt_commit(trains *s, int64_t horizon) {
    s->nout = 0;
    s->horizon = horizon;
    int32_t base = 0;
    while (base + 1 < s->nkept && s->kept[base + 1].last < horizon) base++;
    for (int32_t k = 0; k < base; k++) free_state(&s->kept[k]);
    s->nkept -= base;
    memmove(s->kept, s->kept + base, (size_t)s->nkept * sizeof *s->kept);
    for (int32_t i = 0; i < s->nflows; i++) {
        train_flow *f = &s->flows[i];
        int64_t done = s->now.sendings[i].done;
        if (!f->used || done > horizon) continue;
        if (!f->dropped) {
            put_out_train(s, i, done);
            f->dropped = true;
        }
        if (done < s->kept[0].last) drop_train_flow(s, i);
    }
    return s->nout;
}

void nt_count(const trains *s, ns_counters *out) {
    int64_t flows = 0, bytes = 0;
    for (int32_t i = 0; i < s->nflows; i++) flows += s->flows[i].used && !s->flows[i].dropped;
    for (int32_t k = -1; k < s->nkept; k++) {
        const train_state *x = k < 0 ? &s->now : &s->kept[k];
        bytes += s->nlinks * (int64_t)sizeof *x->queues + x->nsendings * (int64_t)sizeof *x->sendings +
                 x->events.n * (int64_t)sizeof *x->events.items + x->narrivals * (int64_t)sizeof *x->arrivals;
    }
    *out = (ns_counters){.events = s->events,
                         .rollbacks = s->rollbacks,
                         .redone = s->redone,
                         .flows = flows,
                         .bytes = bytes + s->nflows * (int64_t)sizeof *s->flows};
}
