/* What each row does when its host reaches it: the host side of CUDA, in virtual time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* No working rank sends such a row. */
static outcome bad(engine *e, const host *it, const char *why, uint64_t number) {
    e->bad_rank = it->rank;
    snprintf(e->bad, sizeof e->bad, why, number);
    return BAD;
}

/* ---- waiting ---- */

void set_state(engine *e, host *it, host_state state) {
    for (device *one = it->devices; one; one = one->next)
        if (one->used) account(one, e->now_ns);
    it->state = state;
}

static int64_t number_of(wait_kind wait, const void *it) {
    switch (wait) {
    case FOR_STREAM:
        return ((const stream *)it)->id;
    case FOR_RECORDING:
        return (int64_t)((const recording *)it)->number;
    case FOR_DEVICE:
        return ((const device *)it)->number;
    default:
        return -1;
    }
}

void block(engine *e, host *it, host_state state, wait_kind wait, void *waits_for) {
    if (it->heard) TELL(e, it, TOLD_BLOCKED, state, number_of(wait, waits_for));
    set_state(e, it, state);
    it->wait = wait;
    it->waits_for = waits_for;
}

static outcome stop_at(engine *e, host *it, host_state state, wait_kind wait, void *waits_for) {
    block(e, it, state, wait, waits_for);
    return STOPS;
}

static void wait_no_more(host *it) {
    it->wait = FOR_NOTHING;
    it->waits_for = NULL;
}

/* The host goes on at this instant. */
void wake(engine *e, host *it) {
    if (it->heard) tell(e, it, TOLD_WOKEN, e->now_ns, 0, NULL);
    set_state(e, it, RUNNING);
    wait_no_more(it);
    it->clock_ns = e->now_ns;
    push(e, next_of(e, it), &it->due);
}

/* Is the time before this row one in which the host does nothing, so that a slow host takes no longer? */
static bool sleeps(const row *what) {
    return what->kind == OUTSIDE || what->kind == OPENS || what->kind == UNSEEN ||
           (what->kind == HOST_ADVANCE && what->values[0]);
}

/* When its next row is due. If that has not come: its clock, the row can be no earlier. */
int64_t next_of(engine *e, const host *it) {
    if (it->retry || it->cursor >= it->nrows) return it->clock_ns;
    const row *next = &it->rows[it->cursor];
    if (it->known && next->kind == QUERY) return it->clock_ns;
    if (!it->pace) return it->clock_ns + (int64_t)next->host_ns;
    int64_t due_ns =
        sleeps(next) ? it->clock_ns + (int64_t)next->host_ns : paced(e, it->pace, it->clock_ns, (int64_t)next->host_ns);
    return is_dead(it->pace, due_ns) ? NEVER : due_ns;
}

int64_t facts_done(const host *it) { return it->forgotten + it->cursor; }

void free_rows(const host *it, int64_t from, int64_t until) {
    for (int64_t i = from; it->fed && i < until; i++)
        if (it->fed[i].kind == NCCL_LAUNCH && it->fed[i].values[1] > 1) free((void *)(uintptr_t)it->fed[i].values[0]);
}

/* Rows before number `needed` will not be executed again; they are dropped when there are many. The last one stays: the
 * host may wait in it. */
void forget_rows(host *it, int64_t needed) {
    enum { KEPT = 1024 };
    int64_t count = needed - 1 - it->forgotten;
    if (count <= KEPT || it->program) return;
    free_rows(it, 0, count);
    memmove(it->fed, it->fed + count, (size_t)(it->nrows - count) * sizeof *it->fed);
    it->nrows -= count;
    it->cursor -= count;
    it->forgotten += count;
}

/* The host waits no more: its GPU is dead, or the turns of its loop are over. */
static void go_on(engine *e, host *it) {
    if (it->wait == FOR_NOTHING) return;
    if (it->wait == FOR_RECORDING) {
        recording *of = it->waits_for;
        for (int32_t i = 0; i < of->nwaiters; i++) {
            if (of->waiters[i].target || of->waiters[i].nobody) continue;
            if (e->acting) {
                undo *entry = write_undo(e->acting, UNDO_UNWAITED);
                entry->one = &of->object;
                entry->x = i;
            }
            of->waiters[i].nobody = true;
            break;
        }
    } else if (it->wait == FOR_STREAM) {
        ((stream *)it->waits_for)->host_waits = false;
    } else if (it->wait == FOR_DEVICE) {
        ((device *)it->waits_for)->host_waits = false;
    }
    set_state(e, it, RUNNING);
    wait_no_more(it);
}

