/*
 * What the files of channel/ share.
 *
 * Two locks. The record lock orders records and guards everything that decides their instants (segments, recordings);
 * it is never held over a system call that may block. The send lock is held while bytes leave. That blocks when the
 * coordinator is behind, and so holds the rank back. A thread may take the record lock while it holds the send lock,
 * never the other way round.
 */
#ifndef PHANTORA_CHANNEL_INTERNAL_H
#define PHANTORA_CHANNEL_INTERNAL_H

#include "channel/channel.h"

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
    int fd, wake;     /* the socket; an eventfd that wakes the reader */
    atomic_bool open; /* false before the rank's start, after its end and in its children: then records are dropped */
    /* under the record lock */
    ph_buffer gathering; /* the batch that records are appended to */
    bool armed;          /* the reader will look within 2 ms */
    bool ended;          /* BYE has been appended: only what was promised to other ranks may follow */
    /* under the send lock */
    ph_buffer leaving;
    size_t left; /* bytes of `leaving` that have gone already */
} ph_channel;

/* Is the calling thread the reader? */
extern __thread bool ph_on_reader __attribute__((tls_model("initial-exec")));

/* ---- sending.c --------------------------------------------------------------------------------------------------- */
/* Sends the gathered records. On the reader: only as many as the socket takes at once; true if it has to send more. */
bool ph_send_now(void);
/* Sends if a batch is full. While another thread sends, records gather on, up to PH_BACKLOG_NBYTES. */
void ph_send_if_full(size_t gathered_nbytes);
/* The coordinator has closed the connection, so the run is over: ends this process. */
_Noreturn void ph_coordinator_is_gone(void);

/* ---- reader.c ---------------------------------------------------------------------------------------------------- */
int ph_reader_start(void); /* 0 or a negative errno */
/* Under the record lock: the reader is to look for what is unsent within 2 ms. */
void ph_reader_wake(void);

/* ---- replies.c --------------------------------------------------------------------------------------------------- */
void ph_waiters_forget(void);
void ph_reply_arrived(const struct ph_header *header, const unsigned char *body, size_t nbytes);

#endif
