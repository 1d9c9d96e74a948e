/*
 * See emit.h.
 *
 * The coordinator must learn of work that nothing follows before virtual time passes over a rank that sleeps. It asks
 * for it once it has found that no rank runs, so where segments end does not depend on this machine's load.
 */
#include "op_stream/emit.h"
#include "core/config.h"
#include "core/lock.h"
#include "core/run.h"
#include "op_stream/clock.h"
#include "op_stream/history.h"
#include "op_stream/launch_counts.h"
#include "op_stream/segment.h"
#include "op_stream/trace.h"
#include "threads/host.h"
#include "threads/python.h"
#include "threads/sites.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <string.h>

static uint64_t last_instant; /* under the record lock */
static atomic_uint_fast64_t nrecords;
static _Thread_local uint64_t asked; /* the number of the thread's last question */

static uint64_t position; /* under the record lock */

uint64_t ph_position(void) {
    ph_lock_needed(PH_LOCK_RECORDS);
    return position;
}

static bool gives_no_work(uint16_t kind) {
    return kind == PH_KIND_EVENT_RECORD || kind == PH_KIND_RECORDING_DROP || kind == PH_KIND_QUERY ||
           kind == PH_KIND_CLOCK_READ;
}

/* Under the record lock. */
static void append_at(uint16_t kind, uint16_t site, uint64_t at_ns, const void *fields, size_t fields_nbytes,
                      const void *payload, size_t payload_nbytes) {
    if (UNLIKELY(ph_trace_gathered)) ph_trace_flush();
    if (UNLIKELY(ph_cfg.history)) ph_history_record(kind, at_ns);
    if (at_ns < last_instant)
        ph_die("record %u is %llu ns earlier than the record before it", kind,
               (unsigned long long)(last_instant - at_ns));
    ph_batch_append(kind, site, at_ns - last_instant, fields, fields_nbytes, payload, payload_nbytes);
    last_instant = at_ns;
    position += !gives_no_work(kind);
    ph_clock_stated(kind, 1 + atomic_fetch_add_explicit(&nrecords, 1, memory_order_relaxed));
}

void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes) {
    append_at(kind, 0, at_ns, fields, fields_nbytes, payload, payload_nbytes);
}

uint64_t ph_question_number(void) { return asked; }

bool ph_nothing_since(uint64_t number) {
    return atomic_load_explicit(&nrecords, memory_order_relaxed) == number && !ph_segments_open();
}

uint64_t ph_last_instant(void) { return last_instant; }

void ph_op_stream_begin(void) {
    ph_record_lock();
    last_instant = 0;
    ph_clock_is_uncertain();
    ph_record_unlock();
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static void emit(uint16_t kind, uint16_t site, const void *fields, size_t fields_nbytes, const void *payload,
                 size_t payload_nbytes) {
    ph_record_lock();
    ph_close_segments();
    append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}

void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, 0, fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, ph_site_with_caller(), fields, fields_nbytes, payload, payload_nbytes);
}

void ph_flush(void) {
    if (!ph_channel_is_open()) return;
    ph_record_lock();
    ph_close_segments();
    ph_record_unlock_and_send();
}

void ph_emit_counters(void) {
    ph_record_lock();
    struct ph_COUNTERS totals = {
        .launches = ph_counts.launches,
        .flops = ph_counts.flops,
        .host_work_ns = ph_host_clock(),
        .api_calls = atomic_load(&ph_counts.api_calls),
        .ops = atomic_load(&ph_counts.ops),
        .unmodelled_reads = atomic_load(&ph_counts.unmodelled_reads),
        .refused_calls = atomic_load(&ph_counts.refused_calls),
    };
    ph_close_segments();
    ph_emit_launch_counts();
    ph_append(PH_KIND_COUNTERS, ph_host_clock(), &totals, sizeof totals, NULL, 0);
    ph_record_unlock();
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* Sends the question that has just been appended and waits for its answer. Called with the record lock, which it
 * releases. `keeps_python`: a thread that took Python's lock meanwhile could wait for one that this thread holds. */
static void wait_for_answer(ph_waiter *waiter, bool keeps_python) {
    ph_record_unlock_and_send();
    if (keeps_python) {
        ph_thread_blocked(1);
        ph_waiter_wait(waiter);
        ph_thread_blocked(-1);
        return;
    }
    void *interpreter = ph_python_release();
    ph_waiter_wait(waiter);
    ph_python_restore(interpreter);
}

static _Thread_local int keeping;

void ph_keep_python(int by) { keeping += by; }

void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes) {
    memset(reply, 0, reply_nbytes);
    if (!ph_channel_is_open()) return;
    ph_waiter waiter = {.reply = reply, .nbytes = reply_nbytes};
    uint64_t qid = ph_waiter_add(&waiter);
    memcpy(fields, &qid, sizeof qid);
    uint16_t site = ph_site_with_caller();
    if (UNLIKELY(ph_cfg.history)) ph_history_asks();
    /* PyTorch's allocator holds its lock while it asks whether work is complete. */
    bool keeps_python = keeping > 0 || (kind == PH_KIND_QUERY && ph_torch_asks());
    ph_record_lock();
    ph_close_segments();
    append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    asked = atomic_load_explicit(&nrecords, memory_order_relaxed);
    wait_for_answer(&waiter, keeps_python);
}

void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes) {
    memset(reply, 0, reply_nbytes);
    if (!ph_channel_is_open()) return;
    ph_waiter waiter = {.reply = reply, .nbytes = reply_nbytes};
    uint64_t qid = ph_waiter_add(&waiter);
    memcpy(fields, &qid, sizeof qid);
    ph_record_lock();
    ph_append_out_of_band(kind, fields, fields_nbytes, payload, payload_nbytes);
    wait_for_answer(&waiter, false);
}

/* ---- on the channel's reader ------------------------------------------------------------------------------------- */

/* The coordinator has asked for it, when it found that no rank runs. */
static void flush_and_say_so(const unsigned char *body, size_t nbytes) {
    (void)body, (void)nbytes;
    ph_record_lock();
    ph_clock_is_uncertain();
    ph_close_segments();
    ph_append_out_of_band(PH_KIND_FLUSHED, NULL, 0, NULL, 0);
    ph_record_unlock_and_send();
}

/* Marks the reader's thread: it never asks and never moves the host clock. */
static void begins(void) { ph_self()->kind = PH_THREAD_WATCHES; }

void ph_op_stream_connect(void) {
    PH_CONNECT(ph_reader_functions.begins, begins);
    ph_on_record(PH_KIND_FLUSH, flush_and_say_so);
}
