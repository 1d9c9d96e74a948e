/*
 * What watching threads are told about work that may be done, and when they let go of it.
 *
 * The watchdog of ProcessGroupNCCL queries each collective's end event every 100 ms. PyTorch keeps the tensors of a
 * collective whose work nobody waited for until a query has succeeded and the process group starts its next collective.
 * With DistributedDataParallel's first buckets that is a second copy of all gradients at the peak of memory.
 *
 * In the emulation the watchdog sleeps in real time, but what it finds depends on virtual time alone:
 *
 *   - A collective becomes visible as done at a launch on the same communicator, if it ended so long before that the
 *     latest look has found it. The rank asks whether it had. So memory is what it is at most; holders/least_peak.c
 *     tells what it is where looks come early.
 *   - It asks only if the collective can have ended so long ago: so much host time has passed, or the host has waited
 *     for the GPU meanwhile. Questions hold the rank up. So after a wait it asks only about collectives on blocks that
 *     no earlier one was given. Those of DistributedDataParallel's buckets are the same in each step, and nothing
 *     depends on when they are found.
 *   - The launch waits, in real time, until the watchdog has finished with those that became visible. This is not
 *     needed for collectives for whose end the program made a stream wait: PyTorch released their tensors then.
 *   - When the communicator is finalized, destroyed or aborted all its work counts as done.
 *
 * A program that makes no calls may be waiting for the watching thread, or for another rank, or for a processor of this
 * machine: no clock tells which. The coordinator knows when all ranks sleep and nothing is left to simulate, and says
 * so (AT_REST). Then all work that was given before counts as done, and the next launch waits until the watchdog has
 * finished with it.
 *
 * Other events that a watching thread queries count as done 100 ms after they were recorded. In newer versions of
 * PyTorch the program's own threads look for finished work too. What they find must not depend on whether the watchdog
 * was faster, so such a watchdog sees work as done only from AT_REST until the program's next call.
 */
#define _GNU_SOURCE
#include "streams/watch.h"
#include "core/lock.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "core/run.h"
#include "cuda/types.h"
#include "threads/host.h"
#include "op_stream/warn.h"
#include "threads/thread.h"
#include "streams/event.h"
#include "streams/wait.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QUERY_PERIOD_NS = 100000000, IDLE_LOOKS = 3, BETWEEN_LOOKS_NS = 50000000 };
/* At the latest: a period, by the clock of the fastest host. */
enum { FOUND_AFTER_NS = QUERY_PERIOD_NS / PH_FASTEST_HOST_TENTHS * 10, ASKED_EVERY_NS = 10000000 };
enum { PATIENCE_S = 60 };

struct ph_watch {
    ph_event *pending; /* in the order of their records; linked by watch_next */
    uint64_t asked_ns, asked_waits;
    uint64_t rested_at; /* the rest that its launches know of */
    bool abandoned;     /* no watchdog looks at it after all */
};

static atomic_int nvisible;             /* pending events that are visible */
static atomic_uint_fast64_t host_waits; /* of the program's threads for the GPU */
static struct {
    atomic_uint_fast64_t recording, api_calls; /* the last ones before the run was at rest; 0: it never was */
} rest;
static _Thread_local struct {
    ph_watch *watch;
    const ph_stream *stream;
    bool first_on_blocks;
} launched;
static _Thread_local struct {
    ph_event *event;
    uint64_t recording;
} seen; /* a watching thread's last event that was done */

static uint64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
/* Any of PyTorch's process groups of NCCL has a watchdog that counts time. */
static void watch_clock(void) {
    enum { MAX_FRAMES = 32 };
    void *frames[MAX_FRAMES];
    int n = backtrace(frames, MAX_FRAMES);
    for (int i = 0; i < n; i++) {
        Dl_info about;
        if (!dladdr(frames[i], &about) || !about.dli_sname || !strstr(about.dli_sname, "16ProcessGroupNCCL")) continue;
        ph_watchdog_sleeps_in(about.dli_fname);
        return;
    }
}

