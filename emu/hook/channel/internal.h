/*
 * What the files of channel/ share.
 *
 *   channel.c     records and questions enter
 *   sending.c     batches leave
 *   reader.c      the thread that takes what comes back, and sends batches that nobody else sends
 *   replies.c     which thread waits for which answer
 *   connection.c  the socket: opened, closed, dropped in forked children
 *
 * Two locks. The record lock orders records and guards everything that decides their instants (segments, recordings);
 * it is never held over a system call that may block. The send lock is held while bytes leave. That blocks when the
 * coordinator is behind, and so holds the rank back. A thread may take the record lock while it holds the send lock,
 * never the other way round.
 */
#ifndef PHANTORA_CHANNEL_INTERNAL_H
#define PHANTORA_CHANNEL_INTERNAL_H

#include "channel/records.h"
#include "core/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PH_BATCH_NBYTES = 32 << 10, PH_BACKLOG_NBYTES = 1 << 20 };

typedef struct ph_buffer {
    unsigned char *bytes;
    size_t n, capacity;
} ph_buffer;

/* Room for nbytes more behind the buffer's n; the caller adds to n. */
unsigned char *ph_buffer_room(ph_buffer *buffer, size_t nbytes);

extern struct ph_channel {
    pthread_mutex_t records, send;
    int fd, wake;     /* the socket; an eventfd that wakes the reader */
    atomic_bool open; /* false before the rank's start, after its end and in its children: then records are dropped */
    /* under the record lock */
    ph_buffer gathering; /* the batch that records are appended to */
    uint64_t last_instant;
    bool armed; /* the reader will look within 2 ms */
    bool ended; /* BYE has been appended: only what was promised to other ranks may follow */
    /* under the send lock */
    ph_buffer leaving;
    size_t left; /* bytes of `leaving` that have gone already */
    /* threads that are blocked in an out-of-band question */
    atomic_int asking_out_of_band;
} ph_channel;

/* Is the calling thread the reader? */
extern __thread bool ph_on_reader __attribute__((tls_model("initial-exec")));

/* ---- sending.c --------------------------------------------------------------------------------------------------- */
/* Sends the gathered records. On the reader: only as many as the socket takes at once. */
void ph_send_now(void);
/* Sends if a batch is full. While another thread sends, records gather on, up to PH_BACKLOG_NBYTES. */
void ph_send_if_full(size_t gathered_nbytes);
/* The coordinator has closed the connection, so the run is over: ends this process. */
_Noreturn void ph_coordinator_is_gone(void);

/* ---- reader.c ---------------------------------------------------------------------------------------------------- */
int ph_reader_start(void); /* 0 or a negative errno */
/* Under the record lock: the reader is to look for what is unsent within 2 ms. */
void ph_reader_wake(void);

/* ---- replies.c --------------------------------------------------------------------------------------------------- */
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
void ph_waiters_forget(void);
void ph_reply_arrived(const struct ph_header *header, const unsigned char *body, size_t nbytes);

#endif
