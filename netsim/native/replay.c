/* Late facts: redo, from the fact's instant to the last event, what differs from the recorded history, and nothing
 * else.
 *
 * A class is *live* once its new history differs from its recorded one, be it in its level or in its flows, and so are
 * its flows; all others are *followed*: their recorded changes happen again as recorded. A followed flow that comes
 * into a live class comes alive. A live class without flows is followed again: who comes into it later, as recorded,
 * finds the recorded levels and sums. Links of live flows are *stamped*: their state in the PAST view is kept, and
 * whatever happens on them, live or recorded, is an event at which the solution is checked there. Between such events
 * the recorded rates of followed flows and the new rates of live ones satisfy the solution's definition on every link,
 * so they are the solution.
 */
#include "core.h"

#include <string.h>

/* In the order in which they happen in a tick: a flow that is done does not go over to another path any more. */
enum { FINISH, FOLLOW, FOLLOW_CLASS, START, REMOVE, TURN, SWITCH };

static bool is_live(const netsim *s, int32_t link) {
    return s->links[link].followed == s->replay && s->links[link].live;
}

static void expect_stretch(netsim *s, int32_t id) {
    const link_ *l = &s->links[id];
    if (l->cursor + 1 < l->nstretches && l->stretches[l->cursor + 1].at <= s->last)
        event_push(&s->queue, (event){l->stretches[l->cursor + 1].at, FOLLOW_CLASS, id, l->version});
}

void follow_class(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    if (l->followed == s->replay) return;
    l->followed = s->replay;
    l->live = false;
    int32_t i = l->nstretches - 1;
    while (i >= 0 && l->stretches[i].at > s->at) i--;
    l->cursor = i;
    s->levels[PAST][id] = i < 0 ? 0 : l->stretches[i].level;
    expect_stretch(s, id);
}

static void expect_segment(netsim *s, int32_t id) {
    const flow *f = &s->flows[id];
    int64_t next = f->cursor + 1 < f->nsegments ? f->segments[f->cursor + 1].at : f->done;
    if (next <= s->last) event_push(&s->queue, (event){next, FOLLOW, id, 0});
}

static void follow(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    if (f->seen == s->replay) return;
    f->seen = s->replay;
    f->live = false;
    f->view[PAST] = (flow_view){-1, 0, false};
    if (f->state == PENDING || !f->nsegments || f->done <= s->at) return;
    int32_t i = f->nsegments - 1;
    while (i >= 0 && f->segments[i].at > s->at) i--;
    f->cursor = i;
    if (i >= 0) {
        f->view[PAST] = (flow_view){f->segments[i].limit, f->segments[i].path, true};
        follow_class(s, f->segments[i].limit);
    }
    expect_segment(s, id);
}

void stamp(netsim *s, int32_t link) {
    link_ *l = &s->links[link];
    if (l->seen == s->replay) return;
    l->seen = s->replay;
    list_push(&s->stamped, link);
    l->view[PAST] = (link_view){capacity_at(l, s->at), 0, 0, 0};
    for (int32_t i = 0; i < l->all.n; i++) {
        member m = l->all.items[i];
        follow(s, m.flow);
        const flow *f = &s->flows[m.flow];
        const flow_view *v = &f->view[PAST];
        if (!v->on || v->limit < 0 || !part_of(&f->hops[m.hop], v->path)) continue;
        join_bundle(s, PAST, m.flow, m.hop, v->limit);
        l->view[PAST].load += f->hops[m.hop].weight * s->levels[PAST][v->limit];
    }
    for (int32_t i = 0; i < l->nsteps; i++)
        if (l->steps[i].at > s->at && l->steps[i].at <= s->last)
            event_push(&s->queue, (event){l->steps[i].at, TURN, link, 0});
}

void stamp_path(netsim *s, int32_t f) {
    const flow *x = &s->flows[f];
    for (int32_t i = 0; i < x->nhops; i++)
        if (part_of(&x->hops[i], x->view[PAST].path)) stamp(s, x->hops[i].link);
}

