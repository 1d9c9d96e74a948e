/*
 * How streams go on: items in order, segments at the rate that the device allows, events and who waits for them.
 * Segments of several streams of one GPU share it: see profiles/gpu_sharing.py.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static void drive(engine *e, stream *it);

static bool heard(const stream *it) { return it->device->host->heard; }

int32_t fill_of(int64_t solo_ns, int64_t contended_ns) {
    if (contended_ns <= solo_ns) return 0;
    if (!solo_ns) return FULL;
    int64_t fill = (int64_t)((wide)FULL * FULL_SLOWDOWN * (contended_ns - solo_ns) / solo_ns);
    return fill < FULL ? (int32_t)fill : FULL;
}

/* The oldest checkpoint has the lowest place. */
int64_t needed_from(const stream *it) {
    const host *of = it->device->host;
    if (!of->ncheckpoints) return it->head;
    const checkpoint *oldest = of->checkpoints[0];
    for (int64_t i = 0; i < oldest->nstreams; i++)
        if (oldest->streams[i].stream == it) return oldest->streams[i].saved.head;
    return it->base; /* it was created since */
}

static void append(stream *to, item what) {
    if (to->count - to->base == to->room) {
        int64_t from = needed_from(to), gone = from - to->base;
        if (2 * gone >= to->room && gone) {
            memmove(to->items, to->items + gone, (size_t)(to->count - from) * sizeof *to->items);
            to->base = from;
        }
    }
    to->items = grown(to->items, to->count - to->base, &to->room, sizeof *to->items);
    ITEM(to, to->count) = what;
    to->count++;
}

/* A device is given its first work. Time on GPUs of other ranks' numbers is booked until the rank uses its own one:
 * most of what happens there is another rank's, and here they would be idle. */
static void begin_use(engine *e, device *on) {
    host *of = on->host;
    bool uses_own = false;
    on->since_ns = e->now_ns;
    on->used = ++of->ndevices_used;
    for (const device *one = of->devices; one; one = one->next) uses_own |= one->used && one->number == of->gpu;
    for (device *one = of->devices; uses_own && one; one = one->next) {
        if (!one->used || one->number == of->gpu || one->number == of->gpu + DEVICE_APART) continue;
        account(one, e->now_ns);
        one->since_ns = NEVER;
    }
}

/* Gives an item to the stream now; an idle stream takes it up at once. */
void submit(engine *e, stream *to, item what) {
    append(to, what);
    if (to->state) return;
    device *on = to->device;
    on->busy_streams++;
    if (on->since_ns < 0) begin_use(e, on);
    drive(e, to);
}

/* ---- what listeners are told about rates ---- */

static bool is_aborted(const stream *it) { return ITEM(it, it->head).aborted; }

static void tell_wide(engine *e, stream *it, told_kind kind, int64_t at_ns, wide value) {
    int64_t values[] = {it->id, (int64_t)(uint64_t)value, (int64_t)(value >> 64)};
    tell(e, it->device->host, kind, at_ns, 3, values);
}

static void tell_rate(engine *e, stream *it) {
    wide rate = it->device->pace ? it->rate * pace_at(e, it->device->pace, e->now_ns) : it->rate;
    tell_wide(e, it, TOLD_SEGMENT_RATE, e->now_ns, rate);
}

/* How the GPU's pace has changed the rate since it was told. */
static void tell_changes(engine *e, stream *it) {
    pace *of = it->device->pace;
    if (!of || is_aborted(it)) return;
    pace_at(e, of, e->now_ns); /* so that it is known */
    for (int64_t i = part_behind(e, of, it->updated_ns); i < of->n; i++) {
        int64_t at_ns = of->parts[i].start_ns - of->origin_ns;
        if (at_ns >= e->now_ns) break;
        tell_wide(e, it, TOLD_SEGMENT_RATE, at_ns, it->rate * of->parts[i].pace);
    }
}

/* ---- what runs on a device ---- */

/* Units of the running segment that are not done; 0 or less if all are. */
wide left_of(engine *e, const stream *it) {
    return it->work_left - it->rate * paced_work(e, it->device->pace, it->updated_ns, e->now_ns);
}

