/*
 * Has the stacks of Python's threads written when a signal asks for them.
 *
 * Python code writes them, on a thread of its own, with Python's lock: a thread that is entering a function has no
 * stack that could be read, and other threads change theirs, so who reads them without the lock may crash. A thread in
 * C code may keep the lock for long. When no Python function has been entered for a while, that is what has happened,
 * and a second signal has the stacks written without the lock: they stand still.
 */
#define _GNU_SOURCE
#include "core/base.h"
#include "threads/frames.h"
#include "../../contract/definitions/thread_names.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STILL_S = 1 };

static struct {
    int without_lock;
    void (*write)(void);
    sem_t asked, written;
    atomic_bool writing;
} stacks;

static void wake(int number) {
    (void)number;
    int before = errno;
    sem_post(&stacks.asked);
    errno = before;
}

static int start(void *(*run)(void *)) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) pthread_detach(thread);
    return error;
}

static void *write_with_lock(void *unused) {
    (void)unused;
    stacks.write();
    atomic_store(&stacks.writing, false);
    sem_post(&stacks.written);
    return NULL;
}

static bool wait_a_while(sem_t *semaphore) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STILL_S;
    int status;
    while ((status = sem_timedwait(semaphore, &until)) != 0 && errno == EINTR) continue;
    return status == 0;
}

static void answer(void) {
    while (sem_trywait(&stacks.written) == 0)
        continue; /* of an earlier question, which had its answer without the lock */
    if (!atomic_exchange(&stacks.writing, true) && start(write_with_lock) != 0) atomic_store(&stacks.writing, false);
    uint64_t entered;
    do {
        entered = ph_functions_entered();
        if (wait_a_while(&stacks.written)) return;
    } while (ph_functions_entered() != entered);
    kill(getpid(), stacks.without_lock);
}

static void *answers(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), ph_name_STACKS);
    for (;;)
        if (sem_wait(&stacks.asked) == 0) answer();
    return NULL;
}

/* Has `write` called, on a thread of its own that takes Python's lock, when this process gets the signal `ask`. If
 * that thread does not get the lock, the process gets the signal `without_lock`. Called in the rank. Returns 0 or an
 * error number. */
PH_EXPORT int phantora_answer_stacks(int ask, int without_lock, void (*write)(void)) {
    stacks.without_lock = without_lock;
    stacks.write = write;
    sem_init(&stacks.asked, 0, 0);
    sem_init(&stacks.written, 0, 0);
    atomic_store(&stacks.writing, false);
    int error = start(answers);
    struct sigaction action = {.sa_handler = wake, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (error == 0 && sigaction(ask, &action, NULL) != 0) error = errno;
    return error;
}