void prepare(netsim *s, int32_t link) {
    link_ *l = &s->links[link];
    if (l->prepared == s->replay) return;
    l->prepared = s->replay;
    stamp(s, link);
    for (int32_t i = 0; i < members_of(s, link)->n; i++) stamp_path(s, members_of(s, link)->items[i].flow);
}

/* Something changes on a link. Where all is as recorded, the recorded rates are the solution. */
static void notice(netsim *s, int32_t link) {
    if (s->links[link].altered == s->replay) touch(s, link);
}

/* The class's aims are no longer those of the present: see end(). */
static void alter_aims(netsim *s, int32_t link) {
    if (s->links[link].aims_altered == s->replay) return;
    s->links[link].aims_altered = s->replay;
    list_push(&s->altered, link);
}

/* Take a flow off the links it is on and out of its class, if it is in one. */
static void leave(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    flow_view *v = &f->view[PAST];
    if (v->limit < 0) return;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path) || s->links[h->link].seen != s->replay) continue;
        s->links[h->link].view[PAST].load -= h->weight * s->levels[PAST][v->limit];
        leave_bundle(s, PAST, id, i);
        notice(s, h->link);
    }
    if (is_live(s, v->limit)) {
        aim_drop(s, v->limit, id);
        soil(s, v->limit);
    }
    v->limit = -1;
}

/* From s->at on the flow's recorded history no longer holds. */
static void come_alive(netsim *s, int32_t id, int32_t keep) {
    flow *f = &s->flows[id];
    /* Out of its heap until the end: its completion is about to change. */
    if (f->state == ACTIVE && !instant(f) && s->links[f->view[NOW].limit].emptied != s->replay) {
        aim_drop(s, f->view[NOW].limit, id);
        alter_aims(s, f->view[NOW].limit);
    }
    heap_put(s, id, FREE);
    f->live = true;
    f->seen = s->replay;
    f->before = f->done;
    f->done = NS_NEVER;
    f->nsegments = keep;
    list_push(&s->live, id);
    for (int32_t i = 0; i < f->nhops; i++) s->links[f->hops[i].link].altered = s->replay;
    for (int32_t i = 1; i < f->nepochs; i++)
        if (f->epochs[i].from > s->at && f->epochs[i].from <= s->last)
            event_push(&s->queue, (event){f->epochs[i].from, SWITCH, id, 0});
}

/* From s->at on the class's recorded history no longer holds. */
static void bring_alive(netsim *s, int32_t link) {
    if (is_live(s, link)) return;
    prepare(s, link);
    link_ *l = &s->links[link];
    alter_aims(s, link);
    if (l->emptied != s->replay) list_push(&s->live_classes, link);
    l->emptied = s->replay;
    l->naims = 0;
    l->live = true;
    l->version++;
    int32_t from = l->cursor < 0 ? 0 : l->cursor;
    l->nrecorded = l->nstretches - from;
    l->recorded = grow(l->recorded, &l->recorded_room, l->nrecorded, sizeof *l->recorded);
    if (l->nrecorded) memcpy(l->recorded, l->stretches + from, (size_t)l->nrecorded * sizeof *l->recorded);
    l->nstretches = l->cursor + 1;
    const roster *r = members_of(s, link);
    for (int32_t i = 0; i < r->n; i++) {
        int32_t id = r->items[i].flow;
        flow *f = &s->flows[id];
        if (f->moved == s->mark) continue;
        come_alive(s, id, f->cursor + 1);
        aim_put(s, link, id, f->segments[f->cursor].target);
    }
}

/* The class, which has no flows, is as recorded from the next tick on: whoever leaves it in this tick counts by the
 * sums that it had.
 */
static void calm(netsim *s, int32_t link) {
    link_ *l = &s->links[link];
    int64_t from = s->at + 1;
    if (from > s->last) return;
    int32_t i = l->nrecorded - 1;
    while (i >= 0 && l->recorded[i].at > from) i--;
    l->stretches = grow(l->stretches, &l->stretches_room, l->nstretches + l->nrecorded + 1, sizeof *l->stretches);
    l->cursor = l->nstretches - 1;
    if (i >= 0) {
        const stretch *x = &l->recorded[i];
        l->stretches[l->nstretches++] = (stretch){from, x->level, x->sum + (wide)x->level * (from - x->at)};
    }
    while (++i < l->nrecorded) l->stretches[l->nstretches++] = l->recorded[i];
    l->live = false;
    l->version++;
    expect_stretch(s, link);
}

