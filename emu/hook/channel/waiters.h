/* What channel.c and replies.c share: threads that wait for answers. */
#ifndef PHANTORA_WAITERS_H
#define PHANTORA_WAITERS_H

#include "channel/records.h"

#include <stdatomic.h>

/* A thread that waits for the answer to one question; lives on its stack. */
typedef struct ph_waiter {
    uint64_t qid;
    void *reply;
    size_t nbytes;
    atomic_int done;
    struct ph_waiter *next;
} ph_waiter;

uint64_t ph_waiter_add(ph_waiter *waiter);
void ph_waiter_wait(ph_waiter *waiter);
void ph_waiters_forget(void);
void ph_reply_arrived(const struct ph_header *header, const unsigned char *body, size_t nbytes);

#endif