/* Is there room for so many launches? If not, the host waits for it: for an empty stream if they never fit. */
static bool fits(engine *e, host *it, stream *on, int64_t launches) {
    if (on->launches + launches <= e->depth || !on->launches) return true;
    if (is_dead(on->device->pace, e->now_ns)) {
        on->queue_limit = -1;
        go_on(e, it);
        return true;
    }
    on->queue_limit = e->depth > launches ? e->depth - launches : 0;
    push_at_death(e, it, on->device);
    it->retry = true;
    block(e, it, WAITS_QUEUE, FOR_STREAM, on);
    return false;
}

/* ---- finding ---- */

/* Place of the first stream with this number or a larger one. */
static int64_t place_of(const host *it, int64_t id) {
    int64_t first = 0, behind = it->nstreams;
    while (first < behind) {
        int64_t middle = (first + behind) / 2;
        if (it->streams[middle]->id < id)
            first = middle + 1;
        else
            behind = middle;
    }
    return first;
}

stream *stream_of(const host *it, uint32_t id) {
    for (int64_t i = place_of(it, id); i < it->nstreams && it->streams[i]->id == id; i++)
        if (!it->streams[i]->destroyed) return it->streams[i];
    return NULL;
}

static device *device_of(const host *it, int64_t number) {
    device *one = it->devices;
    while (one && one->number != number) one = one->next;
    return one && one->there ? one : NULL;
}

static const char NO_STREAM[] = "stream %" PRIu64 " was never created, or is destroyed";
static const char NO_RECORDING[] = "recording %" PRIu64 " was never made, or is dropped";

/* ---- streams and events ---- */

static device *see_device(engine *e, host *it, int64_t number) {
    device **at = &it->devices;
    while (*at && (*at)->number != number) at = &(*at)->next;
    if (!*at) {
        device *made = *at = take(sizeof *made);
        *made = (device){.host = it, .number = number, .parts = e->parts};
        made->since_ns = -1;
        reset_samples(made);
        for (int64_t i = 0; i < e->ndevice_paces; i++) {
            const int32_t *one = &e->device_paces[3 * i];
            if (&e->hosts[one[0]] == it && one[1] == number) made->pace = &e->paces[one[2]];
        }
    }
    (*at)->there = true;
    return *at;
}

static outcome create_stream(engine *e, host *it, const row *what) {
    if (!what->stream || stream_of(it, what->stream))
        return bad(e, it, "stream %" PRIu64 " created twice", what->stream);
    stream *made = (stream *)make(e, A_STREAM, sizeof *made);
    made->device = see_device(e, it, (int64_t)what->values[0]);
    made->id = what->stream;
    made->queue_limit = -1;
    made->due = (event){.place = -1, .order = it->rank, .target = made};
    int64_t at = place_of(it, made->id);
    it->streams = grown(it->streams, it->nstreams, &it->streams_room, sizeof *it->streams);
    memmove(it->streams + at + 1, it->streams + at, (size_t)(it->nstreams - at) * sizeof *it->streams);
    it->streams[at] = made;
    it->nstreams++;
    if (e->acting) {
        undo *entry = write_undo(e->acting, UNDO_STREAM_CREATED);
        entry->one = &made->object;
        entry->host = it;
    }
    if (it->heard) TELL(e, it, TOLD_STREAM_CREATED, made->device->number, made->id);
    return GOES_ON;
}

static outcome destroy_stream(engine *e, host *it, const row *what) {
    stream *gone = stream_of(it, what->stream);
    if (!gone) return bad(e, it, NO_STREAM, what->stream);
    gone->destroyed = true; /* its work goes on to its end */
    return GOES_ON;
}

/* The segment's earliest end: the launch from which tail_ns is counted comes at the host's pace, the work behind it is
 * done at the GPU's. Another launch of the segment may then leave less room. It is not known here: the segment ends no
 * earlier than all of its work at the GPU's pace. */
