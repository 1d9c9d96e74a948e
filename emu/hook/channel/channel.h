/*
 * channel/: the socket to the coordinator. Records are batched and sent. Answers come back to the threads that asked,
 * bytes of collectives to data/. records.h makes C structs of emu/contract/records.def.
 * Comes in: records from all folders; answers and DATA records from the coordinator. Goes out: records to the
 * coordinator; answers and bytes to the folders.
 */
#ifndef PHANTORA_CHANNEL_H
#define PHANTORA_CHANNEL_H

#include "channel/records.h"

/* Closes the open segments and appends a record, stamped with the host clock. `payload` may be NULL. Thread-safe. A
 * batch is sent when 32 KiB have gathered, 2 ms have passed, or a thread asks a question. */
void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* The same, stamped with the calling thread's place in the program, too. Must not be called under the record lock. */
void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* Appends a record out of band: it is no part of the op stream, closes no segment, and its host_ns is 0. For any
 * thread, the reader included: it does not block. */
void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes);
/* Sends a question, blocks (in real time only) until the reply has come, and copies the reply's fields to `reply`. The
 * first field of the question must be its qid, which this function fills in. */
void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes);
/* The same out of band, for questions that have nothing to do with time. */
void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes);
/* Closes the open segments and sends the batch now: for a thread that is about to block until other ranks act. */
void ph_flush(void);

/* The record lock. It orders the records and guards everything that decides their instants: segments and recordings. */
void ph_record_lock(void);
void ph_record_unlock(void); /* also sends a full batch */
/* Under the record lock: appends one record. Its instant, at_ns, must not be before that of the last record. */
void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes);
/* Under the record lock: ph_emit_out_of_band, and the instant of the last record that was appended in the op stream. */
void ph_append_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                           size_t payload_nbytes);
uint64_t ph_last_instant(void);
/* Under the record lock, when a segment is opened: the reader will close it if nothing follows. */
void ph_channel_wake_for_segments(void);

void ph_questions_number_from(uint64_t first);
int ph_channel_open(const char *path);
uint64_t ph_reader_cpu_ns(void); /* processor time of the thread that receives */
void ph_channel_close(void);
/* BYE has been emitted: from now on all records are dropped but those that other ranks wait for. */
void ph_channel_end(void);
void ph_channel_drop_in_child(void);
void ph_channel_fork_lock(void);
void ph_channel_fork_unlock(void);

#endif
