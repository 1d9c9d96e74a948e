/*
 * Host functions in a stream (cudaLaunchHostFunc, cudaStreamAddCallback): really called, on a thread of ours as in
 * CUDA, in the order they were given, when no earlier bytes are still on their way. Whoever synchronises waits for
 * them.
 *
 * Before the rank's start there are no threads: they run at once.
 */
#define _GNU_SOURCE
#include "core.h"

#include <signal.h>
#include <stdlib.h>

typedef struct call {
    struct call *next;
    void (*function)(void *);
    void *arg;
} call;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    call *first, **last;
    uint64_t given, done;
    bool running;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .last = &calls.first};

static __thread bool on_caller __attribute__((tls_model("initial-exec")));

static void *caller(void *unused) {
    (void)unused;
    on_caller = true;
    ph_self()->kind = PH_THREAD_WATCHES;
    pthread_setname_np(pthread_self(), "ph_host_func");
    pthread_mutex_lock(&calls.lock);
    for (;;) {
        while (!calls.first) pthread_cond_wait(&calls.changed, &calls.lock);
        call *next = calls.first;
        calls.first = next->next;
        if (!calls.first) calls.last = &calls.first;
        pthread_mutex_unlock(&calls.lock);
        ph_data_wait_host();
        next->function(next->arg);
        free(next);
        pthread_mutex_lock(&calls.lock);
        calls.done++;
        pthread_cond_broadcast(&calls.changed);
    }
    return NULL;
}

static void start_caller(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, caller, NULL) != 0) ph_die("no thread for host functions");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
    calls.running = true;
}

void ph_host_function(void (*function)(void *), void *arg) {
    if (!ph_run.started || ph_run.finished) {
        function(arg);
        return;
    }
    call *added = malloc(sizeof *added);
    if (!added) ph_die("out of host memory");
    *added = (call){.function = function, .arg = arg};
    pthread_mutex_lock(&calls.lock);
    if (!calls.running) start_caller();
    *calls.last = added;
    calls.last = &added->next;
    calls.given++;
    pthread_cond_broadcast(&calls.changed);
    pthread_mutex_unlock(&calls.lock);
}

void ph_host_functions_wait(void) {
    if (LIKELY(__atomic_load_n(&calls.given, __ATOMIC_RELAXED) == __atomic_load_n(&calls.done, __ATOMIC_RELAXED)) ||
        on_caller)
        return;
    void *interpreter = ph_python_release();
    pthread_mutex_lock(&calls.lock);
    uint64_t until = calls.given;
    while (calls.done < until) pthread_cond_wait(&calls.changed, &calls.lock);
    pthread_mutex_unlock(&calls.lock);
    ph_python_restore(interpreter);
}
