/*
 * When a program's watching threads learn that work is done.
 *
 * NCCL's watchdog looks at each collective's event every 100 ms, and PyTorch keeps the collective's tensors alive until
 * it has seen it done: with DistributedDataParallel's first buckets, a second copy of all gradients at the peak. Its
 * thread runs in real time here and may not ask about virtual time, so it is told that a collective is done when the
 * rank's clock, as far as it is known without asking, is that much later. If the program rests, outside of the library,
 * it may be waiting for the watching thread itself: then all is done.
 *
 * Where the program's own threads look after finished work, too, and a watchdog only helps them, what they find must
 * not depend on whether it was there first: it sees nothing done unless the program rests.
 */
#include "streams/watch.h"
#include "core/counters.h"
#include "core/host.h"
#include "process/process.h"
#include "process/thread.h"

#include <stdatomic.h>
#include <time.h>

enum { LOOKS_EVERY_NS = 100000000, RESTING_LOOKS = 3, BETWEEN_LOOKS_NS = 50000000 };

static atomic_int blocked;

void ph_watch_blocked(int change) { atomic_fetch_add(&blocked, change); }

/* The watching thread's last looks: how often it saw that the program had called nothing in between. */
static bool program_rests(void) {
    static _Thread_local uint64_t seen_calls, looked_at_ns;
    static _Thread_local int quiet;
    uint64_t calls = atomic_load(&ph_counts.api_calls);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (calls != seen_calls || atomic_load(&blocked)) {
        seen_calls = calls;
        quiet = 0;
    } else if (now_ns - looked_at_ns > BETWEEN_LOOKS_NS) { /* one look a round, however many events it asks about */
        quiet++;
        looked_at_ns = now_ns;
    }
    /* A program that waits for a processor does not rest. */
    return quiet >= RESTING_LOOKS && ph_other_threads_sleep();
}

bool ph_watch_done(uint64_t recorded_at_ns) {
    if (ph_run.finished || program_rests()) return true;
    return ph_thread_kind() != PH_THREAD_HELPS && (int64_t)(ph_clock_estimate() - recorded_at_ns) >= LOOKS_EVERY_NS;
}
