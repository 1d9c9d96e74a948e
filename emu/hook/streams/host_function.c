/*
 * Host functions in a stream (cudaLaunchHostFunc, cudaStreamAddCallback). They are really called: one after another, in
 * order, on a thread of the library, as CUDA does. Calls that synchronise wait for them.
 *
 * To data/ a host function is an action that reads and writes all host memory. So it runs when all earlier bytes have
 * arrived, and later copies see what it wrote. In virtual time it takes its place in its stream and a fixed time,
 * ph_cfg.host_function_ns: how long it takes on this machine says nothing about the emulated host.
 *
 * Before the rank's start the library has no threads: host functions are called at once.
 */
#define _GNU_SOURCE
#include "streams/host_function.h"
#include "core/config.h"
#include "core/cuda_types.h"
#include "core/warn.h"
#include "data/action.h"
#include "graphs/capture.h"
#include "memory/memory.h"
#include "process/process.h"
#include "process/python.h"
#include "process/thread.h"
#include "streams/segment.h"

#include <pthread.h>
#include <signal.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ph_action *first, **last;
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
        ph_action *next = calls.first;
        calls.first = next->ready_next;
        if (!calls.first) calls.last = &calls.first;
        pthread_mutex_unlock(&calls.lock);
        ph_action_complete(next);
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
    if (pthread_create(&thread, NULL, caller, NULL) != 0) ph_die("cannot start the thread that calls host functions");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
    calls.running = true;
}

void ph_host_function_ready(ph_action *action) {
    pthread_mutex_lock(&calls.lock);
    if (!calls.running) start_caller();
    action->ready_next = NULL;
    *calls.last = action;
    calls.last = &action->ready_next;
    pthread_cond_broadcast(&calls.changed);
    pthread_mutex_unlock(&calls.lock);
}

void ph_host_function(ph_stream *stream, void (*function)(void *), void *arg) {
    if (!ph_run.started || ph_run.finished) {
        function(arg);
        return;
    }
    ph_stream_occupy(stream, ph_cfg.host_function_ns);
    unsigned char *behind = ph_mem.base + ph_mem.nbytes;
    const ph_range host[] = {{NULL, (size_t)(uintptr_t)ph_mem.base}, {behind, SIZE_MAX - (uintptr_t)behind}};
    ph_action *action = ph_action_new(PH_ACTION_HOST, host, 2, host, 2);
    action->run = function;
    action->arg = arg;
    pthread_mutex_lock(&calls.lock);
    calls.given++;
    pthread_mutex_unlock(&calls.lock);
    ph_action_submit(action);
}

int ph_host_function_launch(ph_stream *stream, void (*function)(void *), void *arg) {
    int status = ph_stream_usable(stream);
    if (status == CUDA_OK && !ph_capture_host_function(stream, function, arg)) ph_host_function(stream, function, arg);
    return status;
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