static void settle(netsim *s) {
    if (s->touched.n || s->set.n) {
        solve(s);
    } else {
        if (!s->dirty.n) return;
        s->movers.n = s->noted.n = 0;
    }
    for (int32_t i = 0; i < s->movers.n; i++) {
        int32_t id = s->movers.items[i];
        flow *f = &s->flows[id];
        if (f->old_limit >= 0) f->left = left_at(s, f);
        if (!f->live) {
            come_alive(s, id, f->cursor + 1);
        } else if (f->old_limit >= 0) {
            aim_drop(s, f->old_limit, id);
            soil(s, f->old_limit);
        }
    }
    for (int32_t i = 0; i < s->noted.n; i++) {
        int32_t id = s->noted.items[i];
        const link_ *l = &s->links[id];
        if (!l->view[PAST].own) {
            s->levels[PAST][id] = l->old_level;
        } else if (s->levels[PAST][id] != l->old_level || l->gained == s->mark) {
            bring_alive(s, id);
            if (s->levels[PAST][id] != l->old_level) s->count.redone += l->naims;
            write_stretch(s, id);
            soil(s, id);
        }
    }
    for (int32_t i = 0; i < s->movers.n; i++) {
        int32_t id = s->movers.items[i];
        flow *f = &s->flows[id];
        write_segment(s, f, s->at);
        aim_put(s, f->view[PAST].limit, id, f->segments[f->nsegments - 1].target);
        s->count.redone++;
    }
    for (int32_t i = 0; i < s->dirty.n; i++) {
        int32_t id = s->dirty.items[i];
        link_ *l = &s->links[id];
        l->dirty = false;
        if (!l->view[PAST].own) {
            if (l->live) calm(s, id);
            continue;
        }
        int64_t due = due_of(s, id);
        l->version++;
        if (due <= s->last) event_push(&s->queue, (event){due, FINISH, id, l->version});
    }
    s->dirty.n = 0;
}

static void stamp_all(netsim *s, const flow *f) {
    for (int32_t i = 0; i < f->nhops; i++) stamp(s, f->hops[i].link);
}

/* Put a live flow on its path of the moment, its rate to be found. */
static void start(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    stamp_all(s, f);
    if (!f->view[PAST].on)
        f->left = (wide)f->nbytes << 60;
    else if (f->view[PAST].limit >= 0)
        f->left = left_at(s, f);
    leave(s, id);
    f->view[PAST] = (flow_view){-1, path_at(f, s->at), true};
    seek(s, id);
}

static void follow_on(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    if (f->live) return;
    flow_view *v = &f->view[PAST];
    if (f->cursor + 1 >= f->nsegments) {
        leave(s, id);
        v->on = false;
        return;
    }
    const segment *x = &f->segments[f->cursor + 1];
    follow_class(s, x->limit);
    if (is_live(s, x->limit)) {
        if (v->on) stamp_path(s, id);
        come_alive(s, id, f->cursor + 1);
        start(s, id);
        return;
    }
    leave(s, id);
    f->cursor++;
    *v = (flow_view){x->limit, x->path, true};
    s->links[x->limit].prepared = 0;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path) || s->links[h->link].seen != s->replay) continue;
        join_bundle(s, PAST, id, i, v->limit);
        s->links[h->link].view[PAST].load += h->weight * s->levels[PAST][v->limit];
        notice(s, h->link);
    }
    expect_segment(s, id);
}

static void follow_class_on(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    int64_t level = l->stretches[++l->cursor].level, more = level - s->levels[PAST][id];
    s->levels[PAST][id] = level;
    for (int32_t i = 0; i < l->of[PAST].n; i++) {
        const share *x = &l->of[PAST].items[i];
        s->links[x->other].view[PAST].load += x->weight * more;
        notice(s, x->other);
    }
    expect_stretch(s, id);
}