/* An NCCL kernel or a segment came or went: running segments that have work left go on at other rates. */
static void change_rates(engine *e, device *it) {
    int64_t now_ns = e->now_ns, latest_ns = now_ns, computing_ns = now_ns, total = 0, working = 0;
    for (int32_t i = 0; i < it->nrunning; i++) {
        stream *one = it->running[i];
        if (left_of(e, one) <= 0) continue;
        working++;
        total += ITEM(one, one->head).fill;
        if (it->host->heard) tell_changes(e, one);
    }
    for (int32_t i = 0; i < it->nrunning; i++) {
        stream *one = it->running[i];
        wide left = left_of(e, one);
        if (left <= 0) continue;
        const item *segment = &ITEM(one, one->head);
        wide alone = (wide)(it->resident ? segment->solo_ns : segment->contended_ns) * WORK_UNIT;
        one->work_left = left;
        one->updated_ns = now_ns;
        one->rate = alone * ONE / (ONE + segment->fill * (total - segment->fill));
        int64_t end_ns = paced_end(e, it->pace, now_ns, (left + one->rate - 1) / one->rate);
        if (end_ns > latest_ns) latest_ns = end_ns;
        if (end_ns > computing_ns && !segment->copies) computing_ns = end_ns;
        /* Others go on faster when its work is done, even if its last launch comes later. */
        push(e, working == 1 && segment->floor_ns > end_ns ? segment->floor_ns : end_ns, &one->due);
    }
    it->busy_until_ns = latest_ns;
    it->computing_until_ns = computing_ns;
    if (it->host->heard)
        for (int32_t i = 0; i < it->nrunning; i++)
            if (!is_aborted(it->running[i])) tell_rate(e, it->running[i]);
}

static void start_segment(engine *e, stream *it, const item *segment) {
    device *on = it->device;
    int64_t now_ns = e->now_ns, floor_ns = segment->floor_ns;
    bool aborted = segment->aborted;
    account(on, now_ns);
    it->work_left = (wide)segment->solo_ns * segment->contended_ns * WORK_UNIT * (on->pace ? FULL_PACE : 1);
    it->updated_ns = now_ns;
    if (heard(it) && aborted) TELL(e, on->host, TOLD_NCCL_BEGAN, it->id);
    if (heard(it) && !aborted) tell_wide(e, it, TOLD_SEGMENT_BEGAN, now_ns, it->work_left);
    if (on->nrunning == on->room) {
        int64_t room = on->room;
        on->running = grown(on->running, room, &room, sizeof *on->running);
        on->room = (int32_t)room;
    }
    on->running[on->nrunning++] = it;
    if (on->nrunning > 1) {
        it->rate = 0;
        if (it->work_left)
            change_rates(e, on);
        else
            push(e, now_ns > floor_ns ? now_ns : floor_ns, &it->due);
    } else {
        int64_t end_ns = paced(e, on->pace, now_ns, on->resident ? segment->contended_ns : segment->solo_ns);
        it->rate = (wide)(on->resident ? segment->solo_ns : segment->contended_ns) * WORK_UNIT;
        if (end_ns > on->busy_until_ns) on->busy_until_ns = end_ns;
        if (end_ns > on->computing_until_ns && !segment->copies) on->computing_until_ns = end_ns;
        push(e, end_ns > floor_ns ? end_ns : floor_ns, &it->due);
    }
    if (heard(it) && !aborted) tell_rate(e, it);
}

static void start_kernel(engine *e, kernel *it) {
    device *on = it->stream->device;
    account(on, e->now_ns);
    if (++on->resident == 1 && on->nrunning) change_rates(e, on);
    if (!is_dead(on->pace, e->now_ns)) put(&e->arrived, it);
    if (on->host->heard) TELL(e, on->host, TOLD_NCCL_BEGAN, it->stream->id);
}

/* ---- events and ends of steps ---- */

/* The waiter goes on when the recording is complete. */
void await_recording(engine *e, recording *it, stream *who) {
    if (e->acting) write_undo(e->acting, UNDO_WAITER)->one = &it->object;
    int64_t room = it->room;
    it->waiters = grown(it->waiters, it->nwaiters, &room, sizeof *it->waiters);
    it->room = (int32_t)room;
    it->waiters[it->nwaiters++] = (waiter){who ? &who->object : NULL, false};
    if (who && heard(who)) TELL(e, who->device->host, TOLD_STREAM_BLOCKED, who->id, it->stream->id);
}

