/*
 * channel/: the socket to the coordinator. Records gather in a batch and leave; answers come back to whoever asked, and
 * bytes of collectives to data/. records.h makes C structs of emu/contract/records.def.
 * Comes in: records from all folders; answers and DATA records from the coordinator. Goes out: the reverse.
 */
#ifndef PHANTORA_CHANNEL_H
#define PHANTORA_CHANNEL_H

#include "channel/records.h"

/* Appends a record (closing open segments first), stamped with the host clock; `payload` may be NULL. Thread-safe.
 * Batched: sent when 32 KiB have gathered, 2 ms have passed, or somebody asks. */
void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* The same, stamped with the place in the program where the call was made too. Not under the record lock. */
void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* Out of band, beside the op stream: closes no segment, host_ns 0. From any thread, the reader's too: never blocks for
 * long. */
void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes);
/* Sends a question and blocks, in real time only, for its reply; copies the reply's fields to `reply`. The qid is put
 * into fields' first word. */
void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes);
/* The same out of band: a question that says nothing about time closes no segment and does not move the instant. */
void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes);
/* Sends what is batched now; called before a thread blocks on something that depends on other ranks. */
void ph_flush(void);

/* The record lock orders records: it guards everything that decides their instants (segments, recordings). */
void ph_record_lock(void);
void ph_record_unlock(void); /* also sends if enough has gathered */
/* Under the record lock: appends one record whose instant is at_ns (never before the last one's). */
void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes);
/* Under the record lock: an open segment must leave some time even if nothing follows it. */
void ph_channel_wake_for_segments(void);

int ph_channel_open(const char *path);
void ph_channel_close(void);
void ph_channel_drop_in_child(void);
void ph_channel_fork_lock(void);
void ph_channel_fork_unlock(void);

#endif
