/* How streams go on: see virtual_time/streams.py. */
#include "engine.h"

#include <stdlib.h>

static void drive(engine *e, stream *it);

static void push_stream(engine *e, int64_t at_ns, stream *it) { push(e, at_ns, &it->due, it->device->host->rank); }

int32_t fill_of(int64_t solo_ns, int64_t contended_ns) {
    if (contended_ns <= solo_ns) return 0;
    if (!solo_ns) return FULL;
    int64_t fill = (int64_t)((wide)FULL * FULL_SLOWDOWN * (contended_ns - solo_ns) / solo_ns);
    return fill < FULL ? (int32_t)fill : FULL;
}

/* A device is given its first work: see Host.begin_use. */
static void begin_use(engine *e, device *on) {
    int64_t own = on->host->gpu;
    bool uses_own = on->number == own;
    on->since_ns = e->now_ns;
    on->used = true;
    for (device *one = on->host->devices; one; one = one->next) uses_own |= one->used && one->number == own;
    for (device *one = on->host->devices; uses_own && one; one = one->next) {
        if (!one->used || one->number == own || one->number == own + APART) continue;
        account(one, e->now_ns);
        one->since_ns = NEVER;
    }
}

void submit(engine *e, stream *to, item what) {
    if (to->head && to->count == to->room) { /* done items go before the queue grows */
        for (int64_t i = to->head; i < to->count; i++) to->items[i - to->head] = to->items[i];
        to->count -= to->head;
        to->head = 0;
    }
    to->items = grown(to->items, to->count, &to->room, sizeof *to->items);
    to->items[to->count++] = what;
    if (to->state) return;
    device *on = to->device;
    on->busy_streams++;
    if (on->since_ns < 0) begin_use(e, on);
    drive(e, to);
}

/* ---- what runs on a device ----------------------------------------------------------------------------------------
 */

static wide left_of(engine *e, const stream *it) {
    return it->work_left - it->rate * paced_work(e, it->device->pace, it->updated_ns, e->now_ns);
}

static void change_rates(engine *e, device *it) {
    int64_t now_ns = e->now_ns, latest_ns = now_ns, total = 0, working = 0;
    for (int32_t i = 0; i < it->nrunning; i++) {
        stream *one = it->running[i];
        if (left_of(e, one) <= 0) continue;
        working++;
        total += one->items[one->head].fill;
    }
    for (int32_t i = 0; i < it->nrunning; i++) {
        stream *one = it->running[i];
        wide left = left_of(e, one);
        if (left <= 0) continue;
        const item *segment = &one->items[one->head];
        wide alone = (wide)(it->resident ? segment->solo_ns : segment->contended_ns) * WORK_UNIT;
        one->work_left = left;
        one->updated_ns = now_ns;
        one->rate = alone * ONE / (ONE + segment->fill * (total - segment->fill));
        int64_t end_ns = paced_end(e, it->pace, now_ns, (left + one->rate - 1) / one->rate);
        if (end_ns > latest_ns) latest_ns = end_ns;
        push_stream(e, working == 1 && segment->floor_ns > end_ns ? segment->floor_ns : end_ns, one);
    }
    it->busy_until_ns = latest_ns;
}

static void start_segment(engine *e, stream *it, const item *segment) {
    device *on = it->device;
    int64_t now_ns = e->now_ns;
    account(on, now_ns);
    it->work_left = (wide)segment->solo_ns * segment->contended_ns * WORK_UNIT * (on->pace ? FULL_PACE : 1);
    it->updated_ns = now_ns;
    if (on->nrunning == on->room) {
        on->room = on->room ? 2 * on->room : 4;
        stream **more = take(e, (size_t)on->room * sizeof *more);
        for (int32_t i = 0; i < on->nrunning; i++) more[i] = on->running[i];
        on->running = more;
    }
    on->running[on->nrunning++] = it;
    if (on->nrunning > 1) {
        it->rate = 0;
        if (it->work_left)
            change_rates(e, on);
        else
            push_stream(e, now_ns > segment->floor_ns ? now_ns : segment->floor_ns, it);
        return;
    }
    int64_t end_ns = paced(e, on->pace, now_ns, on->resident ? segment->contended_ns : segment->solo_ns);
    it->rate = (wide)(on->resident ? segment->solo_ns : segment->contended_ns) * WORK_UNIT;
    if (end_ns > on->busy_until_ns) on->busy_until_ns = end_ns;
    push_stream(e, end_ns > segment->floor_ns ? end_ns : segment->floor_ns, it);
}

