/*
 * Host time: a clock for each thread of the rank, and the instants of the rank's records.
 *
 *   modelled   a cost per API call, op, autograd node, Python frame ...: the same on every machine
 *   measured   the thread's CPU time, scaled to the described host, plus the call's driver time, which the emulation
 *              does not spend, less what the emulation itself spends
 *   none       nothing costs time; sleeps still pass
 *
 * Work is booked on the thread that does it. A record's instant is its thread's clock, or that of the rank's last
 * record if that is later. A backward pass hands over: autograd's thread starts at the caller's clock, and the caller
 * goes on at the later of both. Then the instants are those of one thread, and a function of the program alone. Other
 * threads are not known to wait for each other: what they do alone moves nobody else's clock.
 */
#define _GNU_SOURCE
#include "threads/host.h"
#include "core/config.h"
#include "core/run.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static struct {
    atomic_uint_fast64_t rank_ns;   /* the latest instant given to a record */
    atomic_uint_fast64_t pass;      /* backward passes begun */
    atomic_uint_fast64_t pass_ns;   /* the caller's clock when the last one began */
    atomic_uint_fast64_t worked_ns; /* how far autograd's threads have come */
} host;

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

static void raise_to(atomic_uint_fast64_t *at, uint64_t ns) {
    uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);
    while (seen < ns && !atomic_compare_exchange_weak(at, &seen, ns)) continue;
}

/* A thread of the program's goes on when the backward pass that it waited for has ended. */
static inline void join_backward(ph_thread *thread) {
    uint64_t worked_ns = atomic_load_explicit(&host.worked_ns, memory_order_relaxed);
    if (UNLIKELY(thread->clock_ns < worked_ns)) thread->clock_ns = worked_ns;
}

static uint64_t cpu_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the CPU time, in ns, that the program itself has used since the last call: without what the emulation took
 * for observing it. */
static uint64_t spent_cpu(ph_thread *thread) {
    uint64_t ns = cpu_now();
    uint64_t spent = thread->cpu_started ? ns - thread->cpu_ns : 0;
    thread->cpu_started = true;
    thread->cpu_ns = ns;
    uint64_t own = thread->own_ns < spent ? thread->own_ns : spent;
    thread->own_ns -= own;
    return (uint64_t)((double)(spent - own) * ph_cfg.host_scale);
}

static uint32_t own_ns[3]; /* what observing takes: an API call, an operator's range, a Python function */

static inline void observed(ph_thread *thread, int what) {
    if (ph_cfg.host_mode == PH_HOST_MEASURED) thread->own_ns += own_ns[what];
}

/* Mode measured: what the emulation itself takes on this machine for observing one of each. */
PH_EXPORT void phantora_own_work(uint32_t call_ns, uint32_t range_ns, uint32_t frame_ns) {
    own_ns[0] = call_ns;
    own_ns[1] = range_ns;
    own_ns[2] = frame_ns;
}

PH_EXPORT int phantora_measures_host(void) { return ph_cfg.host_mode == PH_HOST_MEASURED; }

static atomic_int uncounted_threads;

int ph_uncounted_threads(void) { return atomic_load(&uncounted_threads); }
bool ph_uncounted(void) { return ph_self()->uncounted > 0; }
PH_EXPORT int phantora_is_uncounted(void) { return ph_uncounted(); }

/* by = 1: from now on what the calling thread does takes no virtual time. Its work and its calls cost nothing, its
 * launches reach no stream, it does not wait for the device, and what it allocates raises no peak. Data, events and
 * collectives are as always. by = -1: the end of that. The two nest. Returns the GPU time of all launches of the thread
 * that were not counted so far. */
PH_EXPORT uint64_t phantora_uncounted(int by) {
    ph_thread *thread = ph_self();
    if (by > 0) ph_host_aside_begins(thread);
    atomic_fetch_add(&uncounted_threads, by);
    thread->uncounted += by;
    if (by < 0) ph_host_aside_ends(thread);
    return thread->uncounted_ns;
}

uint64_t (*ph_nodes_made)(void);

void ph_host_nodes(ph_thread *thread) {
    if (UNLIKELY(!ph_nodes_made) || UNLIKELY(ph_thread_is_watcher())) return;
    uint64_t made = ph_nodes_made();
    if (made != thread->nodes && thread->nodes_known && !thread->aside)
        ph_host_work(PH_WORK_MADE_NODE, made - thread->nodes);
    thread->nodes = made;
    thread->nodes_known = true;
}

/* Begins work on this thread that is not the program's. */
void ph_host_aside_begins(ph_thread *thread) {
    ph_host_nodes(thread);
    if (ph_cfg.host_mode == PH_HOST_MEASURED && thread->aside == 0) thread->clock_ns += spent_cpu(thread);
    thread->aside++;
}

