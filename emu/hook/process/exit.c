/*
 * The program ends by C's `exit`, not by Python's end. What ends a rank runs before all exit handlers of libraries: the
 * last records are sent, and Python code that was deferred does not run beside libraries that are being taken down.
 *
 * Handlers run in the opposite order of their registration, and libraries register theirs at any time: at the first use
 * of an object. So ours is registered when exit has been called already: C's exit first runs the destructors of the
 * calling thread's variables, one of which is ours (threads/thread.c). It also runs when a thread merely ends, where a
 * registration too many does no harm.
 */
#define _GNU_SOURCE
#include "core/run.h"
#include "data/data.h"
#include "process/process.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

void phantora_flush(void);
void phantora_finish(int exit_code, const char *last_words);

static _Atomic(void (*)(int)) telling;

/* `tell(exit code)` says what Python's side has to say at the rank's end. */
PH_EXPORT void phantora_at_exit(void (*tell)(int)) { atomic_store(&telling, tell); }

static void end_rank(int status, void *unused) {
    (void)unused;
    if (!ph_run.started) return; /* a child that the rank has forked */
    int code = status & 0xff;
    void (*tell)(int) = atomic_exchange(&telling, NULL);
    if (tell && !ph_run.ending) tell(code);
    phantora_finish(code, NULL);
    ph_data_end_python();
}

static void thread_ends(bool main) {
    if (ph_run.started && (main || ph_data_any_pending())) on_exit(end_rank, NULL);
}

void ph_exit_connect(void) { PH_CONNECT(ph_thread_ends, thread_ends); }

void ph_at_exit(void) {
    ph_self();
    on_exit(end_rank, NULL); /* for threads that the library does not know */
    at_quick_exit(phantora_flush);
}