static int64_t floor_of(engine *e, host *it, device *on, const row *what) {
    int64_t tail_ns = (int64_t)what->values[3], after_ns = tail_ns - (int64_t)what->values[4];
    if (!it->pace && !on->pace) return e->now_ns + tail_ns;
    if (after_ns < 0) after_ns = 0;
    int64_t launched_ns = paced(e, it->pace, e->now_ns, after_ns);
    int64_t end_ns = paced(e, on->pace, launched_ns, tail_ns - after_ns);
    return end_ns < NEVER ? end_ns : NEVER;
}

static outcome launch_segment(engine *e, host *it, stream *on, const row *what) {
    int64_t launches = (int64_t)what->values[0], solo_ns = (int64_t)what->values[1];
    int64_t contended_ns = (int64_t)what->values[2];
    if (!fits(e, it, on, launches)) return STOPS;
    on->launches += launches;
    bool copies = !contended_ns; /* nothing beside them slows copies, see SEGMENT in records.def */
    if (contended_ns < solo_ns) contended_ns = solo_ns;
    item made = {.kind = ITEM_SEGMENT,
                 .launches = (int32_t)launches,
                 .solo_ns = solo_ns,
                 .contended_ns = contended_ns,
                 .floor_ns = floor_of(e, it, on->device, what),
                 .copies = copies,
                 .fill = fill_of(solo_ns, contended_ns)};
    if (it->heard) {
        int64_t tail_work_ns = (int64_t)what->values[4], content = (int64_t)what->values[5];
        TELL(e, it, TOLD_SEGMENT_LAUNCHED, on->device->number, on->id, content, (int64_t)what->values[1], tail_work_ns);
    }
    submit(e, on, made);
    return GOES_ON;
}

static outcome drop_recording(engine *e, host *it, uint64_t number) {
    recording *gone = recording_of(it, number);
    if (!gone) return bad(e, it, "recording %" PRIu64 " dropped, but was never made", number);
    lose_recording(it, number);
    if (e->acting) {
        undo *entry = write_undo(e->acting, UNDO_DROPPED);
        entry->one = &gone->object;
        entry->host = it;
    }
    return GOES_ON;
}

static outcome drop_named(engine *e, host *it, const row *what) {
    for (int i = 4; i < 6; i++)
        if (what->values[i] && drop_recording(e, it, what->values[i]) == BAD) return BAD;
    return GOES_ON;
}

static outcome record_event(engine *e, host *it, stream *on, const row *what) {
    uint64_t number = what->values[0];
    if (number == UINT64_MAX || recording_of(it, number)) return bad(e, it, "recording %" PRIu64 " made twice", number);
    recording *made = (recording *)make(e, A_RECORDING, sizeof *made);
    made->stream = on;
    made->number = number;
    made->done_ns = -1;
    keep_recording(it, made);
    if (e->acting) {
        undo *entry = write_undo(e->acting, UNDO_RECORDED);
        entry->one = &made->object;
        entry->host = it;
    }
    if (on->state)
        submit(e, on, (item){.kind = ITEM_EVENT, .what = &made->object});
    else
        made->done_ns = e->now_ns;
    return what->values[1] ? drop_recording(e, it, what->values[1]) : GOES_ON;
}

static outcome wait_on_stream(engine *e, host *it, stream *on, const row *what) {
    recording *awaited = recording_of(it, what->values[0]);
    if (!awaited) return bad(e, it, NO_RECORDING, what->values[0]);
    if (awaited->done_ns < 0) submit(e, on, (item){.kind = ITEM_WAIT, .what = &awaited->object});
    return drop_named(e, it, what);
}

typedef struct {
    wait_kind wait;
    host_state state;
    void *what;
    device *on;
} awaited;

/* What a HOST_WAIT waits for; FOR_NOTHING if it is done. */
static outcome find_awaited(engine *e, host *it, const row *what, awaited *found) {
    *found = (awaited){.wait = FOR_NOTHING};
    if (what->values[0] == SCOPE_EVENT) {
        recording *of = recording_of(it, what->values[1]);
        if (!of) return bad(e, it, NO_RECORDING, what->values[1]);
        if (of->done_ns < 0) *found = (awaited){FOR_RECORDING, WAITS_EVENT, of, of->stream->device};
    } else if (what->values[0] == SCOPE_STREAM) {
        stream *of = stream_of(it, what->stream);
        if (!of) return bad(e, it, NO_STREAM, what->stream);
        if (of->state) *found = (awaited){FOR_STREAM, WAITS_STREAM, of, of->device};
    } else if (what->values[0] == SCOPE_DEVICE) {
        device *of = device_of(it, what->stream);
        if (of && of->busy_streams) *found = (awaited){FOR_DEVICE, WAITS_DEVICE, of, of};
    } else {
        return bad(e, it, "HOST_WAIT with scope %" PRIu64, what->values[0]);
    }
    return GOES_ON;
}

