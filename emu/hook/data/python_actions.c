/*
 * Data functions for emu's Python side, which calls them through ctypes.
 *
 * A deferred control tensor is computed by Python code when its inputs have arrived. That needs Python's lock, which
 * the thread that waits for the result may hold. So a thread releases Python's lock before it blocks, and deferred
 * Python actions run on one thread of the library, which takes Python's lock before it takes an action.
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/run.h"
#include "data/action.h"
#include "threads/python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static void *worker(void *unused) {
    (void)unused;
    for (;;) {
        ph_action_python_begin();
        int entered = ph_python_enter();
        for (ph_action *action; (action = ph_action_python_take());) ph_action_complete(action);
        ph_python_leave(entered);
        ph_action_python_end();
    }
    return NULL;
}

/* Once per process: a forked child has only the thread that forked. */
static void start_worker(void) {
    static atomic_int owner;
    int before = owner, self = getpid();
    pthread_t thread;
    if (before == self || !atomic_compare_exchange_strong(&owner, &before, self)) return;
    if (pthread_create(&thread, NULL, worker, NULL) != 0)
        ph_die("cannot start the thread that computes deferred control tensors");
    pthread_detach(thread);
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */
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

/* reads and writes: pairs of address and number of bytes. run(arg) is called now, on this thread, unless an input or
 * output is pending. Returns 1 if it was called, 0 if it is deferred: then `run` must stay callable, and the tensors
 * must stay alive, until it has been called. */
PH_EXPORT int phantora_data_action(const uint64_t *reads, int nreads, const uint64_t *writes, int nwrites,
                                   void (*run)(uint64_t), uint64_t arg) {
    ph_range stack[16], *ranges = stack;
    if (nreads + nwrites > 16) ranges = ph_allocate((size_t)(nreads + nwrites) * sizeof *ranges);
    for (int i = 0; i < nreads; i++) ranges[i] = (ph_range){pointer(reads[2 * i]), reads[2 * i + 1]};
    for (int i = 0; i < nwrites; i++) ranges[nreads + i] = (ph_range){pointer(writes[2 * i]), writes[2 * i + 1]};
    call *it = ph_allocate(sizeof *it);
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

/* Is an earlier action still to read or to write part of the range? */
PH_EXPORT int phantora_data_in_use(uint64_t address, uint64_t nbytes) {
    ph_range range = {pointer(address), nbytes};
    return ph_action_conflicts(NULL, 0, &range, 1);
}

PH_EXPORT void phantora_data_mark_known(uint64_t address, uint64_t nbytes) {
    ph_data_mark_known(pointer(address), nbytes);
}
