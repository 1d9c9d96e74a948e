/* See clock.h. */
#include "op_stream/clock.h"
#include "core/config.h"
#include "core/lock.h"
#include "core/run.h"
#include "op_stream/emit.h"
#include "op_stream/segment.h"
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

/*
 * What a read of the clock answers that needs no question. The coordinator has said the time, and how many launches the
 * queue had room for. While the rank has stated nothing since at which its host may wait, and no more launches, the
 * time now is that answer and the host time since. Not where there are other ranks: who reads the clock then sees what
 * they did before (a file, for example), because the answer comes when they have done it. A rank that sleeps may be
 * passed over, which the coordinator announces by FLUSH. Who reads over and over asks now and then, and lets virtual
 * time pass.
 */
enum { MOST_READS = 32 };
static struct {
    uint64_t question; /* the last one for the time, as a number of the rank's records */
    uint64_t answer_ns, host_ns;
    uint64_t launches, room; /* since that question; for which there was room */
    uint32_t left;           /* reads */
    bool may_have_waited;    /* since that question */
} certain;                   /* under the record lock */

void ph_clock_is_uncertain(void) {
    ph_lock_needed(PH_LOCK_RECORDS);
    certain.left = 0;
    certain.may_have_waited = true;
}

void ph_clock_stated(uint16_t kind, uint64_t number) {
    if (kind == PH_KIND_CLOCK_READ) {
        certain.question = number;
        certain.left = 0;
        certain.launches = 0;
        certain.may_have_waited = false;
    } else if (!ph_record_is_marked(kind, "GOES_ON"))
        ph_clock_is_uncertain();
}

void ph_clock_launched(uint64_t launches) { certain.launches += launches; }

/* The answer to the calling thread's question, asked when the host's clock was `host_ns`. */
static void note_answer(const struct ph_CLOCK *answer, uint64_t host_ns) {
    ph_record_lock();
    bool alone = ph_run.world_size == 1 && !ph_run.in_step && !ph_cfg.history;
    if (alone && answer->room && certain.question == ph_question_number() && !certain.may_have_waited) {
        certain.answer_ns = answer->now_ns;
        certain.host_ns = host_ns;
        certain.room = answer->room - 1;
        certain.left = MOST_READS;
    }
    ph_record_unlock();
}

/* The virtual time now if it is certain, else 0. */
static uint64_t certain_now(void) {
    ph_record_lock();
    uint64_t now_ns = 0;
    if (certain.left) ph_close_segments(); /* where they end does not depend on who answers */
    if (certain.left && certain.launches <= certain.room) {
        certain.left--;
        now_ns = certain.answer_ns + ph_host_clock() - certain.host_ns;
    }
    ph_record_unlock();
    return now_ns;
}

/* Watching threads, which must never wait, get what is known without asking. */
static bool never_asks(void) {
    return !ph_run.started || ph_run.finished || ph_thread_is_watcher() || ph_uncounted() || ph_looks_on();
}

PH_EXPORT uint64_t phantora_clock_ns(void) {
    ph_host_catch_up();
    if (never_asks()) return ph_clock_estimate();
    uint64_t host = ph_host_clock();
    struct ph_CLOCK_READ question = {0};
    struct ph_CLOCK answer = {0};
    ph_ask(PH_KIND_CLOCK_READ, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    atomic_store(&heard.answer_ns, answer.now_ns);
    atomic_store(&heard.host_ns, host);
    note_answer(&answer, host);
    ph_gpus_at(answer.now_ns);
    return answer.now_ns;
}

PH_EXPORT uint64_t phantora_clock_read_ns(void) {
    ph_host_catch_up();
    uint64_t now_ns = never_asks() ? 0 : certain_now();
    return now_ns ? now_ns : phantora_clock_ns();
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
