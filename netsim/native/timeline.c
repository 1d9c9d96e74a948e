/* Events in order, up to the present. */
#include "core.h"

static int64_t earliest(const netsim *s, uint8_t state) {
    return s->heaps[state].n ? s->heaps[state].items[0].at : NS_NEVER;
}

int64_t next_event(const netsim *s) {
    int64_t at = earliest(s, ACTIVE), start = earliest(s, PENDING),
            change = s->changes.n ? s->changes.items[0].at : NS_NEVER;
    at = start < at ? start : at;
    return change < at ? change : at;
}

static void finish(netsim *s, int32_t f, int64_t at) {
    flow *x = &s->flows[f];
    for (int32_t i = 0; i < x->nhops && x->state == ACTIVE; i++) {
        const hop *h = &x->hops[i];
        if (!part_of(h, x->view[NOW].path)) continue;
        link_view *v = &s->links[h->link].view[NOW];
        v->load -= h->weight * x->view[NOW].rate;
        v->weight -= h->weight;
        if (x->view[NOW].limit == h->link) v->limited -= h->weight;
        touch(s, h->link);
    }
    x->view[NOW].on = false;
    place(s, f);
    x->done = at;
    heap_put(s, f, DONE);
    if (!x->fresh) {
        x->fresh = true;
        list_push(&s->fresh, f);
    }
}

/* Put the flow on the links of its path: weight now, rate when solved. */
static void enter(netsim *s, int32_t f, int32_t path) {
    flow *x = &s->flows[f];
    x->view[NOW] = (flow_view){0, -1, path, true};
    place(s, f);
    for (int32_t i = 0; i < x->nhops; i++)
        if (part_of(&x->hops[i], path)) s->links[x->hops[i].link].view[NOW].weight += x->hops[i].weight;
    join_set(s, f);
    x->old_rate = -1;
}

/* The flow goes on over another path: weight moves now, rate when solved. */
static void reroute(netsim *s, int32_t f) {
    flow *x = &s->flows[f];
    int32_t from = x->view[NOW].path, to = path_at(x, s->at);
    if (x->state != ACTIVE || from == to) return;
    for (int32_t i = 0; i < x->nhops; i++) {
        link_view *v = &s->links[x->hops[i].link].view[NOW];
        if (part_of(&x->hops[i], from)) {
            v->load -= x->hops[i].weight * x->view[NOW].rate;
            v->weight -= x->hops[i].weight;
            if (x->view[NOW].limit == x->hops[i].link) v->limited -= x->hops[i].weight;
            touch(s, x->hops[i].link);
        }
    }
    enter(s, f, to);
}

static void settle(netsim *s) {
    solve(s);
    for (int32_t i = 0; i < s->set.n; i++) {
        flow *f = &s->flows[s->set.items[i]];
        if (i + 4 < s->set.n) prefetch_tail(&s->flows[s->set.items[i + 4]]);
        f->in_set = false;
        if (f->view[NOW].rate == f->old_rate && f->view[NOW].limit == f->old_limit) continue;
        write_segment(s, f, s->at);
        f->due = completion_of(f);
        heap_put(s, s->set.items[i], ACTIVE);
    }
    s->set.n = 0;
}

void process(netsim *s, int64_t at) {
    s->count.events++;
    s->last = s->at = at;
    s->view = NOW;
    while (earliest(s, ACTIVE) == at) finish(s, heap_top(s, ACTIVE), at);
    while (s->changes.n && s->changes.items[0].at == at) {
        event e = event_pop(&s->changes);
        if (e.what == CAPACITY) {
            s->links[e.id].view[NOW].capacity = capacity_at(&s->links[e.id], at);
            touch(s, e.id);
        } else if (s->flows[e.id].generation == e.version) {
            reroute(s, e.id);
        }
    }
    while (earliest(s, PENDING) == at) {
        int32_t f = heap_top(s, PENDING);
        s->flows[f].due = NS_NEVER;
        heap_put(s, f, ACTIVE);
        enter(s, f, path_at(&s->flows[f], at));
    }
    settle(s);
}

/* Everything up to `until` that can end a flow by then. Flows that start at `until` wait for others that do. */
void run(netsim *s, int64_t until) {
    for (int64_t at; (at = next_event(s)) < until || (at == until && earliest(s, ACTIVE) == at);) process(s, at);
}