/* c10d::ProcessGroupNCCL, not the class of the same name in newer versions, whose own threads look for done work. */
static bool called_by_process_group(void) {
    if (UNLIKELY(ph_run.mortal)) watch_clock();
    enum { MAX_FRAMES = 32 };
    void *frames[MAX_FRAMES];
    int n = backtrace(frames, MAX_FRAMES);
    for (int i = 0; i < n; i++) {
        Dl_info about;
        if (!dladdr(frames[i], &about) || !about.dli_sname || !strstr(about.dli_sname, "4c10d16ProcessGroupNCCL"))
            continue;
        ph_watchdog_sleeps_in(about.dli_fname);
        return true;
    }
    return false;
}

/* Process groups whose waits block, as TORCH_NCCL_BLOCKING_WAIT says, have no watchdog. */
static bool waits_block(void) {
    const char *names[] = {"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value) return *value && strchr("1yYtT", *value);
    }
    return false;
}

/* A process group starts its watchdog before it creates communicators, but the thread names itself, and hundreds of
 * ranks may keep it from a processor for seconds. Without a watchdog other values of memory would be found. */
static bool has_watchdog(void) {
    enum { TRY_US = 1000, TRIES = PATIENCE_S * 1000 };
    if (waits_block()) return ph_process_has_thread("pt_nccl_watchdg");
    for (int i = 0; i < TRIES; i++) {
        if (ph_process_has_thread("pt_nccl_watchdg")) return true;
        usleep(TRY_US);
    }
    return false;
}

ph_watch *ph_watch_make(void) {
    if (!called_by_process_group() || !has_watchdog()) return NULL;
    ph_watch *watch = ph_allocate(sizeof *watch);
    *watch = (ph_watch){.pending = NULL};
    return watch;
}

void ph_watch_free(ph_watch *watch) { free(watch); }

/* ---- events ------------------------------------------------------------------------------------------------------ */
/* Under the lock. */
static void unlink_event(ph_event *event) {
    if (!event->watch) return;
    for (ph_event **at = &event->watch->pending; *at; at = &(*at)->watch_next)
        if (*at == event) {
            *at = event->watch_next;
            break;
        }
    event->watch = NULL;
    if (!event->watch_visible) return;
    atomic_fetch_sub(&nvisible, 1);
    ph_wake_all(PH_CONDITION_RELEASED);
}

/* Under the lock. */
static void show(ph_event *event) {
    if (!event->watch_visible) atomic_fetch_add(&nvisible, 1);
    event->watch_visible = true;
}

bool ph_watch_any_visible(void) { return atomic_load(&nvisible) > 0; }

void ph_watch_forget(ph_event *event) {
    if (!event->watch) return;
    ph_lock(PH_LOCK_WATCH);
    unlink_event(event);
    ph_unlock(PH_LOCK_WATCH);
}

void ph_watch_launched(ph_watch *watch, const ph_stream *stream, bool first_on_blocks) {
    launched.watch = watch;
    launched.stream = stream;
    launched.first_on_blocks = first_on_blocks;
}

void ph_watch_host_waited(void) { atomic_fetch_add(&host_waits, 1); }

void ph_watch_recorded(ph_event *event, const ph_stream *stream) {
    if (LIKELY(!event->watch && (!launched.watch || launched.stream != stream))) return;
    ph_lock(PH_LOCK_WATCH);
    unlink_event(event);
    if (launched.watch && launched.stream == stream) {
        event->watch = launched.watch;
        event->watch_visible = event->watch_waited = false;
        event->watch_first = launched.first_on_blocks;
        event->watch_host_waits = atomic_load(&host_waits);
        event->watch_next = NULL;
        ph_event **end = &event->watch->pending;
        while (*end) end = &(*end)->watch_next;
        *end = event;
        launched.watch = NULL;
    }
    ph_unlock(PH_LOCK_WATCH);
}

