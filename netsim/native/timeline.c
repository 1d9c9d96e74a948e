/* Events in order, up to the present. */
#include "core.h"

static int64_t first(const timed_heap *h) { return h->n ? h->items[0].at : NS_NEVER; }

static int64_t next_completion(const netsim *s) {
    int64_t instant = first(&s->heaps[ACTIVE]), due = first(&s->dues);
    return due < instant ? due : instant;
}

int64_t next_event(const netsim *s) {
    int64_t at = next_completion(s), start = first(&s->heaps[PENDING]),
            change = s->changes.n ? s->changes.items[0].at : NS_NEVER;
    at = start < at ? start : at;
    return change < at ? change : at;
}

static void finish(netsim *s, int32_t f, int64_t at) {
    flow *x = &s->flows[f];
    x->view[NOW].on = false;
    x->done = at;
    heap_put(s, f, DONE);
    if (!x->fresh) {
        x->fresh = true;
        list_push(&s->fresh, f);
    }
}

/* Off its links and out of its class. */
static void leave(netsim *s, int32_t f) {
    const flow *x = &s->flows[f];
    const flow_view *v = &x->view[NOW];
    for (int32_t i = 0; i < x->nhops; i++) {
        const hop *h = &x->hops[i];
        if (!part_of(h, v->path)) continue;
        s->links[h->link].view[NOW].load -= h->weight * s->levels[NOW][v->limit];
        leave_bundle(s, NOW, f, i);
        touch(s, h->link);
    }
    aim_drop(s, v->limit, f);
    soil(s, v->limit);
}

static void finish_class(netsim *s, int32_t link, int64_t at) {
    const link_ *l = &s->links[link];
    while (l->naims && aim_reached(l, l->aims[0].target, at)) {
        int32_t f = l->aims[0].flow;
        leave(s, f);
        finish(s, f, at);
    }
    due_put(s, link, NS_NEVER);
    soil(s, link);
}

/* The flow is on a path from now on; its rate is sought. */
static void enter(netsim *s, int32_t f, int32_t path, wide left) {
    flow *x = &s->flows[f];
    x->view[NOW] = (flow_view){-1, path, true};
    x->left = left;
    seek(s, f);
}

/* The flow goes on over another path. */
static void reroute(netsim *s, int32_t f) {
    const flow *x = &s->flows[f];
    int32_t to = path_at(x, s->at);
    if (x->state != ACTIVE || x->view[NOW].path == to) return;
    wide left = x->left;
    if (x->view[NOW].limit >= 0) {
        left = left_at(s, x);
        leave(s, f);
    }
    enter(s, f, to, left);
}

static void settle(netsim *s) {
    solve(s);
    for (int32_t i = 0; i < s->movers.n; i++) {
        int32_t f = s->movers.items[i];
        flow *x = &s->flows[f];
        if (x->old_limit < 0) continue;
        x->left = left_at(s, x);
        aim_drop(s, x->old_limit, f);
        soil(s, x->old_limit);
    }
    for (int32_t i = 0; i < s->noted.n; i++) {
        int32_t id = s->noted.items[i];
        if (s->links[id].view[NOW].own)
            write_stretch(s, id);
        else
            s->levels[NOW][id] = s->links[id].old_level;
        soil(s, id);
    }
    for (int32_t i = 0; i < s->movers.n; i++) {
        int32_t f = s->movers.items[i];
        flow *x = &s->flows[f];
        write_segment(s, x, s->at);
        aim_put(s, x->view[NOW].limit, f, x->segments[x->nsegments - 1].target);
    }
    for (int32_t i = 0; i < s->dirty.n; i++) {
        s->links[s->dirty.items[i]].dirty = false;
        due_put(s, s->dirty.items[i], due_of(s, s->dirty.items[i]));
    }
    s->dirty.n = 0;
}

void process(netsim *s, int64_t at) {
    s->count.events++;
    s->last = s->at = at;
    s->view = NOW;
    while (first(&s->dues) == at) finish_class(s, s->dues.items[0].flow, at);
    while (first(&s->heaps[ACTIVE]) == at) finish(s, heap_top(s, ACTIVE), at);
    while (s->changes.n && s->changes.items[0].at == at) {
        event e = event_pop(&s->changes);
        if (e.what == CAPACITY) {
            s->links[e.id].view[NOW].capacity = capacity_at(&s->links[e.id], at);
            touch(s, e.id);
        } else if (s->flows[e.id].generation == e.version) {
            reroute(s, e.id);
        }
    }
    while (first(&s->heaps[PENDING]) == at) {
        int32_t f = heap_top(s, PENDING);
        heap_put(s, f, ACTIVE);
        enter(s, f, path_at(&s->flows[f], at), (wide)s->flows[f].nbytes << 60);
    }
    settle(s);
}

/* Everything up to `until` that can end a flow by then. Flows that start at `until` wait for others that do. */
void run(netsim *s, int64_t until) {
    for (int64_t at; (at = next_event(s)) < until || (at == until && next_completion(s) == at);) process(s, at);
}
