/*
 * What watching threads are told about work that may be done.
 *
 * The watchdog of ProcessGroupNCCL queries each collective's event every 100 ms, and PyTorch keeps the collective's
 * tensors alive until a query succeeds. With DistributedDataParallel's first buckets that is a second copy of all
 * gradients at the peak of memory. In the emulation this thread runs in real time and may not ask about virtual time.
 * It is told that a collective is done once the rank's clock, as far as the rank knows it without asking, is 100 ms
 * later.
 *
 * If the program is idle, outside of the library, it may be waiting for the watching thread. Then all work counts as
 * done.
 *
 * In newer versions of PyTorch the program's own threads look for finished work too. What they find must not depend on
 * whether the watchdog was faster, so such a watchdog sees work as done only while the program is idle.
 */
#include "streams/watch.h"
#include "core/counters.h"
#include "core/host.h"
#include "process/process.h"
#include "process/thread.h"

#include <stdatomic.h>
#include <time.h>

enum { QUERY_PERIOD_NS = 100000000, IDLE_LOOKS = 3, BETWEEN_LOOKS_NS = 50000000 };

static atomic_int blocked;

void ph_watch_blocked(int change) { atomic_fetch_add(&blocked, change); }

/* Has the program made no call for several rounds of this watching thread, and does no thread run? */
static bool program_is_idle(void) {
    static _Thread_local uint64_t seen_calls, looked_at_ns;
    static _Thread_local int quiet;
    uint64_t calls = atomic_load(&ph_counts.api_calls);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (calls != seen_calls || atomic_load(&blocked)) {
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

bool ph_watch_done(uint64_t recorded_at_ns) {
    if (ph_run.finished || program_is_idle()) return true;
    return ph_thread_kind() != PH_THREAD_HELPS && (int64_t)(ph_clock_estimate() - recorded_at_ns) >= QUERY_PERIOD_NS;
}