static void start_kernel(engine *e, kernel *it) {
    device *on = it->stream->device;
    account(on, e->now_ns);
    if (++on->resident == 1 && on->nrunning) change_rates(e, on);
    put(&e->arrived, it);
}

/* ---- events -------------------------------------------------------------------------------------------------------
 */

void await_recording(engine *e, recording *it, void *target, bool is_host) {
    waiter *made = take(e, sizeof *made);
    *made = (waiter){.target = target, .is_host = is_host};
    waiter **end = &it->waiters;
    while (*end) end = &(*end)->next;
    *end = made;
}

static void complete_recording(engine *e, recording *it) {
    it->done_ns = e->now_ns;
    for (waiter *one = it->waiters; one; one = one->next) put(one->is_host ? &e->woken : &e->ready, one->target);
    it->waiters = NULL;
}

/* ---- items in order -----------------------------------------------------------------------------------------------
 */

static void drained(engine *e, stream *it) {
    device *on = it->device;
    on->busy_streams--;
    if (it->host_waits) {
        it->host_waits = false;
        put(&e->woken, on->host);
    }
    if (on->host_waits && !on->busy_streams) {
        on->host_waits = false;
        put(&e->woken, on->host);
    }
}

/* False: the stream stops at this item. */
static bool pass(engine *e, stream *it, const item *what) {
    recording *awaited;
    step_end *step;
    switch (what->kind) {
    case ITEM_SEGMENT:
        it->state = BUSY;
        start_segment(e, it, what);
        return false;
    case ITEM_EVENT:
        complete_recording(e, what->what);
        return true;
    case ITEM_WAIT:
        awaited = what->what;
        if (awaited->done_ns >= 0) return true;
        it->state = BLOCKED;
        await_recording(e, awaited, it, false);
        return false;
    case ITEM_KERNEL:
        it->state = COLLECTIVE;
        start_kernel(e, what->what);
        return false;
    case ITEM_STEP:
        step = what->what;
        if (!--step->pending) put(&e->ended, step);
        return true;
    default:
        return true;
    }
}

static void drive(engine *e, stream *it) {
    for (;;) {
        while (it->head < it->count) {
            item what = it->items[it->head];
            if (!pass(e, it, &what)) break;
            it->head++;
        }
        if (it->head == it->count) {
            it->head = it->count = 0;
            it->state = IDLE;
            drained(e, it);
        }
        if (!e->ready.n) return;
        it = e->ready.all[--e->ready.n];
    }
}

static void leave(engine *e, stream *it, int64_t launches) {
    it->launches -= launches;
    it->head++;
    if (it->launches <= it->queue_limit) {
        it->queue_limit = -1;
        put(&e->woken, it->device->host);
    }
    drive(e, it);
}

void finish_segment(engine *e, stream *it) {
    item segment = it->items[it->head];
    device *on = it->device;
    account(on, e->now_ns);
    if (e->now_ns < segment.floor_ns) {
        it->work_left = it->rate = 0;
        push_stream(e, segment.floor_ns, it);
        change_rates(e, on);
        return;
    }
    int32_t left = 0;
    for (int32_t i = 0; i < on->nrunning; i++)
        if (on->running[i] != it) on->running[left++] = on->running[i];
    bool others = on->nrunning > 1;
    on->nrunning = left;
    if (others) change_rates(e, on);
    leave(e, it, segment.launches);
}

void finish_kernel(engine *e, kernel *it) {
    device *on = it->stream->device;
    account(on, e->now_ns);
    if (!--on->resident && on->nrunning) change_rates(e, on);
    leave(e, it->stream, 1);
}
