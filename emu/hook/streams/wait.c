/*
 * Where the host waits for the device, or asks whether it is done. A wait is a record, and the rank goes on at once;
 * only for bytes that have not arrived and for host functions that have not run it really waits; a rank that is kept in
 * step always does. A query is a question.
 */
#include "streams/wait.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "op_stream/history.h"
#include "op_stream/trace.h"
#include "threads/host.h"
#include "cuda/types.h"
#include "costs/power.h"
#include "data/data.h"
#include "device/device.h"
#include "streams/capturing.h"
#include "core/run.h"
#include "threads/thread.h"
#include "streams/host_function.h"
#include "streams/event.h"
#include "streams/watch.h"
#include "threads/onlooker.h"

#include <stdlib.h>
#include <time.h>

enum { SEEN_AFTER_NS = 100000000, BETWEEN_WAITS_NS = 5000000 };

static void wait_for(uint32_t scope, uint32_t stream, uint64_t recording) {
    if (ph_run.started && !ph_thread_is_watcher() && !ph_uncounted()) {
        struct ph_HOST_WAIT record = {.scope = scope, .stream = stream, .recording = recording};
        ph_emit_here(PH_KIND_HOST_WAIT, &record, sizeof record, NULL, 0);
        ph_watch_host_waited();
        if (UNLIKELY(ph_run.in_step)) phantora_clock_ns();
    }
    ph_data_wait_host();
    ph_host_functions_wait();
}

int ph_found_done(void) {
    ph_data_wait_host();
    ph_host_functions_wait();
    return CUDA_OK;
}

/* Traces what the call waits for, before the call's record. */
static void trace(uint32_t what, uint32_t number, uint64_t recording, uint64_t recorded) {
    if (LIKELY(!ph_tracing) || !ph_run.started || ph_thread_is_watcher()) return;
    ph_record_lock();
    ph_trace_sync(what, number, recording, recorded);
    ph_record_unlock();
}

/*
 * A thread that looks on waits for work that was given before that instant. True: the wait is over, and it was no wait
 * of the program's. False: the program waits for the thread, so the calling thread's wait is the program's.
 */
static bool waited_aside(uint64_t given_ns) {
    while (ph_looks_on_waiting()) {
        if (ph_run.finished || (int64_t)(ph_clock_estimate() - given_ns) >= SEEN_AFTER_NS) return true;
        nanosleep(&(struct timespec){.tv_nsec = BETWEEN_WAITS_NS}, NULL);
    }
    return false;
}

static void count_wait(void) { ph_host_programs_work(PH_CALL_SYNC, 1); } /* was left out: who looks on takes no time */

/*
 * The same of all work of a stream or a device. `used`: there was any.
 *
 * A task that was handed to the thread goes on while the program does. If the program has given the GPU more work
 * before it waits for the task, the task has waited for the earlier work: how much of the later work its wait would
 * include depends on this machine alone.
 */
static bool waited_for_all_aside(bool used) {
    const ph_thread *thread = ph_self();
    if (LIKELY(!thread->looks_on) || !ph_run.started || ph_thread_is_watcher()) return false;
    if (!used) return true;
    if (waited_aside(ph_clock_estimate())) return true;
    if (thread->handed_over && thread->handed_over - 1 != atomic_load(&ph_work_given)) return true;
    count_wait();
    return false;
}

/* May the host query the stream, or wait for it? */
static int observable(ph_stream *stream) {
    int status = ph_stream_usable(stream);
    if (LIKELY(!ph_captured_streams) || status) return status;
    if (!stream->capture) return ph_uncapturable();
    ph_capture_invalidate(stream);
    return CUDA_CAPTURE_UNSUPPORTED;
}

/* Notes that the GPU is idle from here on until it is given work. stream 0: all of the device. */
static void drained(int device, uint32_t stream) {
    ph_record_lock();
    ph_power_host_waited(device, stream, ph_host_clock());
    ph_record_unlock();
}

void ph_stream_wait(ph_stream *stream) {
    for (uint32_t id = UINT32_MAX; (id = ph_stream_encompassed(stream, id));) wait_for(PH_SCOPE_STREAM, id, 0);
    wait_for(PH_SCOPE_STREAM, stream->id, 0);
    drained(stream->device, stream->id);
}