/* The host is woken when that is done. */
static void begin_wait(engine *e, const awaited *what) {
    if (what->wait == FOR_RECORDING)
        await_recording(e, what->what, NULL);
    else if (what->wait == FOR_STREAM)
        ((stream *)what->what)->host_waits = true;
    else
        ((device *)what->what)->host_waits = true;
}

static outcome wait_on_host(engine *e, host *it, const row *what) {
    awaited found;
    if (find_awaited(e, it, what, &found) == BAD) return BAD;
    if (found.wait == FOR_NOTHING) return drop_named(e, it, what);
    if (is_dead(found.on->pace, e->now_ns)) {
        go_on(e, it);
        return drop_named(e, it, what);
    }
    begin_wait(e, &found);
    if (push_at_death(e, it, found.on)) {
        it->retry = true;
    } else {
        it->cursor++;
        if (drop_named(e, it, what) == BAD) return BAD;
    }
    return stop_at(e, it, found.state, found.wait, found.what);
}

/* ---- NCCL ---- */

static outcome launch_kernel(engine *e, host *it, stream *on, const row *what) {
    int64_t number = (int64_t)what->values[0];
    int64_t n = it->program ? e->tables.kernels[number + 1] - e->tables.kernels[number] : (int64_t)what->values[1];
    if (!n) return GOES_ON;
    if (!fits(e, it, on, 1)) return STOPS;
    on->launches++;
    if (it->heard) TELL(e, it, TOLD_NCCL_LAUNCHED, on->device->number, on->id);
    kernel *made = it->program ? called_kernel(e, it, on, number) : fed_kernel(e, on, what);
    submit(e, on, (item){.kind = ITEM_KERNEL, .what = &made->object});
    return GOES_ON;
}

static outcome destroy_comm(engine *e, host *it, const row *what) {
    if (!what->values[1]) return GOES_ON;
    int64_t comm = (int64_t)what->values[0];
    if (it->program) {
        if (comm < 0 || comm >= it->program->ncomms) return GOES_ON; /* the rank has never used it */
        comm = it->program->comms[comm];
    }
    abort_kernels(e, it, comm);
    return GOES_ON;
}

/* The host takes part in `n` creations, two at most, and waits until they are complete. */
static outcome create(engine *e, host *it, const row *what, int n, bool waits) {
    creation *of[2] = {NULL, NULL};
    for (int i = 0; i < n; i++) {
        int64_t number = it->program ? it->program->creations[it->created + i] : (int64_t)what->values[i] - 1;
        of[i] = e->creations[number];
        if (of[i]->narrived == of[i]->size) return bad(e, it, "more ranks create a communicator than it has", 0);
    }
    if (it->heard && n) tell(e, it, TOLD_COMM_ASKED, e->now_ns, 0, NULL);
    it->created += n;
    it->awaited[0] = it->awaited[1] = NULL;
    for (int i = 0; i < n; i++)
        if (!join_creation(e, it, of[i]) && waits) it->awaited[i] = of[i];
    creation *first = it->awaited[0] ? it->awaited[0] : it->awaited[1];
    if (!first) return GOES_ON;
    it->cursor++;
    return stop_at(e, it, WAITS_COMM_CREATION, FOR_CREATION, first);
}

/* ---- the program ---- */

static outcome hold(engine *e, host *it, host_state state) {
    it->cursor++;
    return stop_at(e, it, state, FOR_NOTHING, NULL);
}

/* Is a peak of the host larger than may be? Not after the last step, after which the run ends anyhow. */
static bool has_too_much(const engine *e, const host *it) {
    if (!e->memory_limited || it->steps == e->last_step) return false;
    for (int64_t i = 0; i < it->nmemory; i++) {
        const memory_change *one = &it->memory[i];
        if (one->allocated > e->most_memory[0] || one->reserved > e->most_memory[1] ||
            one->handed_out > e->most_memory[2])
            return true;
    }
    return false;
}

