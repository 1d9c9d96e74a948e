/*
 * Threads of the program that look on: they have given the GPU no work, and only ask whether work is done, or for the
 * time. How often they ask depends on the speed of this machine. So their questions move no clock, and are answered by
 * what is known.
 *
 * The program may wait for such a thread: then nothing else moves time. When no other thread of the program has done
 * anything for half a second, the thread's questions are put to virtual time, until the program goes on. No program
 * waits for a daemon thread.
 */
#define _GNU_SOURCE
#include "threads/onlooker.h"
#include "core/run.h"
#include "threads/host.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <time.h>

enum { SECOND_NS = 1000000000, WAITED_NS = SECOND_NS / 2, WORKED_NS = 5000000 };

static uint64_t clock_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Is called by Python, on the thread, as it starts. */
PH_EXPORT void phantora_thread_looks_on(int daemon) {
    ph_thread *thread = ph_self();
    if (ph_thread_kind() != PH_THREAD_PROGRAM) return;
    thread->looks_on = true;
    thread->daemon = daemon != 0;
}

/* Does the program wait for the calling thread? */
static bool is_waited_for(void) {
    static _Thread_local struct {
        uint64_t calls, worked_ns, since_ns;
        bool waited_for;
    } seen;
    uint64_t calls = atomic_load(&ph_counts.api_calls) + atomic_load(&ph_counts.ops);
    bool quiet = calls == seen.calls && !ph_threads_blocked() && !ph_uncounted_threads();
    if (quiet && seen.waited_for) return true;
    uint64_t now_ns = clock_of(CLOCK_MONOTONIC);
    uint64_t worked_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID) - clock_of(CLOCK_THREAD_CPUTIME_ID);
    if (quiet && worked_ns - seen.worked_ns < WORKED_NS) {
        if (now_ns - seen.since_ns < WAITED_NS) return false;
        if (ph_other_threads_sleep()) return seen.waited_for = true;
    }
    seen.calls = calls;
    seen.worked_ns = worked_ns;
    seen.since_ns = now_ns;
    return seen.waited_for = false;
}

bool ph_looks_on(void) {
    ph_thread *thread = ph_self();
    if (LIKELY(!thread->looks_on) || (!thread->daemon && is_waited_for())) return false;
    thread->clock_ns = 0; /* what it has done depends on how often it asked */
    return true;
}
PH_EXPORT int phantora_looks_on(void) { return ph_looks_on(); }