int ph_stream_synchronize(ph_stream *stream) {
    int status = observable(stream);
    if (status != CUDA_OK) return status;
    if (UNLIKELY(waited_for_all_aside(ph_stream_was_used(stream)))) return ph_found_done();
    trace(PH_TRACE_STREAM_SYNC, stream->id, 0, 0);
    ph_stream_wait(stream);
    return CUDA_OK;
}

void ph_device_wait(int device) {
    wait_for(PH_SCOPE_DEVICE, (uint32_t)device, 0);
    drained(device, 0);
}

int ph_device_synchronize(int device) {
    int status = ph_device_usable();
    if (status == CUDA_OK && UNLIKELY(ph_captured_streams)) status = ph_capture_encompassed(device);
    if (status != CUDA_OK) return status;
    if (UNLIKELY(waited_for_all_aside(ph_device_was_used(device)))) return ph_found_done();
    trace(PH_TRACE_DEVICE_SYNC, (uint32_t)device, 0, 0);
    ph_device_wait(device);
    return CUDA_OK;
}

void ph_recording_synchronize(const ph_event *event) {
    bool aside = UNLIKELY(ph_self()->looks_on) && ph_run.started && !ph_thread_is_watcher();
    if (aside && waited_aside(event->clock_ns)) {
        ph_found_done();
        return;
    }
    if (aside) count_wait();
    trace(PH_TRACE_EVENT_SYNC, event->stream_id, event->recording, event->traced);
    wait_for(PH_SCOPE_EVENT, 0, event->recording);
}

/* ---- loops that ask --------------------------------------------------------------------------------------------- */

/*
 * A loop that does nothing but ask whether one work is complete (`while not event.query(): pass`; PyTorch's process
 * groups when they are destroyed) is a wait. Once it has asked LOOP_FREE times, and always as long after the time
 * before, the thread asks for many turns at once, half as many as it has asked for so far: virtual time goes on to the
 * turn that finds the work complete. A loop that gives up before has then waited too long by a third of its turns at
 * most.
 *
 * Python code may count its turns, so those before the last are answered here, one by one, and take no more time.
 * PyTorch's own code counts none: it is told the outcome at once. It is in a loop of its own only if no operator and no
 * Python function runs between its questions: its allocators ask, too, once for each call of the program's.
 */
enum { LONGEST_TURN_NS = 20000, MOST_TURNS = 1 << 30 };

struct ph_asking_loop {
    uint32_t scope, stream;
    uint64_t recording;
    uint64_t question;   /* the last one's number */
    uint64_t turns;      /* asked so far, those about earlier works included if nothing came in between */
    uint64_t asked_ns;   /* the thread's clock at the last one */
    uint64_t between_ns; /* that is how long after the one before */
    bool steady;         /* and that one was as long after the one before it */
    uint64_t age;        /* of the thread at the last one */
    uint64_t known;      /* answers that the loop has not fetched yet ... */
    bool done;           /* ... and the last of them; the others: not done */
    ph_host_mark mark;   /* of its thread, when it asked last */
};

/* On the heap, not in a thread-local variable: the C library has some 1.6 KB for the thread-local variables of all
 * libraries that are loaded after the start, and a process that has none left cannot load the hook. */
static struct ph_asking_loop *this_loop(void) {
    ph_thread *thread = ph_self();
    if (!thread->loop) thread->loop = calloc(1, sizeof *thread->loop);
    if (!thread->loop) ph_die("out of host memory");
    return thread->loop;
}

