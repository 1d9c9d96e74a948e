/*
 * The calling thread's state, and which of torch's threads only watch.
 */
#define _GNU_SOURCE
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__thread ph_thread *ph_this_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget(void *thread) {
    ph_this_thread = NULL;
    free(thread);
}

static void make_key(void) {
    if (pthread_key_create(&at_exit, forget) != 0) ph_die("no thread key left");
}

ph_thread *ph_thread_make(void) {
    pthread_once(&once, make_key);
    ph_thread *thread = calloc(1, sizeof *thread);
    if (!thread) ph_die("out of host memory");
    thread->watcher = thread->autograd = -1;
    ph_this_thread = thread;
    pthread_setspecific(at_exit, thread);
    return thread;
}

/* By the names torch gives them (c10::setThreadName). A thread inherits its creator's name until it sets its own, so
 * an unfamiliar name is asked again a few times. */
static bool watches(const char *name, bool *certain) {
    static const char *const watchers[] = {"pt_nccl_", "pt_data_pin", "pt_tcpst", "pt_elastic",
                                           "pt_gloo_", "pt_dist_",    "pt_pywd_"};
    *certain = true;
    for (size_t i = 0; i < sizeof watchers / sizeof *watchers; i++)
        if (strncmp(name, watchers[i], strlen(watchers[i])) == 0) return true;
    *certain = strncmp(name, "pt_autograd", 11) == 0;
    return false;
}

bool ph_thread_is_watcher(void) {
    ph_thread *thread = ph_self();
    if (LIKELY(thread->watcher >= 0)) return thread->watcher;
    if (getpid() == gettid()) {
        thread->watcher = 0;
        return false;
    }
    char name[16] = "";
    bool certain;
    prctl(PR_GET_NAME, name, 0, 0, 0);
    bool answer = watches(name, &certain);
    if (certain || ++thread->name_checks >= 64) thread->watcher = answer;
    return answer;
}
