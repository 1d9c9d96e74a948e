/*
 * channel/: the socket to the coordinator. Records are batched and sent. What comes back wakes the thread that asked,
 * or goes to the handler of its kind.
 *
 *   channel.c     records enter the batch
 *   sending.c     batches leave
 *   reader.c      the thread that takes what comes back, and sends batches that nobody else sends
 *   replies.c     which thread waits for which answer, and the handlers
 *   connection.c  the socket: opened, closed, dropped in forked children
 *
 * Comes in: records, stamped, from op_stream/; bytes from the coordinator. Goes out: batches to the coordinator;
 * answers and records to those that wait for them.
 */
#ifndef PHANTORA_CHANNEL_H
#define PHANTORA_CHANNEL_H

#include "core/base.h"
#include "core/records.h"

#include <stdatomic.h>

/* ---- records ----------------------------------------------------------------------------------------------------- */
/* The record lock. It orders the records and guards everything that decides their instants: segments and recordings. It
 * is never held over a system call that may block. */
void ph_record_lock(void);
void ph_record_unlock(void); /* also sends a full batch */
/* Under the record lock: appends one record, of the op stream. */
void ph_batch_append(uint16_t kind, uint16_t site, uint64_t host_ns, const void *fields, size_t fields_nbytes,
                     const void *payload, size_t payload_nbytes);
/* Appends a record out of band: it is no part of the op stream, closes no segment, and its host_ns is 0. For any
 * thread, the reader included: it does not block. The second one is called under the record lock. */
void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes);
void ph_append_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                           size_t payload_nbytes);
/* Ends the record lock and sends the batch now. */
void ph_record_unlock_and_send(void);

/* ---- questions and answers --------------------------------------------------------------------------------------- */
/* A thread that waits for the answer to one question; lives on its stack. */
typedef struct ph_waiter {
    uint64_t qid;
    void *reply;
    size_t nbytes;
    atomic_int done;
    struct ph_waiter *next;
} ph_waiter;

/* Returns the question's number, its qid. */
uint64_t ph_waiter_add(ph_waiter *waiter);
void ph_waiter_wait(ph_waiter *waiter);
void ph_questions_number_from(uint64_t first);

/* Records of this kind, which answer no question, are given to `take`, on the reader's thread. Set once for a kind. */
void ph_on_record(uint16_t kind, void (*take)(const unsigned char *body, size_t nbytes));

/* ---- the reader -------------------------------------------------------------------------------------------------- */
/* Further work of the reader's thread; set by op_stream/. */
extern struct ph_reader_functions {
    void (*begins)(void);
} ph_reader_functions;
uint64_t ph_reader_cpu_ns(void); /* processor time of the thread that receives */

/* ---- the connection ---------------------------------------------------------------------------------------------- */
int ph_channel_open(const char *path);
bool ph_channel_is_open(void);
void ph_channel_close(void);
/* BYE has been emitted: from now on all records are dropped but those that other ranks wait for. */
void ph_channel_end(void);
/* Closes the connection in a child of the rank, under all locks: the coordinator must see the rank's end even if its
 * children live on. */
void ph_channel_drop_in_child(void);

#endif
