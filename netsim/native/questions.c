/* What is asked of the timeline, and what is forgotten of it. */
#include "core.h"

static void put_out(netsim *s, int32_t id, int64_t at) {
    if (s->nout == s->out_room) {
        int32_t room = s->out_room;
        s->out_flows = grow(s->out_flows, &room, s->nout + 1, sizeof *s->out_flows);
        s->out_ticks = grow(s->out_ticks, &s->out_room, s->nout + 1, sizeof *s->out_ticks);
    }
    s->out_flows[s->nout] = name_of(s, id);
    s->out_ticks[s->nout++] = at;
}

int ns_advance(netsim *s, int64_t to) {
    s->nout = 0;
    run(s, to);
    int32_t kept = 0;
    for (int32_t i = 0; i < s->fresh.n; i++) {
        int32_t id = s->fresh.items[i];
        flow *f = &s->flows[id];
        if (f->fresh && f->state == DONE && f->done > to) {
            s->fresh.items[kept++] = id;
            continue;
        }
        if (f->fresh && f->state == DONE && f->done > s->present) put_out(s, id, f->done);
        f->fresh = false;
    }
    s->fresh.n = kept;
    s->present = to;
    return s->nout;
}

static void put_ties(netsim *s, int32_t i, int64_t at) {
    const timed_heap *h = &s->heaps[ACTIVE];
    if (i >= h->n || h->items[i].at != at) return;
    put_out(s, h->items[i].flow, at);
    put_ties(s, 2 * i + 1, at);
    put_ties(s, 2 * i + 2, at);
}

/* Those of a class that are done at `at`: its members from number i on. */
static void put_class(netsim *s, const link_ *l, int32_t i, int64_t at) {
    if (i >= l->naims || !aim_reached(l, l->aims[i].target, at)) return;
    put_out(s, l->aims[i].flow, at);
    put_class(s, l, 2 * i + 1, at);
    put_class(s, l, 2 * i + 2, at);
}

static void put_classes(netsim *s, int32_t i, int64_t at) {
    const timed_heap *h = &s->dues;
    if (i >= h->n || h->items[i].at != at) return;
    put_class(s, &s->links[h->items[i].flow], 0, at);
    put_classes(s, 2 * i + 1, at);
    put_classes(s, 2 * i + 2, at);
}

static void put_completions(netsim *s, int64_t at) {
    put_ties(s, 0, at);
    put_classes(s, 0, at);
}

int ns_next(netsim *s) {
    int64_t early = NS_NEVER;
    for (int32_t i = 0; i < s->fresh.n; i++) {
        const flow *f = &s->flows[s->fresh.items[i]];
        if (f->fresh && f->state == DONE && f->done > s->present && f->done < early) early = f->done;
    }
    s->nout = 0;
    for (int64_t at; (at = next_event(s)) < early; process(s, at)) {
        put_completions(s, at);
        if (s->nout) return s->nout;
    }
    for (int32_t i = 0; early != NS_NEVER && i < s->fresh.n; i++) {
        const flow *f = &s->flows[s->fresh.items[i]];
        if (f->fresh && f->state == DONE && f->done == early) put_out(s, s->fresh.items[i], early);
    }
    if (early != NS_NEVER) put_completions(s, early);
    return s->nout;
}

const int64_t *ns_flows(const netsim *s) { return s->out_flows; }
const int64_t *ns_ticks(const netsim *s) { return s->out_ticks; }

int ns_moves(const netsim *s, const ns_moved **moved) {
    *moved = s->moved;
    return s->nmoved;
}

int64_t ns_completion(const netsim *s, int64_t name) {
    int32_t f = find_flow(s, name);
    return f < 0 ? -1 : known(s, s->flows[f].done);
}

static int put_segment(netsim *s, int n, ns_segment x) {
    if (n && s->out_segments[n - 1].rate == x.rate && s->out_segments[n - 1].path == x.path) return n;
    s->out_segments = grow(s->out_segments, &s->segments_room, n + 1, sizeof *s->out_segments);
    s->out_segments[n] = x;
    return n + 1;
}

int ns_segments(netsim *s, int64_t name, const ns_segment **segments) {
    int32_t id = find_flow(s, name);
    int n = 0;
    for (int32_t i = 0; id >= 0 && i < s->flows[id].nsegments; i++) {
        const flow *f = &s->flows[id];
        const segment *x = &f->segments[i];
        const link_ *l = &s->links[x->limit];
        int64_t until = i + 1 < f->nsegments ? x[1].at : f->done;
        for (int32_t j = 0; j < l->nstretches; j++) {
            const stretch *y = &l->stretches[j];
            bool last = j + 1 == l->nstretches;
            if (y->at >= until || (!last && y[1].at <= x->at)) continue;
            n = put_segment(s, n, (ns_segment){y->at > x->at ? y->at : x->at, y->level, x->path, 0});
        }
    }
    *segments = s->out_segments;
    return n;
}

int ns_commit(netsim *s, int64_t horizon) {
    s->nout = 0;
    s->horizon = horizon;
    for (int32_t f; (f = heap_top(s, DONE)) >= 0 && s->flows[f].done <= horizon;) {
        put_out(s, f, s->flows[f].done);
        drop_flow(s, f);
    }
    return s->nout;
}

static int64_t bytes_of(const link_ *l) {
    int64_t bytes =
        l->all.room * (int64_t)sizeof(member) + (l->stretches_room + l->recorded_room) * (int64_t)sizeof(stretch);
    for (enum view v = NOW; v <= PAST; v++) bytes += (l->on[v].room + l->of[v].room) * (int64_t)sizeof(share);
    return bytes + l->aims_room * (int64_t)sizeof(aim);
}

void ns_count(const netsim *s, ns_counters *out) {
    *out = s->count;
    out->bytes = (int64_t)s->flows_room * (int64_t)sizeof(flow) + (int64_t)s->links_room * (int64_t)sizeof(link_);
    for (int32_t i = 0; i < s->nflows; i++) {
        const flow *f = &s->flows[i];
        out->flows += f->state != FREE;
        out->segments += f->state != FREE ? f->nsegments : 0;
        out->bytes += f->room * (int64_t)sizeof(segment) + f->nhops * (int64_t)sizeof(hop);
    }
    for (int32_t i = 0; i < s->nlinks; i++) {
        out->segments += s->links[i].nstretches;
        out->bytes += bytes_of(&s->links[i]);
    }
    for (int32_t i = 0; i < s->nbundles; i++)
        out->bytes += (int64_t)sizeof(bundle) + s->bundles[i].flows.room * (int64_t)sizeof(member);
}
