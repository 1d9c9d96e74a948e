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
#include "core/lock.h"
#include "core/config.h"
#include "cuda/types.h"
#include "core/run.h"
#include "../../contract/definitions/thread_names.h"
#include "data/action.h"
#include "streams/capturing.h"
#include "memory/memory.h"
#include "threads/python.h"
#include "threads/thread.h"
#include "streams/launch.h"

#include <pthread.h>
#include <signal.h>

static struct {
    ph_action *first, **last;
    uint64_t given, done;
    bool running;
} calls = {.last = &calls.first};

static __thread bool on_caller __attribute__((tls_model("initial-exec")));

static void *caller(void *unused) {
    (void)unused;
    on_caller = true;
    ph_self()->kind = PH_THREAD_WATCHES;
    pthread_setname_np(pthread_self(), ph_name_HOST_FUNCTION);
    ph_lock(PH_LOCK_HOST_FUNCTIONS);
    for (;;) {
        while (!calls.first) ph_wait(PH_CONDITION_HOST_FUNCTION, NULL);
        ph_action *next = calls.first;
        calls.first = next->ready_next;
        if (!calls.first) calls.last = &calls.first;
        ph_unlock(PH_LOCK_HOST_FUNCTIONS);
        ph_action_complete(next);
        ph_lock(PH_LOCK_HOST_FUNCTIONS);
        calls.done++;
        ph_wake_all(PH_CONDITION_HOST_FUNCTION);
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

static void ready(ph_action *action) {
    ph_lock(PH_LOCK_HOST_FUNCTIONS);
    if (!calls.running) start_caller();
    action->ready_next = NULL;
    *calls.last = action;
    calls.last = &action->ready_next;
    ph_wake_all(PH_CONDITION_HOST_FUNCTION);
    ph_unlock(PH_LOCK_HOST_FUNCTIONS);
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
    ph_lock(PH_LOCK_HOST_FUNCTIONS);
    calls.given++;
    ph_unlock(PH_LOCK_HOST_FUNCTIONS);
    ph_action_submit(action);
}

int ph_host_function_launch(ph_stream *stream, void (*function)(void *), void *arg) {
    int status = ph_stream_usable(stream);
    if (status == CUDA_OK)
        (stream->capture ? ph_capture_functions.host_function : ph_host_function)(stream, function, arg);
    return status;
}

void ph_host_functions_wait(void) {
    if (LIKELY(__atomic_load_n(&calls.given, __ATOMIC_RELAXED) == __atomic_load_n(&calls.done, __ATOMIC_RELAXED)) ||
        on_caller)
        return;
    void *interpreter = ph_python_release();
    ph_lock(PH_LOCK_HOST_FUNCTIONS);
    uint64_t until = calls.given;
    while (calls.done < until) ph_wait(PH_CONDITION_HOST_FUNCTION, NULL);
    ph_unlock(PH_LOCK_HOST_FUNCTIONS);
    ph_python_restore(interpreter);
}

void ph_streams_connect(void) { PH_CONNECT(ph_host_action_ready, ready); }
