/*
 * The end of a run before its script's: the program is held where it is, or told to stop.
 */
#include "process/process.h"
#include "core/run.h"
#include "data/data.h"
#include "op_stream/emit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static _Atomic(void (*)(void)) stopping;

/* `run` ends the process when the coordinator says STOP; it is called once, on a thread of its own. */
PH_EXPORT void phantora_at_stop(void (*run)(void)) { atomic_store(&stopping, run); }

static void *stop(void *run) {
    ((void (*)(void))run)();
    return NULL;
}

/* The reader must go on: `run` sends records. */
void ph_told_to_stop(const unsigned char *body, size_t nbytes) {
    (void)body, (void)nbytes;
    if (ph_run.ending) {
        ph_data_nobody_listens();
        return;
    }
    void (*run)(void) = atomic_exchange(&stopping, NULL);
    pthread_t thread;
    if (run && pthread_create(&thread, NULL, stop, (void *)run) == 0) pthread_detach(thread);
}

/* Does not return. */
PH_EXPORT void phantora_steps_done(void) {
    ph_emit_counters();
    ph_emit(PH_KIND_STEPS_DONE, NULL, 0, NULL, 0);
    ph_flush();
    for (;;) pause();
}