static void complete_recording(engine *e, recording *it) {
    host *of = it->stream->device->host;
    if (e->acting) {
        undo *entry = write_undo(e->acting, UNDO_COMPLETED);
        entry->one = &it->object;
        entry->x = it->nwaiters;
    }
    it->done_ns = e->now_ns;
    for (int32_t i = 0; of->heard && i < it->nwaiters; i++) {
        if (it->waiters[i].nobody) continue;
        if (it->waiters[i].target)
            TELL(e, of, TOLD_STREAM_UNBLOCKED, ((stream *)it->waiters[i].target)->id);
        else
            TELL(e, of, TOLD_REACHED, (int64_t)it->number);
    }
    for (int32_t i = 0; i < it->nwaiters; i++) {
        if (it->waiters[i].nobody) continue;
        if (it->waiters[i].target)
            put(&e->ready, it->waiters[i].target);
        else
            put(&e->woken, of);
    }
    it->nwaiters = 0;
}

/* All work that was enqueued before the step's marker is done now. */
void step_done(engine *e, step_end *it) {
    int64_t values[3 + SHARES] = {it->number, it->host_ns, it->counters};
    shares_of(it->host, e->now_ns, values + 3);
    tell(e, it->host, TOLD_STEP_DONE, e->now_ns, 3 + SHARES, values);
}

static void reach_step_end(engine *e, step_end *it) {
    if (e->acting) {
        undo *entry = write_undo(e->acting, UNDO_STEP);
        entry->one = &it->object;
        entry->x = it->pending;
    }
    if (!--it->pending) step_done(e, it);
}

/* ---- items in order ---- */

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
    switch (what->kind) {
    case ITEM_SEGMENT:
        it->state = BUSY;
        start_segment(e, it, what);
        return false;
    case ITEM_EVENT:
        complete_recording(e, (recording *)what->what);
        return true;
    case ITEM_WAIT:
        awaited = (recording *)what->what;
        if (awaited->done_ns >= 0) return true;
        it->state = BLOCKED;
        await_recording(e, awaited, it);
        return false;
    case ITEM_KERNEL:
        it->state = COLLECTIVE;
        start_kernel(e, (kernel *)what->what);
        return false;
    case ITEM_STEP:
        reach_step_end(e, (step_end *)what->what);
        return true;
    default:
        return true;
    }
}

/* The stream's head is free to go on; then streams that this has released. So no chain of streams recurses. */
static void drive(engine *e, stream *it) {
    for (;;) {
        while (it->head < it->count) {
            item what = ITEM(it, it->head);
            if (!pass(e, it, &what)) break;
            it->head++;
        }
        if (it->head == it->count) {
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

/* The segment at the head is done, or its work is and its last launch has not come. */
void finish_segment(engine *e, stream *it) {
    item segment = ITEM(it, it->head);
    device *on = it->device;
    account(on, e->now_ns);
    if (heard(it)) tell_changes(e, it);
    if (e->now_ns < segment.floor_ns) {
        it->work_left = it->rate = 0;
        it->updated_ns = e->now_ns;
        push(e, segment.floor_ns, &it->due);
        change_rates(e, on);
        return;
    }
    int32_t left = 0;
    for (int32_t i = 0; i < on->nrunning; i++)
        if (on->running[i] != it) on->running[left++] = on->running[i];
    bool others = on->nrunning > 1;
    on->nrunning = left;
    if (others) change_rates(e, on);
    if (heard(it)) TELL(e, on->host, segment.aborted ? TOLD_NCCL_ENDED : TOLD_SEGMENT_ENDED, it->id);
    leave(e, it, segment.launches);
}

/* The NCCL kernel at the head of its stream is done. */
void finish_kernel(engine *e, kernel *it) {
    device *on = it->stream->device;
    account(on, e->now_ns);
    if (!--on->resident && on->nrunning) change_rates(e, on);
    if (on->host->heard) TELL(e, on->host, TOLD_NCCL_ENDED, it->stream->id);
    leave(e, it->stream, 1);
}
