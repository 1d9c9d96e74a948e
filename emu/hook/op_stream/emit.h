/* Facts and questions enter the op stream, stamped with the host time since the previous record. */
#ifndef PHANTORA_EMIT_H
#define PHANTORA_EMIT_H

#include "channel/channel.h"

/* Closes the open segments and appends a record, stamped with the host clock. `payload` may be NULL. Thread-safe. A
 * batch is sent when 32 KiB have gathered, 2 ms have passed, or a thread asks a question. */
void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* ph_emit of a record that also names the line of the script. Must not be called under the record lock. */
void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* Sends a question, blocks (in real time only) until the reply has come, and copies the reply's fields to `reply`. The
 * first field of the question must be its qid, which this function fills in. */
void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes);
/* ph_ask for questions that have nothing to do with time: segments and the host clock stay as they are. */
void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes);
/* by = 1: while the calling thread waits for answers it keeps Python's lock; -1: no more. */
void ph_keep_python(int by);
/* Closes the open segments and sends the batch now: for a thread that is about to block until other ranks act. */
void ph_flush(void);
/* The record COUNTERS, and what goes with it. */
void ph_emit_counters(void);

/* Under the record lock: appends one record. Its instant, at_ns, must not be before that of the last record. */
void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes);
/* The instant of the last record that was appended so, or by ph_emit and ph_ask. */
uint64_t ph_last_instant(void);

/* Under the record lock: grows with each record that may give a stream work, or make it wait. Recordings of events on
 * one stream without such a record between them are complete at once. */
uint64_t ph_position(void);

/* The calling thread's last question, as a number of the rank's records. */
uint64_t ph_question_number(void);
/* Has the rank stated nothing since the record of that number? */
bool ph_nothing_since(uint64_t number);

/* The rank starts: its first record has the instant 0. */
void ph_op_stream_begin(void);
/* Gives channel/ what its reader does for the op stream. */
void ph_op_stream_connect(void);

#endif
