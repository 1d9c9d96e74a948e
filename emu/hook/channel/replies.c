/*
 * What becomes of a record from the coordinator: the answer of a thread that waits, or one for the handler of its kind.
 */
#define _GNU_SOURCE
#include "channel/internal.h"
#include "core/lock.h"
#include "core/run.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    uint64_t last_qid;
    ph_waiter *first;
} waiters;

void ph_questions_number_from(uint64_t first) { waiters.last_qid = first; }

uint64_t ph_waiter_add(ph_waiter *waiter) {
    ph_lock(PH_LOCK_WAITERS);
    waiter->qid = ++waiters.last_qid;
    waiter->next = waiters.first;
    waiters.first = waiter;
    ph_unlock(PH_LOCK_WAITERS);
    return waiter->qid;
}

void ph_waiter_wait(ph_waiter *waiter) {
    while (!atomic_load(&waiter->done)) syscall(SYS_futex, &waiter->done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

void ph_waiters_forget(void) { waiters.first = NULL; }

static ph_waiter *take(uint64_t qid) {
    ph_lock(PH_LOCK_WAITERS);
    ph_waiter **at = &waiters.first;
    while (*at && (*at)->qid != qid) at = &(*at)->next;
    ph_waiter *waiter = *at;
    if (waiter) *at = waiter->next;
    ph_unlock(PH_LOCK_WAITERS);
    return waiter;
}

/* Kinds that answer no question. */
enum { MOST_HANDLERS = 8 };
static struct {
    uint16_t kind;
    void (*take)(const unsigned char *body, size_t nbytes);
} handlers[MOST_HANDLERS];

void ph_on_record(uint16_t kind, void (*take)(const unsigned char *body, size_t nbytes)) {
    size_t i = 0;
    while (i < MOST_HANDLERS && handlers[i].take && handlers[i].kind != kind) i++;
    if (i == MOST_HANDLERS || handlers[i].take) ph_die("record %u has a handler, or there are too many", kind);
    handlers[i].kind = kind;
    handlers[i].take = take;
}

void ph_reply_arrived(const struct ph_header *header, const unsigned char *body, size_t nbytes) {
    for (size_t i = 0; i < MOST_HANDLERS && handlers[i].take; i++)
        if (handlers[i].kind == header->kind) {
            handlers[i].take(body, nbytes);
            return;
        }
    ph_waiter *waiter = take(header->last);
    if (!waiter)
        ph_die("the coordinator answered a question that this rank has not asked (kind %u, qid %llu)", header->kind,
               (unsigned long long)header->last);
    memcpy(waiter->reply, body, nbytes < waiter->nbytes ? nbytes : waiter->nbytes);
    /* Once the waiting thread sees `done` its stack frame may go: after the store only the address is used. */
    atomic_int *done = &waiter->done;
    atomic_store(done, 1);
    syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
