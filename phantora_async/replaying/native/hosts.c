/* What each row does when its host reaches it: see virtual_time/hosts.py. */
#include "engine.h"

enum { BY_ID = 64 };
#define FOR_EVER ((int64_t)1 << 40) /* turns */

enum { STOPS, GOES_ON, BAD = -1 };

static int bad(engine *e, const char *why) {
    e->bad = why;
    return BAD;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------
 */

static void set_state(engine *e, host *it, host_state state) {
    for (device *one = it->devices; one; one = one->next)
        if (one->used) account(one, e->now_ns);
    it->state = state;
}

static int block(engine *e, host *it, host_state state) {
    set_state(e, it, state);
    return STOPS;
}

int64_t next_of(engine *e, const host *it) {
    if (it->retry || it->cursor >= it->program->nrows) return it->clock_ns;
    const row *next = &it->program->rows[it->cursor];
    bool sleeps = next->kind == HOST_ADVANCE && next->values[0];
    if (it->known && next->kind == QUERY) return it->clock_ns;
    return paced(e, sleeps ? NULL : it->pace, it->clock_ns, (int64_t)next->host_ns);
}

static void push_host(engine *e, int64_t at_ns, host *it) { push(e, at_ns, &it->due, ((int64_t)1 << 40) + it->rank); }

void wake(engine *e, host *it) {
    set_state(e, it, RUNNING);
    it->clock_ns = e->now_ns;
    push_host(e, next_of(e, it), it);
}

static bool fits(engine *e, host *it, stream *on, int64_t launches) {
    if (on->launches + launches <= e->in.depth || !on->launches) return true;
    on->queue_limit = e->in.depth > launches ? e->in.depth - launches : 0;
    it->retry = true;
    block(e, it, WAITS_QUEUE);
    return false;
}

/* ---- finding ------------------------------------------------------------------------------------------------------
 */

static stream *stream_of(host *it, uint32_t id) {
    if (id < BY_ID) return it->by_id[id];
    stream *one = it->streams;
    while (one && one->id < id) one = one->next;
    return one && one->id == id ? one : NULL;
}

static recording *recording_of(host *it, uint64_t number) {
    if (number >= (uint64_t)it->program->nrecordings || !it->recordings[number].stream) return NULL;
    return &it->recordings[number];
}

static device *device_of(host *it, int64_t number) {
    device *one = it->devices;
    while (one && one->number != number) one = one->next;
    return one;
}

static pace *pace_of(engine *e, int64_t rank, int64_t number) {
    for (int64_t i = 0; i < e->in.ndevice_paces; i++) {
        const int32_t *one = &e->in.device_paces[3 * i];
        if (one[0] == rank && one[1] == number) return &e->paces[one[2]];
    }
    return NULL;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------
 */

static int create_stream(engine *e, host *it, const row *what) {
    if (!what->stream || stream_of(it, what->stream)) return bad(e, "a stream is created twice");
    device *on = device_of(it, (int64_t)what->values[0]);
    if (!on) {
        on = take(e, sizeof *on);
        *on = (device){.host = it,
                       .number = (int64_t)what->values[0],
                       .pace = pace_of(e, it->rank, (int64_t)what->values[0]),
                       .since_ns = -1,
                       .room_parts = e->in.parts,
                       .width_ns = ((int64_t)1 << 27) / e->in.parts};
        device **end = &it->devices;
        while (*end) end = &(*end)->next;
        *end = on;
    }
    stream *made = take(e, sizeof *made);
    *made = (stream){.device = on, .id = what->stream, .queue_limit = -1};
    made->due = (event){.place = -1, .target = made};
    put(&e->streams, made);
    if (what->stream < BY_ID) it->by_id[what->stream] = made;
    stream **at = &it->streams;
    while (*at && (*at)->id < made->id) at = &(*at)->next;
    made->next = *at;
    *at = made;
    return GOES_ON;
}

static int destroy_stream(engine *e, host *it, const row *what) {
    stream *gone = stream_of(it, what->stream);
    if (!gone) return bad(e, "a stream that is not there is destroyed");
    if (what->stream < BY_ID) it->by_id[what->stream] = NULL;
    stream **at = &it->streams;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    return GOES_ON;
}

static int launch_segment(engine *e, host *it, stream *on, const row *what) {
    int64_t launches = (int64_t)what->values[0], solo_ns = (int64_t)what->values[1];
    int64_t contended_ns = (int64_t)what->values[2];
    if (!fits(e, it, on, launches)) return STOPS;
    on->launches += launches;
    if (contended_ns < solo_ns) contended_ns = solo_ns;
    int64_t tail_ns = (int64_t)what->values[3], after_ns = tail_ns - (int64_t)what->values[4];
    if (after_ns < 0) after_ns = 0;
    int64_t launched_ns = paced(e, it->pace, e->now_ns, after_ns);
    submit(e, on,
           (item){.kind = ITEM_SEGMENT,
                  .launches = (int32_t)launches,
                  .solo_ns = solo_ns,
                  .contended_ns = contended_ns,
                  .floor_ns = paced(e, on->device->pace, launched_ns, tail_ns - after_ns),
                  .fill = fill_of(solo_ns, contended_ns)});
    return GOES_ON;
}

static int record_event(engine *e, host *it, stream *on, const row *what) {
    if (what->values[0] >= (uint64_t)it->program->nrecordings) return bad(e, "an event has no number");
    recording *made = &it->recordings[what->values[0]];
    *made = (recording){.done_ns = -1, .stream = on};
    if (on->state)
        submit(e, on, (item){.kind = ITEM_EVENT, .what = made});
    else
        made->done_ns = e->now_ns;
    return GOES_ON;
}

static int wait_on_stream(engine *e, host *it, stream *on, const row *what) {
    recording *awaited = recording_of(it, what->values[0]);
    if (!awaited) return bad(e, "an event that was not recorded is waited for");
    if (awaited->done_ns < 0) submit(e, on, (item){.kind = ITEM_WAIT, .what = awaited});
    return GOES_ON;
}

static int wait_on_host(engine *e, host *it, const row *what) {
    if (what->values[0] == SCOPE_EVENT) {
        recording *awaited = recording_of(it, what->values[1]);
        if (!awaited) return bad(e, "an event that was not recorded is waited for");
        if (awaited->done_ns >= 0) return GOES_ON;
        await_recording(e, awaited, it, true);
        it->cursor++;
        return block(e, it, WAITS_EVENT);
    }
    if (what->values[0] == SCOPE_STREAM) {
        stream *awaited = stream_of(it, what->stream);
        if (!awaited) return bad(e, "a stream that is not there is waited for");
        if (!awaited->state) return GOES_ON;
        awaited->host_waits = true;
        it->cursor++;
        return block(e, it, WAITS_STREAM);
    }
    if (what->values[0] != SCOPE_DEVICE) return bad(e, "a wait has no scope");
    device *awaited = device_of(it, what->stream);
    if (!awaited || !awaited->busy_streams) return GOES_ON;
    awaited->host_waits = true;
    it->cursor++;
    return block(e, it, WAITS_DEVICE);
}

static int launch_kernel(engine *e, host *it, stream *on, const row *what) {
    int64_t number = (int64_t)what->values[0];
    if (e->in.kernels[number] == e->in.kernels[number + 1]) return GOES_ON;
    if (!fits(e, it, on, 1)) return STOPS;
    on->launches++;
    submit(e, on, (item){.kind = ITEM_KERNEL, .what = make_kernel(e, it, on, number)});
    return GOES_ON;
}

static int end_step(engine *e, host *it) {
    step_end *made = take(e, sizeof *made);
    *made =
        (step_end){.host = it, .number = it->steps++, .host_ns = e->now_ns, .device_ns = -1, .counters = it->counters};
    for (stream *one = it->streams; one; one = one->next) made->pending += one->state != IDLE;
    if (!made->pending) {
        put(&e->ended, made);
        return GOES_ON;
    }
    int64_t left = made->pending;
    for (stream *one = it->streams; one && left; one = one->next)
        if (one->state != IDLE) {
            submit(e, one, (item){.kind = ITEM_STEP, .what = made});
            left--;
        }
    return GOES_ON;
}

static int create_comm(engine *e, host *it) {
    int32_t number = it->program->creations[it->created];
    creation *of = &e->creations[number];
    int32_t size = e->in.sizes[number];
    if (!of->hosts) of->hosts = take(e, (size_t)size * sizeof *of->hosts);
    if (of->arrived == size) return bad(e, "too many ranks create a communicator");
    it->created++;
    of->hosts[of->arrived++] = it;
    if (of->arrived < size) {
        it->cursor++;
        return block(e, it, WAITS_COMM_CREATION);
    }
    for (int32_t i = 0; i + 1 < size; i++) put(&e->woken, of->hosts[i]);
    return GOES_ON;
}

static int note_memory(engine *e, host *it, const row *what) {
    (void)e;
    it->memory = grown(it->memory, it->nmemory, &it->memory_room, sizeof *it->memory);
    int64_t known[3] = {0};
    for (int64_t i = it->nmemory; i-- > 0;)
        if (it->memory[i].device == what->stream) {
            known[0] = it->memory[i].allocated, known[1] = it->memory[i].reserved, known[2] = it->memory[i].handed_out;
            break;
        }
    for (int i = 0; i < 3; i++)
        if ((int64_t)what->values[i] > known[i]) known[i] = (int64_t)what->values[i];
    it->memory[it->nmemory++] = (memory_change){e->now_ns, what->stream, known[0], known[1], known[2]};
    return GOES_ON;
}

/* ---- questions ----------------------------------------------------------------------------------------------------
 */

/* How long questions in a row take: virtual_time/polls.py says why. */
enum {
#define POLL(from, each_ns)
#define CLOSE(ns) CLOSE_NS = (ns),
#define TURN(ns) TURN_NS = (ns),
#include "../../virtual_time/polls.def"
#undef TURN
#undef CLOSE
#undef POLL
};

int64_t poll_ns(int64_t polls) {
    int64_t for_ns = 0;
#define CLOSE(ns)
#define TURN(ns)
#define POLL(from, each_ns)                                                                                            \
    if (polls >= from) for_ns = each_ns;
#include "../../virtual_time/polls.def"
#undef POLL
#undef TURN
#undef CLOSE
    return for_ns;
}

static bool delayed(engine *e, host *it) {
    if (it->poll_delayed) {
        it->poll_delayed = false;
        it->polled_ns = e->now_ns;
        return false;
    }
    it->polls = e->now_ns - it->polled_ns > CLOSE_NS ? 1 : it->polls + 1;
    it->polled_ns = e->now_ns;
    int64_t for_ns = poll_ns(it->polls);
    if (!for_ns) return false;
    it->poll_delayed = it->retry = true;
    it->clock_ns = e->now_ns + for_ns;
    push_host(e, it->clock_ns, it);
    return true;
}

static int read_clock(engine *e, host *it) {
    if (delayed(e, it)) return STOPS;
    it->clocks = grown(it->clocks, it->nclocks, &it->clocks_room, sizeof *it->clocks);
    it->clocks[it->nclocks++] = e->now_ns;
    return GOES_ON;
}

static int ask_elapsed(engine *e, host *it, const row *what) {
    recording *start = recording_of(it, what->values[0]), *end = recording_of(it, what->values[1]);
    if (!start || !end) return bad(e, "an event that was not recorded is asked for");
    bool ready = start->done_ns >= 0 && end->done_ns >= 0;
    if (!ready && delayed(e, it)) return STOPS;
    it->elapsed = grown(it->elapsed, it->nelapsed, &it->elapsed_room, 2 * sizeof *it->elapsed);
    it->elapsed[2 * it->nelapsed] = ready ? end->done_ns - start->done_ns : 0;
    it->elapsed[2 * it->nelapsed++ + 1] = ready;
    return GOES_ON;
}

/*
 * A loop that ended when the work was complete ends so here, too, on whatever machine: replaying/loops.py has marked
 * its questions. values[4]: how many follow in the loop. values[5]: 0: it is in none; else 1 + how many more turns take
 * no longer than the host needs.
 */
static int answer_query(engine *e, host *it, const row *what, bool done) {
    (void)e;
    if (done && what->values[5]) it->known = (int64_t)what->values[4];
    it->queries = grown(it->queries, it->nqueries, &it->queries_room, sizeof *it->queries);
    it->queries[it->nqueries++] = done;
    return GOES_ON;
}

static int64_t turns_by(const turns *of, int64_t at_ns) {
    return at_ns <= of->first_ns ? 1 : 1 + (at_ns - of->first_ns + of->each_ns - 1) / of->each_ns;
}

/* A loop's questions that wait for work are not woken by it any more. */
static void stop_waiting(host *it, const row *what) {
    if (what->values[0] == SCOPE_EVENT) {
        recording *of = it->awaited;
        it->awaited = NULL;
        if (!of) return;
        for (waiter **at = &of->waiters; *at; at = &(*at)->next)
            if ((*at)->target == it) {
                *at = (*at)->next;
                return;
            }
    } else if (what->values[0] == SCOPE_STREAM) {
        stream_of(it, what->stream)->host_waits = false;
    } else {
        device_of(it, what->stream)->host_waits = false;
    }
}

static int start_waiting(engine *e, host *it, const row *what) {
    if (what->values[0] == SCOPE_EVENT) {
        it->awaited = recording_of(it, what->values[1]);
        await_recording(e, it->awaited, it, true);
        return block(e, it, WAITS_EVENT);
    }
    if (what->values[0] == SCOPE_STREAM) {
        stream_of(it, what->stream)->host_waits = true;
        return block(e, it, WAITS_STREAM);
    }
    device_of(it, what->stream)->host_waits = true;
    return block(e, it, WAITS_DEVICE);
}

static int64_t turn_ns(const row *what) { return (int64_t)what->host_ns > TURN_NS ? (int64_t)what->host_ns : TURN_NS; }

static bool is_last(const row *what) { return what->values[5] && !what->values[4]; }

/* The turns of the next row, which asks for many at once, or is the last one of a loop that goes on here. */
static turns turns_of(const engine *e, const row *what) {
    int64_t host_ns = (int64_t)what->host_ns, each_ns = turn_ns(what), count = (int64_t)what->values[3];
    int64_t more = (int64_t)what->values[5] - 1;
    if (count) return (turns){e->now_ns + each_ns - host_ns, each_ns, is_last(what) ? FOR_EVER : count, false};
    if (more && host_ns) return (turns){e->now_ns + host_ns, host_ns, more, true};
    return (turns){e->now_ns + each_ns, each_ns, FOR_EVER, false};
}

/* As Hosts._turns in virtual_time/hosts.py. */
static int ask_turns(engine *e, host *it, const row *what, bool done) {
    turns *of = &it->asking;
    if (!of->each_ns) *of = turns_of(e, what);
    if (it->state == WAITS_EVENT || it->state == WAITS_STREAM || it->state == WAITS_DEVICE) {
        stop_waiting(it, what);
        set_state(e, it, RUNNING);
    }
    it->awaited = NULL;
    if (!done && of->then_slower && e->now_ns >= of->first_ns + (of->count - 1) * of->each_ns)
        *of = (turns){e->now_ns + turn_ns(what), turn_ns(what), FOR_EVER, false};
    int64_t number = done ? turns_by(of, e->now_ns) : of->count;
    int64_t until_ns = of->first_ns + (number - 1) * of->each_ns;
    if (until_ns <= e->now_ns) {
        of->each_ns = 0;
        return answer_query(e, it, what, done);
    }
    it->retry = true;
    push_host(e, until_ns, it);
    if (!done) return start_waiting(e, it, what);
    it->clock_ns = until_ns;
    return STOPS;
}

static int ask_query(engine *e, host *it, const row *what) {
    bool done;
    uint64_t since_ns = what->values[2];
    if (it->known) {
        int64_t left = it->known - 1;
        answer_query(e, it, what, true);
        it->known = left;
        return GOES_ON;
    }
    if (what->values[0] == SCOPE_EVENT) {
        recording *of = recording_of(it, what->values[1]);
        if (!of) return bad(e, "an event that was not recorded is asked for");
        done = of->done_ns >= 0 && of->done_ns <= e->now_ns - (int64_t)since_ns;
    } else if (what->values[0] == SCOPE_STREAM) {
        stream *of = stream_of(it, what->stream);
        if (!of) return bad(e, "a stream that is not there is asked for");
        done = !of->state;
    } else {
        device *of = device_of(it, what->stream);
        done = !of || !of->busy_streams;
    }
    if (what->values[3] || it->asking.each_ns) return ask_turns(e, it, what, done);
    if (!done && !since_ns && delayed(e, it)) return STOPS;
    if (!done && is_last(what)) return ask_turns(e, it, what, done);
    return answer_query(e, it, what, done);
}

/* ---- sleeps where no record tells ---------------------------------------------------------------------------------
 */

static int sleep_outside(engine *e, host *it, const row *what) {
    if (!what->values[0]) { /* no answer ends it */
        if (it->state == PASSED_OVER) {
            set_state(e, it, RUNNING);
            return GOES_ON;
        }
        set_state(e, it, PASSED_OVER);
        it->retry = true;
        it->clock_ns += (int64_t)what->values[1];
        push_host(e, it->clock_ns, it);
        return STOPS;
    }
    gate *at = &e->gates[what->values[0] - 1];
    if (at->open) return GOES_ON;
    waiter *made = take(e, sizeof *made);
    *made = (waiter){.next = at->waiting, .target = it};
    at->waiting = made;
    it->cursor++;
    return block(e, it, PASSED_OVER);
}

static int open_gate(engine *e, const row *what) {
    gate *at = &e->gates[what->values[0] - 1];
    at->open = true;
    for (waiter *one = at->waiting; one; one = one->next) put(&e->woken, one->target);
    at->waiting = NULL;
    return GOES_ON;
}

int execute_row(engine *e, host *it, const row *what) {
    stream *on = NULL;
    switch (what->kind) {
    case SEGMENT:
    case EVENT_RECORD:
    case STREAM_WAIT:
    case NCCL_LAUNCH:
        on = stream_of(it, what->stream);
        if (!on) return bad(e, "a stream that is not there is given work");
        break;
    default:
        break;
    }
    switch (what->kind) {
    case SEGMENT:
        return launch_segment(e, it, on, what);
    case EVENT_RECORD:
        return record_event(e, it, on, what);
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
        return read_clock(e, it);
    case HOST_ADVANCE:
    case COMM_DESTROY:
        return GOES_ON;
    case STREAM_CREATE:
        return create_stream(e, it, what);
    case STREAM_DESTROY:
        return destroy_stream(e, it, what);
    case COMM_INIT:
    case COMM_SPLIT:
        return create_comm(e, it);
    case MEMORY:
        return note_memory(e, it, what);
    case COUNTERS:
        it->counters++;
        return GOES_ON;
    case MARKER:
        return what->values[0] == MARKER_STEP ? end_step(e, it) : GOES_ON;
    case OUTSIDE:
        return sleep_outside(e, it, what);
    case OPENS:
        return open_gate(e, what);
    case BYE:
        it->cursor++;
        return block(e, it, FINISHED);
    case STEPS_DONE:
        it->cursor++;
        return block(e, it, HELD);
    default:
        return bad(e, "a row of a kind that is not known");
    }
}