void note_generation(host *it, int64_t now_ns, int64_t kind, const uint64_t *values) {
    it->notes = grown(it->notes, it->nnotes, &it->notes_room, sizeof *it->notes);
    generation_note *made = &it->notes[it->nnotes++];
    *made = (generation_note){.at_ns = now_ns, .kind = kind};
    for (int i = 0; values && i < 3; i++) made->values[i] = (int64_t)values[i];
}

static outcome note_of_row(engine *e, host *it, const row *what) {
    note_generation(it, e->now_ns, what->kind, what->values);
    return GOES_ON;
}

static outcome mark(engine *e, host *it, const row *what) {
    if (what->values[0] != MARKER_STEP) return GOES_ON;
    if (it->nnotes) note_of_row(e, it, what);
    if (it->heard) tell(e, it, TOLD_STEP_MARKED, e->now_ns, 0, NULL);
    step_end *made = (step_end *)make(e, A_STEP, sizeof *made);
    made->host = it;
    made->number = it->steps++;
    made->host_ns = e->now_ns;
    made->counters = it->counters;
    for (int64_t i = 0; i < it->nstreams; i++)
        made->pending += !it->streams[i]->destroyed && it->streams[i]->state != IDLE;
    if (!made->pending) step_done(e, made);
    for (int64_t i = 0; i < it->nstreams; i++)
        if (!it->streams[i]->destroyed && it->streams[i]->state != IDLE)
            submit(e, it->streams[i], (item){.kind = ITEM_STEP, .what = &made->object});
    return has_too_much(e, it) ? hold(e, it, HELD) : GOES_ON;
}

static outcome note_memory(engine *e, host *it, const row *what) {
    it->memory = grown(it->memory, it->nmemory, &it->memory_room, sizeof *it->memory);
    int64_t peaks[3] = {(int64_t)what->values[0], (int64_t)what->values[1], (int64_t)what->values[2]};
    for (int64_t i = it->nmemory; i-- > 0;) {
        const memory_change *one = &it->memory[i];
        if (one->device != what->stream) continue;
        if (one->allocated > peaks[0]) peaks[0] = one->allocated;
        if (one->reserved > peaks[1]) peaks[1] = one->reserved;
        if (one->handed_out > peaks[2]) peaks[2] = one->handed_out;
        break;
    }
    it->memory[it->nmemory++] = (memory_change){e->now_ns, what->stream, peaks[0], peaks[1], peaks[2]};
    return GOES_ON;
}

generating generated_until(generating it, int64_t now_ns) {
    if (it.responses) it.busy_ns += now_ns - it.since_ns;
    if (it.responses < it.most) it.partial_ns += now_ns - it.since_ns;
    it.since_ns = now_ns;
    return it;
}

static outcome note_batch(engine *e, host *it, const row *what) {
    note_of_row(e, it, what);
    it->batch = generated_until(it->batch, e->now_ns);
    it->batch.responses = (int64_t)what->values[0];
    if (!it->batch.responses || it->batch.responses > it->batch.most) it->batch.most = it->batch.responses;
    return GOES_ON;
}

static outcome note_taken(engine *e, host *it, const row *what) {
    it->taken = grown(it->taken, it->ntaken, &it->taken_room, sizeof *it->taken);
    it->taken[it->ntaken++] = (taken_change){e->now_ns,
                                             what->stream,
                                             (int64_t)what->values[0],
                                             (int64_t)what->values[1],
                                             (int64_t)what->values[2],
                                             (int64_t)what->values[3]};
    return GOES_ON;
}

/* ---- recorded runs: sleeps where no record tells ---- */

static outcome sleep_outside(engine *e, host *it, const row *what) {
    if (!what->values[0]) { /* no answer ends it */
        if (it->state == PASSED_OVER) {
            set_state(e, it, RUNNING);
            return GOES_ON;
        }
        set_state(e, it, PASSED_OVER);
        it->retry = true;
        it->clock_ns += (int64_t)what->values[1];
        push(e, it->clock_ns, &it->due);
        return STOPS;
    }
    gate *at = &e->gates[what->values[0] - 1];
    if (at->open) return GOES_ON;
    put(&at->waiting, it);
    return hold(e, it, PASSED_OVER);
}

