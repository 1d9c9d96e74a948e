/* Late facts: redo, from the fact's instant to the last event, what differs from the recorded history, and nothing
 * else.
 *
 * A flow is *live* once its new history differs from its recorded one; all others are *followed*: their recorded
 * changes happen again as recorded. Links of live flows are *stamped*: their state in the PAST view is kept, and
 * whatever happens on them, live or recorded, is an event at which the solution is checked there. Between such events
 * the recorded rates of followed flows and the new rates of live ones satisfy the solution's definition on every link,
 * so they are the solution.
 */
#include "core.h"

enum { FOLLOW, FINISH, START, REMOVE, TURN, SWITCH };

static void follow(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    if (f->seen == s->replay) return;
    f->seen = s->replay;
    f->live = false;
    f->view[PAST] = (flow_view){0, -1, 0, false};
    if (f->state == PENDING || !f->nsegments || f->done <= s->at) return;
    int32_t i = f->nsegments - 1;
    while (i >= 0 && f->segments[i].at > s->at) i--;
    f->cursor = i;
    if (i >= 0) f->view[PAST] = (flow_view){f->segments[i].rate, f->segments[i].limit, f->segments[i].path, true};
    int64_t next = i + 1 < f->nsegments ? f->segments[i + 1].at : f->done;
    if (next <= s->last) event_push(&s->queue, (event){next, FOLLOW, id, 0});
}

void stamp(netsim *s, int32_t link) {
    link_ *l = &s->links[link];
    if (l->seen == s->replay) return;
    l->seen = s->replay;
    list_push(&s->stamped, link);
    link_view v = {capacity_at(l, s->at), 0, 0, 0, 0};
    roster *past = &l->rosters[PAST];
    past->n = 0;
    for (int32_t i = 0; i < l->rosters[NOW].n; i++) {
        const member *m = &l->rosters[NOW].members[i];
        follow(s, m->flow);
        flow *f = &s->flows[m->flow];
        hop *h = &f->hops[m->hop];
        bool on = f->view[PAST].on && part_of(h, f->view[PAST].path);
        if (f->live || f->view[PAST].on || (f->nsegments && f->state != PENDING && f->segments[0].at > s->at)) {
            h->pos[PAST] = past->n;
            roster_push(past, *m, on ? f->view[PAST].rate : NOT_ON);
        }
        if (!on) continue;
        v.load += h->weight * f->view[PAST].rate;
        v.weight += h->weight;
        if (f->view[PAST].limit != link) continue;
        v.limited += h->weight;
        v.level = f->view[PAST].rate;
    }
    l->view[PAST] = v;
    for (int32_t i = 0; i < l->nsteps; i++)
        if (l->steps[i].at > s->at && l->steps[i].at <= s->last)
            event_push(&s->queue, (event){l->steps[i].at, TURN, link, 0});
}

/* Change a flow's state in the past on the stamped links it leaves and enters. */
static void shift(netsim *s, flow *f, flow_view to) {
    flow_view from = f->view[PAST];
    f->view[PAST] = to;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        link_ *l = &s->links[h->link];
        bool was = from.on && part_of(h, from.path), is = to.on && part_of(h, to.path);
        if (l->seen != s->replay || (!was && !is)) continue;
        l->rosters[PAST].rates[h->pos[PAST]] = is ? to.rate : NOT_ON;
        l->view[PAST].load += h->weight * ((is ? to.rate : 0) - (was ? from.rate : 0));
        l->view[PAST].weight += is == was ? 0 : is ? h->weight : -h->weight;
        if (was && from.limit == h->link) l->view[PAST].limited -= h->weight;
        if (is && to.limit == h->link) {
            l->view[PAST].limited += h->weight;
            l->view[PAST].level = to.rate;
        }
        /* Where all is as recorded, the recorded rates are the solution. */
        if (l->altered == s->replay) touch(s, h->link);
    }
}

static void follow_on(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    if (f->live) return;
    if (f->cursor + 1 < f->nsegments) {
        const segment *x = &f->segments[++f->cursor];
        shift(s, f, (flow_view){x->rate, x->limit, x->path, true});
    } else {
        shift(s, f, (flow_view){0, -1, 0, false});
        return;
    }
    int64_t next = f->cursor + 1 < f->nsegments ? f->segments[f->cursor + 1].at : f->done;
    if (next <= s->last) event_push(&s->queue, (event){next, FOLLOW, id, 0});
}

/* From s->at on the flow's recorded history no longer holds. */
static void come_alive(netsim *s, int32_t id, int32_t keep) {
    flow *f = &s->flows[id];
    /* Out of its heap until the end: its key is about to change. */
    heap_put(s, id, FREE);
    f->live = true;
    f->seen = s->replay;
    f->before = f->done;
    f->done = NS_NEVER;
    f->due = NS_NEVER;
    f->nsegments = keep;
    list_push(&s->live, id);
    for (int32_t i = 0; i < f->nhops; i++) s->links[f->hops[i].link].altered = s->replay;
    for (int32_t i = 1; i < f->nepochs; i++)
        if (f->epochs[i].from > s->at && f->epochs[i].from <= s->last)
            event_push(&s->queue, (event){f->epochs[i].from, SWITCH, id, 0});
}