void ph_watch_waited(ph_event *event) {
    if (!event->watch) return;
    ph_lock(PH_LOCK_WATCH);
    event->watch_waited = true;
    ph_wake_all(PH_CONDITION_RELEASED);
    ph_unlock(PH_LOCK_WATCH);
}

/* ---- rest -------------------------------------------------------------------------------------------------------- */
void ph_told_of_rest(const unsigned char *body, size_t nbytes) {
    (void)body, (void)nbytes;
    ph_record_lock();
    atomic_store(&rest.recording, ph_last_recording());
    atomic_store(&rest.api_calls, atomic_load(&ph_counts.api_calls));
    ph_record_unlock();
}

static bool given_before_rest(const ph_event *event) {
    return event->recording && event->recording <= atomic_load(&rest.recording);
}

/* Has the program made no call since the run was at rest? */
static bool rests(void) {
    return atomic_load(&rest.recording) && atomic_load(&rest.api_calls) == atomic_load(&ph_counts.api_calls);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
/* Had the recorded event ended so early that the watchdog has found it? */
static bool found_by_now(uint64_t recording) { return ph_done_since(recording, FOUND_AFTER_NS); }

static bool waits_to_be_found(const ph_event *event, uint64_t now_ns) {
    if (event->watch_visible || event->watch_waited) return false;
    bool host_waited = event->watch_host_waits != atomic_load(&host_waits);
    return (event->watch_first && host_waited) || (int64_t)(now_ns - event->clock_ns) >= FOUND_AFTER_NS;
}

/* Recordings for whose end nobody waited and that may have been found by now, the earliest first. */
static uint64_t *candidates(const ph_watch *watch, uint64_t now_ns, size_t *count) {
    size_t n = 0;
    ph_lock(PH_LOCK_WATCH);
    for (const ph_event *event = watch->pending; event; event = event->watch_next)
        n += waits_to_be_found(event, now_ns);
    uint64_t *found = n ? ph_allocate(n * sizeof *found) : NULL;
    *count = n;
    n = 0;
    for (const ph_event *event = watch->pending; event; event = event->watch_next)
        if (waits_to_be_found(event, now_ns)) found[n++] = event->recording;
    ph_unlock(PH_LOCK_WATCH);
    return found;
}

/* The last of these recordings that the watchdog has found; 0: none. They end in their order. */
static uint64_t last_found(const uint64_t *recordings, size_t count) {
    if (found_by_now(recordings[count - 1])) return recordings[count - 1];
    size_t found = 0; /* so many have been found, at least */
    for (size_t not_found = count - 1; found < not_found;) {
        size_t middle = (found + not_found) / 2;
        if (found_by_now(recordings[middle]))
            found = middle + 1;
        else
            not_found = middle;
    }
    return found ? recordings[found - 1] : 0;
}

/* Under the lock. Is there work that became visible and that the watchdog still holds, for which nobody waited? */
static bool held(const ph_watch *watch) {
    const ph_event *event = watch->pending;
    while (event && (!event->watch_visible || event->watch_waited)) event = event->watch_next;
    return event != NULL;
}

static void make_visible(ph_watch *watch, uint64_t last, uint64_t now_ns) {
    ph_lock(PH_LOCK_WATCH);
    for (ph_event *event = watch->pending; event; event = event->watch_next)
        if (event->recording <= last || (event->watch_waited && (int64_t)(now_ns - event->clock_ns) >= QUERY_PERIOD_NS))
            show(event);
    ph_unlock(PH_LOCK_WATCH);
}

/* Until the watchdog has finished with the visible work. The thread sleeps, but not until another rank continues. */
static void wait_for_watchdog(ph_watch *watch) {
    ph_lock(PH_LOCK_WATCH);
    int status = 0;
    if (held(watch)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE_S;
        char name[PH_THREAD_NAME_NBYTES];
        ph_thread_call_awake(name);
        ph_thread_blocked(1);
        while (held(watch) && status == 0) status = ph_wait(PH_CONDITION_RELEASED, &until);
        ph_thread_blocked(-1);
        ph_thread_rename(name);
    }
    ph_unlock(PH_LOCK_WATCH);
    if (status != ETIMEDOUT) return;
    watch->abandoned = true;
    ph_warn_once("NCCL's watchdog", "NCCL's watchdog does not look at finished work: memory that it keeps alive may "
                                    "vary between runs");
}

void ph_watch_launch(ph_watch *watch) {
    uint64_t now_ns = ph_clock_estimate();
    if (!watch || watch->abandoned || !ph_run.started || ph_run.finished) return;
    uint64_t waits = atomic_load(&host_waits), rested_at = atomic_load(&rest.recording);
    if (now_ns - watch->asked_ns < ASKED_EVERY_NS && waits == watch->asked_waits && rested_at == watch->rested_at)
        return;
    if (rested_at != watch->rested_at) make_visible(watch, rested_at, now_ns);
    watch->rested_at = rested_at;
    watch->asked_ns = now_ns;
    watch->asked_waits = waits;
    size_t count;
    uint64_t *recordings = candidates(watch, now_ns, &count);
    make_visible(watch, count ? last_found(recordings, count) : 0, now_ns);
    free(recordings);
    wait_for_watchdog(watch);
}

void ph_watch_end(ph_watch *watch) {
    if (!watch) return;
    ph_lock(PH_LOCK_WATCH);
    for (ph_event *event = watch->pending; event; event = event->watch_next) show(event);
    ph_unlock(PH_LOCK_WATCH);
}

/* ---- watching threads -------------------------------------------------------------------------------------------- */
bool ph_watch_program_is_idle(void) {
    static _Thread_local uint64_t seen_calls, looked_at_ns;
    static _Thread_local int quiet;
    uint64_t calls = atomic_load(&ph_counts.api_calls), now_ns = real_ns();
    if (calls != seen_calls || ph_threads_blocked()) {
        seen_calls = calls;
        quiet = 0;
    } else if (now_ns - looked_at_ns >
               BETWEEN_LOOKS_NS) { /* counts once per round, however many events the thread queries in it */
        quiet++;
        looked_at_ns = now_ns;
    }
    /* A program whose threads wait for a processor is not idle. */
    return quiet >= IDLE_LOOKS && ph_other_threads_sleep();
}

/* The watchdog puts the tensors of done work aside before it calls the library again. */
void ph_watch_step(void) {
    if (LIKELY(!seen.event)) return;
    ph_lock(PH_LOCK_WATCH);
    if (seen.event->recording == seen.recording) unlink_event(seen.event);
    ph_unlock(PH_LOCK_WATCH);
    seen.event = NULL;
}

static bool visible(ph_event *event) {
    ph_lock(PH_LOCK_WATCH);
    bool done = event->watch && event->watch_visible;
    ph_unlock(PH_LOCK_WATCH);
    if (UNLIKELY(ph_stalled())) {
        if (!ph_stalled_done(event->recording)) return false;
    } else if (!done && !ph_run.finished && !given_before_rest(event))
        return false;
    seen.event = event;
    seen.recording = event->recording;
    return true;
}

bool ph_watch_done(ph_event *event) {
    ph_watch_step();
    if (event->watch) return visible(event);
    if (UNLIKELY(ph_stalled()) && !ph_run.finished) return ph_stalled_done(event->recording);
    /* A newer watchdog counts the time of work from the instant at which it finds that the work has begun, by its own
     * clock. So it finds no work begun before that clock is virtual. */
    if (UNLIKELY(ph_run.mortal) && !ph_run.finished && ph_thread_kind() == PH_THREAD_HELPS) return false;
    if (ph_run.finished) return true;
    if (ph_thread_kind() == PH_THREAD_HELPS) return rests() && given_before_rest(event);
    return given_before_rest(event) || (int64_t)(ph_clock_estimate() - event->clock_ns) >= QUERY_PERIOD_NS;
}