static outcome open_gate(engine *e, const row *what) {
    gate *at = &e->gates[what->values[0] - 1];
    at->open = true;
    for (int64_t i = 0; i < at->waiting.n; i++) put(&e->woken, at->waiting.all[i]);
    at->waiting.n = 0;
    return GOES_ON;
}

/* ---- questions ---- */

static outcome ask_elapsed(engine *e, host *it, const row *what) {
    recording *start = recording_of(it, what->values[0]), *end = recording_of(it, what->values[1]);
    if (!start || !end) return bad(e, it, NO_RECORDING, start ? what->values[1] : what->values[0]);
    bool ready = start->done_ns >= 0 && end->done_ns >= 0;
    if (!ready && delay_poll(e, it)) return STOPS;
    give_answer(e, it, ELAPSED, (int64_t)what->values[2], ready ? end->done_ns - start->done_ns : 0, ready);
    return drop_named(e, it, what);
}

/*
 * A loop that ended when the work was complete ends so in a replay, too, on whatever machine: replaying/loops.py has
 * marked its questions. values[4]: how many follow in the loop. values[5]: 0: it is in none; else 1 + how many more
 * turns take no longer than the host needs.
 */
static bool is_marked(const host *it, const row *what) { return it->program && what->values[5]; }
static bool is_last(const host *it, const row *what) { return is_marked(it, what) && !what->values[4]; }

static outcome answer_query(engine *e, host *it, const row *what, bool done, int64_t number) {
    if (done && is_marked(it, what)) it->known = (int64_t)what->values[4];
    give_answer(e, it, QUERY, (int64_t)what->values[4], done, number);
    return GOES_ON;
}

#define FOR_EVER ((int64_t)1 << 40) /* turns */

static int64_t turns_by(const turns *of, int64_t at_ns) {
    return at_ns <= of->first_ns ? 1 : 1 + (at_ns - of->first_ns + of->each_ns - 1) / of->each_ns;
}

/* The turns of the next row, which asks for many at once, or is the last one of a loop that goes on here. */
static turns turns_of(const engine *e, const host *it, const row *what) {
    int64_t host_ns = (int64_t)what->host_ns, each_ns = turn_ns(what), count = (int64_t)what->values[3];
    int64_t more = is_marked(it, what) ? (int64_t)what->values[5] - 1 : 0;
    if (count) return (turns){e->now_ns + each_ns - host_ns, each_ns, is_last(it, what) ? FOR_EVER : count, false};
    if (more && host_ns) return (turns){e->now_ns + host_ns, host_ns, more, true};
    return (turns){e->now_ns + each_ns, each_ns, FOR_EVER, false};
}

/* A loop's questions: waits until the work is done or the turns are over, whichever comes first, and then for the turn
 * in which the loop finds out. */
static outcome ask_turns(engine *e, host *it, const row *what, bool done) {
    turns *of = &it->asking;
    if (!of->each_ns) *of = turns_of(e, it, what);
    go_on(e, it);
    if (!done && of->then_slower && e->now_ns >= of->first_ns + (of->count - 1) * of->each_ns)
        *of = (turns){e->now_ns + turn_ns(what), turn_ns(what), FOR_EVER, false};
    int64_t number = done ? turns_by(of, e->now_ns) : of->count;
    int64_t until_ns = of->first_ns + (number - 1) * of->each_ns;
    if (until_ns <= e->now_ns) {
        of->each_ns = 0;
        return answer_query(e, it, what, done, number);
    }
    it->retry = true;
    push(e, until_ns, &it->due);
    awaited found = {.wait = FOR_NOTHING};
    if (!done && find_awaited(e, it, what, &found) == BAD) return BAD;
    if (found.wait == FOR_NOTHING || is_dead(found.on->pace, e->now_ns)) {
        it->clock_ns = until_ns;
        return STOPS;
    }
    begin_wait(e, &found);
    return stop_at(e, it, found.state, found.wait, found.what);
}