static void finish_class(netsim *s, int32_t link) {
    const link_ *l = &s->links[link];
    while (l->naims && aim_reached(l, l->aims[0].target, s->at)) {
        int32_t id = l->aims[0].flow;
        leave(s, id);
        s->flows[id].view[PAST].on = false;
        s->flows[id].done = s->at;
    }
    soil(s, link);
}

/* The flow is no longer where it was recorded from now on. */
static void remove_flow(netsim *s, const flow *f) {
    stamp_all(s, f);
    for (int32_t i = 0; i < f->nhops; i++) touch(s, f->hops[i].link);
}

static void happen(netsim *s, event e) {
    bool of_link = e.what == TURN || e.what == FINISH || e.what == FOLLOW_CLASS;
    const flow *f = of_link ? NULL : &s->flows[e.id];
    switch (e.what) {
    case FOLLOW:
        follow_on(s, e.id);
        break;
    case FOLLOW_CLASS:
        if (s->links[e.id].version == e.version) follow_class_on(s, e.id);
        break;
    case FINISH:
        if (s->links[e.id].version == e.version) finish_class(s, e.id);
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
        } else if (!f->view[PAST].on) {
            /* It may be done earlier than recorded, and is missing on this path. */
            if (f->live) remove_flow(s, f);
        } else if (f->view[PAST].path != path_at(f, s->at))
            start(s, e.id);
        break;
    case REMOVE:
        remove_flow(s, f);
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
        while (s->queue.n && s->queue.items[0].at == s->at) happen(s, event_pop(&s->queue));
        settle(s);
    }
}

static void begin(netsim *s) {
    s->count.rollbacks++;
    s->replay++;
    s->view = PAST;
    s->live.n = s->live_classes.n = s->stamped.n = s->altered.n = 0;
}

/* Bring the flow's bundles NOW to those of the past. */
static void bring_up(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    flow_view from = f->view[NOW], to = f->view[PAST];
    f->view[NOW] = to;
    if (from.on == to.on && from.limit == to.limit && from.path == to.path) return;
    for (int32_t i = 0; i < f->nhops; i++) {
        if (from.on && part_of(&f->hops[i], from.path)) leave_bundle(s, NOW, id, i);
        if (to.on && part_of(&f->hops[i], to.path)) join_bundle(s, NOW, id, i, to.limit);
    }
}

/* The past has reached the last event: it becomes the present state of everything that was redone. */
static void end(netsim *s) {
    for (int32_t i = 0; i < s->live.n; i++) {
        int32_t id = s->live.items[i];
        flow *f = &s->flows[id];
        bring_up(s, id);
        heap_put(s, id, f->view[NOW].on ? ACTIVE : f->done != NS_NEVER ? DONE : PENDING);
        if (f->done > s->present && f->done != NS_NEVER && !f->fresh) {
            f->fresh = true;
            list_push(&s->fresh, id);
        }
    }
    for (int32_t i = 0; i < s->live_classes.n; i++)
        s->levels[NOW][s->live_classes.items[i]] = s->levels[PAST][s->live_classes.items[i]];
    for (int32_t i = 0; i < s->stamped.n; i++) {
        s->links[s->stamped.items[i]].view[NOW] = s->links[s->stamped.items[i]].view[PAST];
        free_bundles_on(s, s->stamped.items[i]);
    }
    s->view = NOW;
    s->at = s->last;
    for (int32_t i = 0; i < s->live_classes.n; i++) {
        int32_t id = s->live_classes.items[i];
        if (s->links[id].live) continue;
        const roster *r = members_of(s, id);
        for (int32_t j = 0; j < r->n; j++) {
            const flow *f = &s->flows[r->items[j].flow];
            aim_put(s, id, r->items[j].flow, f->segments[f->nsegments - 1].target);
        }
    }
    for (int32_t i = 0; i < s->altered.n; i++) due_put(s, s->altered.items[i], due_of(s, s->altered.items[i]));
}

void replay_flow(netsim *s, int32_t id, int64_t old_start, int64_t new_start) {
    begin(s);
    flow *f = &s->flows[id];
    f->view[PAST] = (flow_view){-1, 0, false};
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