/* The thread asks this now. Returns how many turns it asks for at once; 0: one, which is none of a loop's. */
static uint32_t turns_to_ask(struct ph_asking_loop *loop, uint32_t scope, uint32_t stream, uint64_t recording,
                             uint64_t now_ns, bool torchs) {
    bool same = loop->scope == scope && loop->stream == stream && loop->recording == recording;
    if (!loop->turns || !ph_nothing_since(loop->question) || (!same && !(loop->done && loop->turns >= PH_LOOP_FREE))) {
        loop->turns = 0;
        loop->steady = false;
        loop->between_ns = UINT64_MAX;
        return 0;
    }
    if (!same) return 1; /* as far as its instant: how long a turn about this work takes is not known */
    uint64_t between_ns = now_ns - loop->asked_ns;
    bool measured = ph_cfg.host_mode == PH_HOST_MEASURED; /* no two turns are alike */
    loop->steady = measured ? between_ns < LONGEST_TURN_NS / 10 : between_ns == loop->between_ns;
    loop->between_ns = between_ns;
    if (torchs && ph_self()->age != loop->age) loop->steady = false;
    ph_self()->age = loop->age; /* a loop's turns, however many, push nothing out of the host's caches */
    if (loop->turns < PH_LOOP_FREE || !loop->steady || between_ns >= LONGEST_TURN_NS) return 0;
    uint64_t turns = loop->turns / 2 < PH_LOOP_FREE ? PH_LOOP_FREE : loop->turns / 2;
    return turns > MOST_TURNS ? MOST_TURNS : (uint32_t)turns;
}

static bool is_done(uint32_t scope, uint32_t stream, uint64_t recording) {
    struct ph_asking_loop *loop = this_loop();
    bool same = loop->scope == scope && loop->stream == stream && loop->recording == recording;
    /* The last answer held for several turns: while the program does nothing else, they need no question. */
    if (loop->known && same && ph_nothing_since(loop->question)) {
        ph_host_return_to(&loop->mark);
        return --loop->known == 0 && loop->done;
    }
    loop->known = 0;
    uint64_t now_ns = ph_host_clock();
    bool torchs = ph_torch_asks();
    struct ph_QUERY question = {.recording = recording, .scope = scope, .stream = stream};
    question.turns = turns_to_ask(loop, scope, stream, recording, now_ns, torchs);
    struct ph_DONE answer = {0};
    ph_ask(PH_KIND_QUERY, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    uint64_t turns = answer.turns ? answer.turns : 1;
    loop->scope = scope;
    loop->stream = stream;
    loop->recording = recording;
    loop->turns += turns;
    loop->question = ph_question_number();
    loop->asked_ns = now_ns;
    loop->age = ph_self()->age;
    loop->done = answer.done;
    if (turns == 1 || torchs) return answer.done;
    loop->known = turns - 1;
    ph_host_remember(&loop->mark);
    return false;
}

int ph_query(uint32_t scope, uint32_t stream, uint64_t recording) {
    if (ph_thread_is_watcher() || !ph_run.started || ph_run.finished) return CUDA_OK;
    return is_done(scope, stream, recording) ? ph_found_done() : CUDA_NOT_READY;
}

int ph_query_since(uint64_t recording, uint64_t since_ns) {
    if (ph_thread_is_watcher() || !ph_run.started || ph_run.finished) return CUDA_OK;
    return ph_done_since(recording, since_ns) ? ph_found_done() : CUDA_NOT_READY;
}

bool ph_done_since(uint64_t recording, uint64_t since_ns) {
    struct ph_QUERY question = {.recording = recording, .since_ns = since_ns, .scope = PH_SCOPE_EVENT};
    struct ph_DONE answer = {0};
    ph_ask(PH_KIND_QUERY, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    return answer.done;
}

/* Answers a thread that only looks on: work is done 100 ms after it was given. */
static bool done_since(uint64_t given_ns) {
    return ph_run.finished || (int64_t)(ph_clock_estimate() - given_ns) >= SEEN_AFTER_NS || ph_watch_program_is_idle();
}

bool ph_event_seems_done(const ph_event *event) { return done_since(event->clock_ns); }

static bool stream_seems_done(ph_stream *stream) {
    if (stream->looked_at_work != stream->work) { /* given since the last look */
        stream->looked_at_work = stream->work;
        stream->looked_at_ns = ph_clock_estimate();
    }
    return !stream->work || done_since(stream->looked_at_ns);
}

int ph_stream_query(ph_stream *stream) {
    int status = observable(stream);
    if (status == CUDA_OK && UNLIKELY(ph_looks_on())) return stream_seems_done(stream) ? CUDA_OK : CUDA_NOT_READY;
    for (uint32_t id = UINT32_MAX; status == CUDA_OK && (id = ph_stream_encompassed(stream, id));)
        status = ph_query(PH_SCOPE_STREAM, id, 0);
    return status ? status : ph_query(PH_SCOPE_STREAM, stream->id, 0);
}
