/*
 * Which thread waits for which answer, and what becomes of a record from the coordinator.
 */
#define _GNU_SOURCE
#include "channel/internal.h"
#include "core/warn.h"
#include "data/data.h"
#include "process/process.h"
#include "trace/profile.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    uint64_t last_qid;
    ph_waiter *first;
} waiters = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ph_questions_number_from(uint64_t first) { waiters.last_qid = first; }

uint64_t ph_waiter_add(ph_waiter *waiter) {
    pthread_mutex_lock(&waiters.lock);
    waiter->qid = ++waiters.last_qid;
    waiter->next = waiters.first;
    waiters.first = waiter;
    pthread_mutex_unlock(&waiters.lock);
    return waiter->qid;
}

void ph_waiter_wait(ph_waiter *waiter) {
    while (!atomic_load(&waiter->done)) syscall(SYS_futex, &waiter->done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

void ph_waiters_forget(void) {
    pthread_mutex_init(&waiters.lock, NULL);
    waiters.first = NULL;
}

static ph_waiter *take(uint64_t qid) {
    pthread_mutex_lock(&waiters.lock);
    ph_waiter **at = &waiters.first;
    while (*at && (*at)->qid != qid) at = &(*at)->next;
    ph_waiter *waiter = *at;
    if (waiter) *at = waiter->next;
    pthread_mutex_unlock(&waiters.lock);
    return waiter;
}

void ph_reply_arrived(const struct ph_header *header, const unsigned char *body, size_t nbytes) {
    if (header->kind == PH_KIND_DATA) {
        struct ph_DATA data;
        memcpy(&data, body, sizeof data);
        ph_data_arrived(data.token, body + sizeof data, nbytes - sizeof data, data.assumed != 0);
        return;
    }
    if (header->kind == PH_KIND_TRACED || header->kind == PH_KIND_TRACED_WORK) {
        (header->kind == PH_KIND_TRACED ? ph_profile_traced : ph_profile_work)(body, nbytes);
        return;
    }
    if (header->kind == PH_KIND_STOP) {
        if (ph_run.ending)
            ph_data_nobody_listens();
        else
            ph_stop();
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
