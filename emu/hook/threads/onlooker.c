/*
 * Threads of the program that look on: they have given the GPU no work, and only ask whether work is done, wait for it,
 * or ask for the time. How often they ask, and where the program is meanwhile, depends on the speed of this machine. So
 * they move no clock, and are answered by what is known.
 *
 * The program may wait for such a thread: then nothing else moves time. When no other thread of the program has done
 * anything for half a second, what the thread asks and waits for is put to virtual time, until the program goes on. No
 * program waits for what a daemon thread asks; it may wait for one that waits for the GPU.
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
    uint64_t calls = phantora_activity();
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

static bool looks_on(ph_thread *thread, bool may_be_waited_for) {
    bool waited_for = may_be_waited_for && is_waited_for();
    thread->waited_for_at = waited_for ? 1 + phantora_activity() : 0;
    if (waited_for) return false;
    thread->clock_ns = 0; /* what it has done depends on how often it asked */
    return true;
}

bool ph_looks_on(void) {
    ph_thread *thread = ph_self();
    return UNLIKELY(thread->looks_on) && looks_on(thread, !thread->daemon);
}

bool ph_looks_on_waiting(void) {
    ph_thread *thread = ph_self();
    return UNLIKELY(thread->looks_on) && looks_on(thread, true);
}
/* How much work the GPU had been given when what the calling thread does was handed over; 1 is added. A thread that
 * gives work hands over now. */
PH_EXPORT uint64_t phantora_hands_over(void) {
    const ph_thread *thread = ph_self();
    return thread->looks_on && thread->handed_over ? thread->handed_over : 1 + atomic_load(&ph_work_given);
}
/* The calling thread begins a task that was handed over then; 0: the task has ended. */
PH_EXPORT void phantora_takes_over(uint64_t handed_over) { ph_self()->handed_over = handed_over; }

PH_EXPORT int phantora_looks_on(void) { return ph_looks_on(); }
