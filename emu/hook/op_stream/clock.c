/* See clock.h. */
#include "op_stream/clock.h"
#include "core/run.h"
#include "op_stream/emit.h"
#include "threads/host.h"
#include "threads/onlooker.h"
#include "threads/thread.h"

#include <stdatomic.h>

static struct {
    atomic_uint_fast64_t answer_ns, host_ns;
} heard; /* the last clock read's answer, and the host clock then */

uint64_t ph_clock_estimate(void) {
    return atomic_load(&heard.answer_ns) + ph_host_clock() - atomic_load(&heard.host_ns);
}

/* Watching threads, which must never wait, get what is known without asking. */
PH_EXPORT uint64_t phantora_clock_ns(void) {
    ph_host_catch_up();
    if (!ph_run.started || ph_run.finished || ph_thread_is_watcher() || ph_uncounted() || ph_looks_on())
        return ph_clock_estimate();
    uint64_t host = ph_host_clock();
    struct ph_CLOCK_READ question = {0};
    struct ph_CLOCK answer = {0};
    ph_ask(PH_KIND_CLOCK_READ, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    atomic_store(&heard.answer_ns, answer.now_ns);
    atomic_store(&heard.host_ns, host);
    ph_gpus_at(answer.now_ns);
    return answer.now_ns;
}

uint64_t ph_clock_within(void) {
    ph_keep_python(1);
    uint64_t now_ns = phantora_clock_ns();
    ph_keep_python(-1);
    return now_ns;
}

PH_EXPORT void phantora_advance_ns(uint64_t ns) {
    ph_host_catch_up();
    ph_host_advance(ns);
    ph_emit(PH_KIND_HOST_ADVANCE, NULL, 0, NULL, 0);
}
