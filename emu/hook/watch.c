/*
 * When a program's watching threads learn that work is done.
 *
 * NCCL's watchdog looks at each collective's event every 100 ms of real time, and PyTorch keeps the collective's
 * tensors alive until it has seen it done: with DistributedDataParallel, a second copy of all gradients at the peak.
 * Watching threads may not ask about virtual time (they have none of their own), so they are told what the program
 * itself can know: what was recorded before its last wait is done, and so is what lies further behind than a GPU's
 * queue of launches allows. If the program rests, outside of the library, it may be waiting for the watching thread:
 * then all is done.
 */
#include "core.h"

#include <time.h>

enum { SAMPLES = 8192, QUEUES_BEHIND = 4, RESTING_LOOKS = 3 };

static struct {
    atomic_uint_fast64_t mark, launches;
} samples[SAMPLES];
static atomic_uint_fast64_t last_mark, done_mark;
static atomic_int blocked;

void ph_watch_recorded(uint64_t mark) {
    atomic_store_explicit(&samples[mark % SAMPLES].launches, ph_launch_count(), memory_order_relaxed);
    atomic_store_explicit(&samples[mark % SAMPLES].mark, mark, memory_order_release);
    atomic_store_explicit(&last_mark, mark, memory_order_relaxed);
}

void ph_watch_waited(uint64_t mark) {
    uint64_t until = mark ? mark : atomic_load(&last_mark), before = atomic_load(&done_mark);
    while (before < until && !atomic_compare_exchange_weak(&done_mark, &before, until));
}

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
    } else if (now_ns - looked_at_ns > 50000000) { /* one look a round, however many events it asks about */
        quiet++;
        looked_at_ns = now_ns;
    }
    return quiet >= RESTING_LOOKS;
}

bool ph_watch_done(uint64_t mark) {
    if (mark <= atomic_load(&done_mark)) return true;
    bool recent = atomic_load_explicit(&samples[mark % SAMPLES].mark, memory_order_acquire) == mark;
    uint64_t behind = ph_launch_count() - atomic_load_explicit(&samples[mark % SAMPLES].launches, memory_order_relaxed);
    if (!recent || behind > (uint64_t)QUEUES_BEHIND * ph_cfg.queue_depth) return true;
    return program_rests();
}