static void settle(netsim *s) {
    if (!s->touched.n && !s->set.n) return;
    solve(s);
    for (int32_t i = 0; i < s->set.n; i++) {
        int32_t id = s->set.items[i];
        flow *f = &s->flows[id];
        if (i + 4 < s->set.n) prefetch_tail(&s->flows[s->set.items[i + 4]]);
        f->in_set = false;
        if (f->view[PAST].rate == f->old_rate && f->view[PAST].limit == f->old_limit) continue;
        if (!f->live) come_alive(s, id, f->cursor + 1);
        write_segment(s, f, s->at);
        f->due = completion_of(f);
        f->version++;
        s->count.redone++;
        if (f->due <= s->last) event_push(&s->queue, (event){f->due, FINISH, id, f->version});
    }
    s->set.n = 0;
}

static void stamp_all(netsim *s, const flow *f) {
    for (int32_t i = 0; i < f->nhops; i++) stamp(s, f->hops[i].link);
}

/* Put a live flow on its path of the moment, its rate to be found. */
static void start(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    stamp_all(s, f);
    shift(s, f, (flow_view){0, -1, path_at(f, s->at), true});
    list_push(&s->starters, id);
}

static void happen(netsim *s, event e) {
    flow *f = e.what == TURN ? NULL : &s->flows[e.id];
    switch (e.what) {
    case FOLLOW:
        follow_on(s, e.id);
        break;
    case FINISH:
        if (f->version != e.version || !f->view[PAST].on) break;
        shift(s, f, (flow_view){0, -1, 0, false});
        f->done = s->at;
        break;
    case START:
        start(s, e.id);
        break;
    case SWITCH:
        follow(s, e.id);
        if (f->view[PAST].on && !f->live) {
            stamp_all(s, f);
            come_alive(s, e.id, f->cursor + 1);
            start(s, e.id);
        } else if (f->view[PAST].on && f->view[PAST].path != path_at(f, s->at))
            start(s, e.id);
        break;
    case REMOVE:
        stamp_all(s, f);
        for (int32_t i = 0; i < f->nhops; i++) touch(s, f->hops[i].link);
        break;
    default:
        stamp(s, e.id);
        s->links[e.id].altered = s->replay;
        s->links[e.id].view[PAST].capacity = capacity_at(&s->links[e.id], s->at);
        touch(s, e.id);
    }
}

static void redo(netsim *s) {
    while (s->queue.n) {
        s->at = s->queue.items[0].at;
        s->starters.n = 0;
        while (s->queue.n && s->queue.items[0].at == s->at) happen(s, event_pop(&s->queue));
        for (int32_t i = 0; i < s->starters.n; i++) {
            if (!s->flows[s->starters.items[i]].view[PAST].on) continue;
            join_set(s, s->starters.items[i]);
            s->flows[s->starters.items[i]].old_rate = -1;
        }
        settle(s);
    }
}

static void begin(netsim *s) {
    s->count.rollbacks++;
    s->replay++;
    s->view = PAST;
    s->live.n = s->stamped.n = 0;
}

/* The past has reached the last event: it becomes the present state of everything that was redone. */
static void end(netsim *s) {
    for (int32_t i = 0; i < s->stamped.n; i++)
        s->links[s->stamped.items[i]].view[NOW] = s->links[s->stamped.items[i]].view[PAST];
    for (int32_t i = 0; i < s->live.n; i++) {
        int32_t id = s->live.items[i];
        flow *f = &s->flows[id];
        f->view[NOW] = f->view[PAST];
        place(s, id);
        heap_put(s, id, f->view[NOW].on ? ACTIVE : f->done != NS_NEVER ? DONE : PENDING);
        if (f->done > s->present && f->done != NS_NEVER && !f->fresh) {
            f->fresh = true;
            list_push(&s->fresh, id);
        }
    }
    s->view = NOW;
}

void replay_flow(netsim *s, int32_t id, int64_t old_start, int64_t new_start) {
    begin(s);
    flow *f = &s->flows[id];
    f->view[PAST] = (flow_view){0, -1, 0, false};
    s->at = new_start < old_start ? new_start : old_start;
    come_alive(s, id, 0);
    if (old_start <= s->last) event_push(&s->queue, (event){old_start, REMOVE, id, 0});
    if (new_start <= s->last) event_push(&s->queue, (event){new_start, START, id, 0});
    redo(s);
    end(s);
}

void replay_switch(netsim *s, int32_t id, int64_t at) {
    begin(s);
    event_push(&s->queue, (event){at, SWITCH, id, 0});
    redo(s);
    end(s);
}

void replay_capacity(netsim *s, int32_t link, int64_t at) {
    begin(s);
    event_push(&s->queue, (event){at, TURN, link, 0});
    redo(s);
    end(s);
}