void ph_host_aside_ends(ph_thread *thread) {
    ph_host_nodes(thread);
    thread->aside--;
    if (ph_cfg.host_mode == PH_HOST_MEASURED && thread->aside == 0) thread->cpu_ns = cpu_now();
}

/* by = 1: the Python functions that the calling thread enters from now on are not the program's work. by = -1: the end
 * of that. The two nest. */
PH_EXPORT void phantora_aside(int by) {
    ph_thread *thread = ph_self();
    if (by > 0)
        ph_host_aside_begins(thread);
    else
        ph_host_aside_ends(thread);
}

_Atomic(ph_call_listener) ph_listens_to_calls;

static inline void spend(ph_thread *thread, uint64_t ns) {
    thread->clock_ns += ns;
    thread->modelled_ns += ns;
}

void ph_host_call_of(ph_call_kind kind, const char *caller) {
    if (UNLIKELY(ph_thread_is_watcher())) return;
    ph_thread *thread = ph_self();
    /* How often it asks depends on this machine, and who waits with it, too. */
    if (UNLIKELY(thread->looks_on) && (kind == PH_CALL_QUERY || kind == PH_CALL_SYNC)) return;
    thread->looks_on = false;
    atomic_fetch_add_explicit(&ph_counts.api_calls, 1, memory_order_relaxed);
    if (UNLIKELY(thread->uncounted)) return;
    thread->counts[kind]++;
    join_backward(thread);
    ph_call_listener listener = atomic_load_explicit(&ph_listens_to_calls, memory_order_relaxed);
    uint64_t start_ns = UNLIKELY(listener != NULL) ? ph_host_clock_now() : 0;
    if (LIKELY(ph_cfg.host_mode == PH_HOST_MODELLED))
        spend(thread, ph_cfg.host_ns[kind]);
    else if (ph_cfg.host_mode == PH_HOST_MEASURED) {
        thread->clock_ns += ph_cfg.host_ns[kind];
        if (!thread->aside) thread->clock_ns += spent_cpu(thread);
        observed(thread, 0);
    }
    bool of_cuda = kind != PH_CALL_QUERY && kind != PH_CALL_NCCL_CALL;
    if (UNLIKELY(listener != NULL) && of_cuda) listener(kind, caller, start_ns, ph_host_clock_now());
}

void ph_host_work(ph_host_kind kind, uint64_t n) {
    ph_thread *thread = ph_self();
    thread->counts[kind] += n;
    if (ph_cfg.host_mode == PH_HOST_MODELLED) spend(thread, n * ph_cfg.host_ns[kind]);
}

void ph_host_fine_work(ph_host_kind kind, uint64_t n) {
    ph_thread *thread = ph_self();
    thread->counts[kind] += n;
    if (ph_cfg.host_mode == PH_HOST_MODELLED) spend(thread, n * ph_cfg.host_ns[kind] / 1000);
}

void ph_host_programs_work(ph_host_kind kind, uint64_t n) {
    if (LIKELY(!ph_thread_is_watcher()) && LIKELY(!ph_self()->aside)) ph_host_work(kind, n);
}

void ph_host_frame(ph_thread *thread, uint64_t ns) {
    observed(thread, 2);
    if (ph_cfg.host_mode != PH_HOST_MODELLED) return;
    join_backward(thread);
    spend(thread, ns);
    if (thread->kind == PH_THREAD_AUTOGRAD) raise_to(&host.worked_ns, thread->clock_ns);
}

void ph_host_op(void) {
    if (UNLIKELY(ph_thread_is_watcher())) return;
    ph_thread *thread = ph_self();
    if (LIKELY(!thread->looks_on)) atomic_fetch_add_explicit(&ph_counts.ops, 1, memory_order_relaxed);
    observed(thread, 1);
    join_backward(thread);
}

void ph_host_advance(uint64_t ns) {
    ph_thread *thread = ph_self();
    if (UNLIKELY(thread->uncounted)) return;
    join_backward(thread);
    thread->clock_ns += ns;
}

/* ---- backward passes --------------------------------------------------------------------------------------------- */

void ph_host_backward(void) {
    ph_thread *thread = ph_self();
    if (UNLIKELY(thread->uncounted)) return; /* a compiler's, which traces the pass */
    join_backward(thread);
    ph_host_work(PH_WORK_BACKWARD, 1);
    raise_to(&host.pass_ns, thread->clock_ns);
    atomic_fetch_add(&host.pass, 1);
}

/* Autograd's thread begins a node. */
void ph_host_node_begins(void) {
    ph_thread *thread = ph_self();
    uint64_t pass = atomic_load_explicit(&host.pass, memory_order_relaxed);
    if (LIKELY(thread->pass == pass) || ph_thread_kind() != PH_THREAD_AUTOGRAD) return;
    thread->pass = pass;
    uint64_t from_ns = atomic_load(&host.pass_ns);
    if (thread->clock_ns < from_ns) thread->clock_ns = from_ns;
}

