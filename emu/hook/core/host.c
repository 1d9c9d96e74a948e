/*
 * The rank's host clock: one for all of its threads, since the main thread waits while autograd's run.
 *
 *   modelled   a fixed cost per API call and per op: the same on every machine
 *   measured   the calling thread's CPU time, scaled to the described host, plus the call's driver time, which the
 *              emulation does not spend
 *   none       calls cost nothing; sleeps still pass
 */
#define _GNU_SOURCE
#include "core/host.h"
#include "channel/channel.h"
#include "core/config.h"
#include "core/counters.h"
#include "process/process.h"
#include "process/thread.h"

#include <stdatomic.h>
#include <time.h>

static atomic_uint_fast64_t clock_ns;

static uint64_t spent_cpu(ph_thread *thread) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    uint64_t spent = thread->cpu_started ? ns - thread->cpu_ns : 0;
    thread->cpu_started = true;
    thread->cpu_ns = ns;
    return (uint64_t)((double)spent * ph_cfg.host_scale);
}

static void pass(uint64_t ns) {
    if (ns) atomic_fetch_add_explicit(&clock_ns, ns, memory_order_relaxed);
}

/* Whose calls and ops move the clock? */
static bool charged(void) { return LIKELY(!ph_thread_is_watcher() && !ph_uncounted()); }

void ph_host_call(ph_call_kind kind) {
    if (!charged()) return;
    atomic_fetch_add_explicit(&ph_counts.api_calls, 1, memory_order_relaxed);
    if (LIKELY(ph_cfg.host_mode == PH_HOST_MODELLED))
        pass(ph_cfg.call_ns[kind]);
    else if (ph_cfg.host_mode == PH_HOST_MEASURED)
        pass(ph_cfg.call_ns[kind] + spent_cpu(ph_self()));
}

void ph_host_op(void) {
    if (!charged()) return;
    atomic_fetch_add_explicit(&ph_counts.ops, 1, memory_order_relaxed);
    if (ph_cfg.host_mode == PH_HOST_MODELLED) pass(ph_cfg.op_ns);
}

void ph_host_advance(uint64_t ns) {
    if (LIKELY(!ph_uncounted())) pass(ns);
}

uint64_t ph_host_clock(void) { return atomic_load_explicit(&clock_ns, memory_order_relaxed); }

/* The clock as it is now, not as of the last call: for questions about time. */
static void catch_up(void) {
    if (ph_cfg.host_mode == PH_HOST_MEASURED && charged()) pass(spent_cpu(ph_self()));
}

bool ph_uncounted(void) { return ph_self()->uncounted > 0; }

/* by = 1: from now on what the calling thread does takes no virtual time. Its calls and ops cost nothing, its launches
 * reach no stream, it does not wait for the device, and what it allocates raises no peak. Data, events and collectives
 * are as always. by = -1: the end of that. The two nest. Returns the GPU time of all launches of the thread that were
 * not counted so far. */
PH_EXPORT uint64_t phantora_uncounted(int by) {
    ph_thread *thread = ph_self();
    catch_up(); /* the program's own work until here */
    thread->uncounted += by;
    if (thread->uncounted == 0) spent_cpu(thread); /* what was not counted is not charged later */
    return thread->uncounted_ns;
}

void ph_host_reset(void) {
    atomic_store(&clock_ns, 0);
    ph_self()->cpu_started = false;
    catch_up();
}

PH_EXPORT uint64_t phantora_host_clock_ns(void) {
    catch_up();
    return ph_host_clock();
}

static struct {
    atomic_uint_fast64_t answer_ns, host_ns;
} heard; /* the last clock read's answer, and the host clock then */

uint64_t ph_clock_estimate(void) {
    return atomic_load(&heard.answer_ns) + ph_host_clock() - atomic_load(&heard.host_ns);
}

/* Virtual time. Watching threads, which must never wait, get what is known without asking. */
PH_EXPORT uint64_t phantora_clock_ns(void) {
    catch_up();
    if (!ph_run.started || ph_run.finished || ph_thread_is_watcher()) return ph_clock_estimate();
    uint64_t host = ph_host_clock();
    struct ph_CLOCK_READ question = {0};
    struct ph_CLOCK answer = {0};
    ph_ask(PH_KIND_CLOCK_READ, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    atomic_store(&heard.answer_ns, answer.now_ns);
    atomic_store(&heard.host_ns, host);
    return answer.now_ns;
}

PH_EXPORT void phantora_advance_ns(uint64_t ns) {
    catch_up();
    ph_host_advance(ns);
    ph_emit(PH_KIND_HOST_ADVANCE, NULL, 0, NULL, 0);
}