static outcome ask_query(engine *e, host *it, const row *what) {
    bool done;
    int64_t since_ns = (int64_t)what->values[2];
    if (it->known) {
        int64_t left = it->known - 1;
        answer_query(e, it, what, true, 1);
        it->known = left;
        return GOES_ON;
    }
    if (what->values[0] == SCOPE_EVENT) {
        recording *of = recording_of(it, what->values[1]);
        if (!of) return bad(e, it, NO_RECORDING, what->values[1]);
        done = of->done_ns >= 0 && of->done_ns <= e->now_ns - since_ns;
    } else if (what->values[0] == SCOPE_STREAM) {
        stream *of = stream_of(it, what->stream);
        if (!of) return bad(e, it, NO_STREAM, what->stream);
        done = !of->state;
    } else if (what->values[0] == SCOPE_DEVICE) {
        device *of = device_of(it, what->stream);
        done = !of || !of->busy_streams;
    } else {
        return bad(e, it, "QUERY with scope %" PRIu64, what->values[0]);
    }
    if (what->values[3] || it->asking.each_ns) return ask_turns(e, it, what, done);
    if (!done && !since_ns && delay_poll(e, it)) return STOPS;
    if (!done && is_last(it, what)) return ask_turns(e, it, what, done);
    return answer_query(e, it, what, done, 1);
}

/* As CLOCK of records.def says it. */
static int64_t told_room(const engine *e, const host *it) {
    if (it->pace) return 0;
    int64_t most = 0;
    for (int64_t i = 0; i < it->nstreams; i++)
        if (it->streams[i]->launches > most) most = it->streams[i]->launches;
    return 1 + (most < e->depth ? e->depth - most : 0);
}

static outcome read_clock(engine *e, host *it, const row *what) {
    if (delay_poll(e, it)) return STOPS;
    give_answer(e, it, CLOCK_READ, (int64_t)what->values[0], e->now_ns, told_room(e, it));
    return GOES_ON;
}

/* Does the host go on to its next row at this instant? Who stops it moves the cursor on, unless the row is to be
 * executed once more. */
outcome execute_row(engine *e, host *it, const row *what) {
    stream *on = NULL;
    switch (what->kind) {
    case SEGMENT:
    case EVENT_RECORD:
    case STREAM_WAIT:
    case NCCL_LAUNCH:
        on = stream_of(it, what->stream);
        if (!on) return bad(e, it, NO_STREAM, what->stream);
        break;
    default:
        break;
    }
    switch (what->kind) {
    case SEGMENT:
        return launch_segment(e, it, on, what);
    case EVENT_RECORD:
        return record_event(e, it, on, what);
    case RECORDING_DROP:
        return drop_recording(e, it, what->values[0]);
    case STREAM_WAIT:
        return wait_on_stream(e, it, on, what);
    case NCCL_LAUNCH:
        return launch_kernel(e, it, on, what);
    case HOST_WAIT:
        return wait_on_host(e, it, what);
    case QUERY:
        return ask_query(e, it, what);
    case ELAPSED:
        return ask_elapsed(e, it, what);
    case CLOCK_READ:
        return read_clock(e, it, what);
    case HOST_ADVANCE:
        return GOES_ON;
    case COMM_DESTROY:
        return destroy_comm(e, it, what);
    case STREAM_CREATE:
        return create_stream(e, it, what);
    case STREAM_DESTROY:
        return destroy_stream(e, it, what);
    case COMM_INIT:
    case COMM_SPLIT:
        return create(e, it, what, 1, true);
    case CONNECT:
        return create(e, it, what, (int)what->values[2], what->values[3] != 0);
    case MEMORY:
        return note_memory(e, it, what);
    case BATCH:
        return note_batch(e, it, what);
    case RESPONSE:
    case KV_BLOCKS:
    case TRAINING:
        return note_of_row(e, it, what);
    case GPU_MEMORY:
        return note_taken(e, it, what);
    case COUNTERS:
        it->counters = (int64_t)what->values[0];
        return GOES_ON;
    case MARKER:
        return mark(e, it, what);
    case TRACE:
        TELL(e, it, TOLD_TRACE, (int64_t)what->values[0]);
        return GOES_ON;
    case UNSEEN:
        if (it->heard) TELL(e, it, TOLD_UNSEEN, (int64_t)what->host_ns);
        return GOES_ON;
    case OUTSIDE:
        return sleep_outside(e, it, what);
    case OPENS:
        return open_gate(e, what);
    case BYE:
        return hold(e, it, FINISHED);
    case STEPS_DONE:
        return hold(e, it, HELD);
    default:
        return bad(e, it, "a row of kind %" PRIu64, what->kind);
    }
}