/* The outermost range of a thread has ended. */
void ph_host_range_ends(ph_thread *thread) {
    if (thread->kind == PH_THREAD_AUTOGRAD) raise_to(&host.worked_ns, thread->clock_ns);
}

/* ---- instants ---------------------------------------------------------------------------------------------------- */

/* Grows with every call and op: what a program does besides its own Python functions. */
PH_EXPORT uint64_t phantora_activity(void) {
    return atomic_load_explicit(&ph_counts.api_calls, memory_order_relaxed) +
           atomic_load_explicit(&ph_counts.ops, memory_order_relaxed);
}

/* A thread that looks on has an instant of its own only while the program waits for it: a file that it writes, for
 * example, would move the clock of a program that goes on. */
static bool has_no_instant(ph_thread *thread) {
    if (LIKELY(!thread->looks_on) || thread->waited_for_at == 1 + phantora_activity()) return false;
    thread->clock_ns = 0;
    return true;
}

uint64_t ph_host_clock(void) {
    ph_thread *thread = ph_self();
    if (UNLIKELY(ph_thread_is_watcher()) || UNLIKELY(has_no_instant(thread)))
        return atomic_load_explicit(&host.rank_ns, memory_order_relaxed);
    join_backward(thread);
    uint64_t rank_ns = atomic_load_explicit(&host.rank_ns, memory_order_relaxed);
    if (thread->clock_ns < rank_ns) thread->clock_ns = rank_ns;
    raise_to(&host.rank_ns, thread->clock_ns);
    return thread->clock_ns;
}

uint64_t ph_host_clock_now(void) {
    ph_thread *thread = ph_self();
    uint64_t rank_ns = atomic_load_explicit(&host.rank_ns, memory_order_relaxed);
    return thread->clock_ns > rank_ns && !ph_thread_is_watcher() ? thread->clock_ns : rank_ns;
}

void ph_host_remember(ph_host_mark *mark) {
    ph_host_catch_up();
    const ph_thread *thread = ph_self();
    mark->clock_ns = ph_host_clock();
    mark->modelled_ns = thread->modelled_ns;
    mark->age = thread->age;
    memcpy(mark->counts, thread->counts, sizeof mark->counts);
}

void ph_host_return_to(const ph_host_mark *mark) {
    ph_host_catch_up();
    ph_thread *thread = ph_self();
    thread->clock_ns = mark->clock_ns;
    thread->modelled_ns = mark->modelled_ns;
    thread->age = mark->age;
    memcpy(thread->counts, mark->counts, sizeof mark->counts);
}

void ph_host_catch_up(void) {
    if (ph_cfg.host_mode == PH_HOST_MEASURED && !ph_thread_is_watcher() && !ph_self()->aside)
        ph_host_advance(spent_cpu(ph_self()));
}

void ph_host_reset(void) {
    atomic_store(&host.rank_ns, 0);
    atomic_store(&host.pass_ns, 0);
    atomic_store(&host.worked_ns, 0);
    ph_thread *thread = ph_self();
    thread->clock_ns = 0;
    thread->cpu_started = false;
    ph_thread_grow_old(thread); /* the rank's time does not depend on what its server ran before the fork */
    ph_host_catch_up();
}

/* The calling thread works for as long as it did when it was asked for the same before. */
PH_EXPORT void phantora_host_works_ns(uint64_t ns) { ph_host_advance(ns); }

/* The program has Python look for garbage. The process shares most of its objects with others, and leaves them out. */
PH_EXPORT void phantora_host_collects(uint64_t ns) {
    if (ph_run.started && ph_cfg.host_mode != PH_HOST_NONE && !ph_uncounted()) ph_host_advance(ns);
}

PH_EXPORT uint64_t phantora_host_clock_ns(void) {
    ph_host_catch_up();
    return ph_host_clock();
}

/* ---- counts, for whoever fits a host description ----------------------------------------------------------------- */

/* Other programs have run since: nothing of this one is in the caches. No thread does anything meanwhile. */
PH_EXPORT void phantora_host_grows_old(void) { ph_threads_grow_old(); }

/* Sums over all threads, by ph_host_kind; returns how many kinds there are. */
PH_EXPORT int phantora_host_counts(uint64_t *counts, int capacity) {
    uint64_t totals[PH_HOST_KINDS];
    ph_threads_counts(totals);
    for (int kind = 0; kind < capacity && kind < PH_HOST_KINDS; kind++) counts[kind] = totals[kind];
    return PH_HOST_KINDS;
}
