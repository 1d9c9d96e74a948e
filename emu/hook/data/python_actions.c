/*
 * The data engine for emu's Python side (ctypes), and Python's lock.
 *
 * A deferred control tensor is computed by Python code when its inputs arrive. That needs the interpreter's lock, which
 * the thread that waits for the result may hold. So: whoever blocks lets go of the lock first, and Python actions run
 * on one thread of ours that takes the lock before it takes the action. Nothing holds the engine's lock meanwhile.
 *
 * The hook is not linked with Python: the interpreter's functions are looked up in the process, and absent in C tests.
 */
#define _GNU_SOURCE
#include "core/warn.h"
#include "data/action.h"
#include "process/python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static void *worker(void *unused) {
    (void)unused;
    for (;;) {
        ph_action_python_wait();
        int entered = ph_python_enter();
        for (ph_action *action; (action = ph_action_python_take());) {
            ph_action_perform(action);
            ph_action_finish(action);
        }
        ph_python_leave(entered);
    }
    return NULL;
}

/* Once per process: a forked child has none of its parent's threads. */
static void start_worker(void) {
    static atomic_int owner;
    int before = owner, self = getpid();
    pthread_t thread;
    if (before == self || !atomic_compare_exchange_strong(&owner, &before, self)) return;
    if (pthread_create(&thread, NULL, worker, NULL) != 0)
        ph_die("cannot start the thread that computes deferred control tensors");
    pthread_detach(thread);
}

/* ---- called by ctypes ------------------------------------------------------------------------------------------- */
typedef struct call {
    void (*run)(uint64_t);
    uint64_t arg;
} call;

static void run_call(void *arg) {
    call it = *(call *)arg;
    free(arg);
    it.run(it.arg);
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

/* reads and writes: pairs of address and bytes. Runs at once, on this thread, unless an input or output is pending;
 * returns 1 if it ran, 0 if it was deferred: `run` must stay callable, and whatever keeps the tensors alive must live,
 * till then. */
PH_EXPORT int phantora_data_action(const uint64_t *reads, int nreads, const uint64_t *writes, int nwrites,
                                   void (*run)(uint64_t), uint64_t arg) {
    ph_range stack[16], *ranges = stack;
    if (nreads + nwrites > 16 && !(ranges = malloc((size_t)(nreads + nwrites) * sizeof *ranges)))
        ph_die("out of host memory for a control tensor's ranges");
    for (int i = 0; i < nreads; i++) ranges[i] = (ph_range){pointer(reads[2 * i]), reads[2 * i + 1]};
    for (int i = 0; i < nwrites; i++) ranges[nreads + i] = (ph_range){pointer(writes[2 * i]), writes[2 * i + 1]};
    call *it = malloc(sizeof *it);
    if (!it) ph_die("out of host memory for a control tensor");
    *it = (call){run, arg};
    ph_action *action = ph_action_new(PH_ACTION_PYTHON, ranges, nreads, ranges + nreads, nwrites);
    action->run = run_call;
    action->arg = it;
    if (ranges != stack) free(ranges);
    if (ph_action_submit(action)) return 1;
    start_worker();
    return 0;
}

PH_EXPORT void phantora_data_wait(uint64_t address, uint64_t nbytes) { ph_data_wait(pointer(address), nbytes); }

PH_EXPORT int phantora_data_pending(uint64_t address, uint64_t nbytes) {
    return ph_data_pending(pointer(address), nbytes);
}

PH_EXPORT int phantora_data_known(uint64_t address, uint64_t nbytes) { return ph_data_known(pointer(address), nbytes); }

PH_EXPORT void phantora_data_mark_known(uint64_t address, uint64_t nbytes) {
    ph_data_mark_known(pointer(address), nbytes);
}

PH_EXPORT void phantora_data_forget(uint64_t address, uint64_t nbytes) { ph_data_forget(pointer(address), nbytes); }
