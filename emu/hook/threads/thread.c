/*
 * The calling thread's state, and which of PyTorch's threads only watch for finished work.
 */
#define _GNU_SOURCE
#include "threads/thread.h"
#include "core/lock.h"
#include "core/run.h"
#include "../../contract/definitions/thread_names.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__thread ph_thread *ph_this_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

void (*ph_thread_ends)(bool main);

static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct {
    ph_thread *first;
    uint64_t counts[PH_HOST_KINDS], modelled_ns; /* of those that have ended */
} threads;

static void forget(void *ended) {
    ph_thread *thread = ended;
    ph_this_thread = NULL;
    ph_lock(PH_LOCK_THREADS);
    for (int kind = 0; kind < PH_HOST_KINDS; kind++) threads.counts[kind] += thread->counts[kind];
    threads.modelled_ns += thread->modelled_ns;
    *(thread->before ? &thread->before->next : &threads.first) = thread->next;
    if (thread->next) thread->next->before = thread->before;
    ph_unlock(PH_LOCK_THREADS);
    free(thread->functions.ran_at);
    free(thread->operators.ran_at);
    free(thread->kernels.ran_at);
    free(thread->loop);
    free(thread);
}

uint64_t ph_thread_age(ph_thread *thread, ph_ages *ages, uint32_t number) {
    if (UNLIKELY(number >= ages->n)) {
        size_t n = 2 * (size_t)number + 1024;
        ages->ran_at = realloc(ages->ran_at, n * sizeof *ages->ran_at);
        if (!ages->ran_at) ph_die("out of host memory");
        memset(ages->ran_at + ages->n, 0, (n - ages->n) * sizeof *ages->ran_at);
        ages->n = n;
    }
    uint64_t before = ages->ran_at[number];
    ages->ran_at[number] = thread->age;
    return before ? thread->age - before : UINT64_MAX;
}

void ph_thread_grow_old(ph_thread *thread) { thread->age += UINT32_MAX; }

void ph_threads_grow_old(void) {
    ph_lock(PH_LOCK_THREADS);
    for (ph_thread *thread = threads.first; thread; thread = thread->next) ph_thread_grow_old(thread);
    ph_unlock(PH_LOCK_THREADS);
}

uint64_t ph_threads_counts(uint64_t totals[PH_HOST_KINDS]) {
    ph_lock(PH_LOCK_THREADS);
    memcpy(totals, threads.counts, sizeof threads.counts);
    uint64_t modelled_ns = threads.modelled_ns;
    for (ph_thread *thread = threads.first; thread; thread = thread->next) {
        for (int kind = 0; kind < PH_HOST_KINDS; kind++) totals[kind] += thread->counts[kind];
        modelled_ns += thread->modelled_ns;
    }
    ph_unlock(PH_LOCK_THREADS);
    return modelled_ns;
}

static void make_key(void) {
    if (pthread_key_create(&at_exit, forget) != 0)
        ph_die("pthread_key_create failed: this process has no thread-specific keys left");
}

/* Destructors of a thread's variables run at its end, and at the process's if it is the one that calls C's exit: then
 * before all that has been registered for exit. Declared by the C++ ABI; the C library has no header for it. */
int __cxa_thread_atexit_impl(void (*destructor)(void *), void *variable, void *library);
extern void *__dso_handle;

static void ends(void *unused) {
    (void)unused;
    if (ph_thread_ends) ph_thread_ends(getpid() == gettid());
}

ph_thread *ph_thread_make(void) {
    static __thread bool told;
    pthread_once(&once, make_key);
    if (!told) told = __cxa_thread_atexit_impl(ends, NULL, &__dso_handle) == 0;
    ph_thread *thread = calloc(1, sizeof *thread);
    if (!thread) ph_die("out of host memory");
    thread->age = 1; /* 0 is never */
    ph_this_thread = thread;
    pthread_setspecific(at_exit, thread);
    ph_lock(PH_LOCK_THREADS);
    thread->next = threads.first;
    if (thread->next) thread->next->before = thread;
    threads.first = thread;
    ph_unlock(PH_LOCK_THREADS);
    return thread;
}

/* Returns the kind by the names that PyTorch gives its threads (c10::setThreadName). Until then a thread has its
 * creator's name. */
static enum ph_thread_kind kind_by_name(void) {
    static const struct {
        const char *prefix;
        enum ph_thread_kind kind;
    } known[] = {
#define THREAD(prefix, kind, role, whose) {prefix, PH_THREAD_##kind},
#define NAME(id, text, about)
#include "../../contract/definitions/thread_names.def"
#undef THREAD
#undef NAME
    };
    char name[16] = "";
    prctl(PR_GET_NAME, name, 0, 0, 0);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0) return known[i].kind;
    return PH_THREAD_UNKNOWN;
}

/* Newer versions of ProcessGroupNCCL do not name their watchdog: it is known by the function that it runs. It is given
 * a name, by which the coordinator knows it too. */
static enum ph_thread_kind kind_by_entry(void) {
    enum { MAX_FRAMES = 64, OUTERMOST = 6 };
    void *frames[MAX_FRAMES];
    int n = backtrace(frames, MAX_FRAMES);
    for (int i = n - 1; i >= 0 && i >= n - OUTERMOST; i--) {
        Dl_info about;
        if (!dladdr(frames[i], &about) || !about.dli_sname) continue;
        if (strstr(about.dli_sname, "ProcessGroupNCCL") && strstr(about.dli_sname, "atchdog")) {
            ph_thread_rename(ph_name_TIMEOUT);
            return PH_THREAD_HELPS;
        }
    }
    return PH_THREAD_UNKNOWN;
}

enum ph_thread_kind ph_thread_kind(void) {
    ph_thread *thread = ph_self();
    if (LIKELY(thread->kind != PH_THREAD_UNKNOWN)) return thread->kind;
    if (getpid() == gettid()) return thread->kind = PH_THREAD_PROGRAM;
    enum ph_thread_kind kind = kind_by_name();
    if (kind == PH_THREAD_UNKNOWN && thread->name_checks == 0) kind = kind_by_entry();
    /* An unfamiliar name may not be the thread's own yet: it is looked at again at the next calls. */
    if (kind == PH_THREAD_UNKNOWN && ++thread->name_checks >= 64) kind = PH_THREAD_PROGRAM;
    thread->kind = kind;
    return kind == PH_THREAD_UNKNOWN ? PH_THREAD_PROGRAM : kind;
}

int ph_thread_exchange_capture_mode(int mode) {
    ph_thread_kind(); /* newer watchdogs begin with this call: from now on they have a name */
    ph_thread *thread = ph_self();
    int before = thread->capture_mode;
    thread->capture_mode = mode;
    return before;
}

bool ph_thread_is_watcher(void) { return ph_thread_kind() >= PH_THREAD_WATCHES; }

static atomic_int blocked;

void ph_thread_blocked(int change) { atomic_fetch_add(&blocked, change); }
int ph_threads_blocked(void) { return atomic_load(&blocked); }

bool ph_process_has_thread(const char *named) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return false;
    bool found = false;
    for (struct dirent *task; !found && (task = readdir(tasks));) {
        char path[64], name[32] = "";
        snprintf(path, sizeof path, "%.20s/comm", task->d_name);
        int fd = task->d_name[0] == '.' ? -1 : openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t n = read(fd, name, sizeof name - 1);
        close(fd);
        found = n > 0 && strncmp(name, named, strlen(named)) == 0;
    }
    closedir(tasks);
    return found;
}

void ph_thread_rename(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

void ph_thread_call_awake(char name[PH_THREAD_NAME_NBYTES]) {
    prctl(PR_GET_NAME, name, 0, 0, 0);
    ph_thread_rename(ph_name_AWAKE);
}

/* A thread's state is the letter after the parenthesised name in /proc/self/task/<tid>/stat. */
static bool sleeps(int directory, const char *tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "%.20s/stat", tid);
    int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true; /* it has just ended */
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return true;
    text[n] = 0;
    const char *name_end = strrchr(text, ')');
    if (!name_end || name_end[1] == 0) return true;
    const char *name = strchr(text, '(') + 1;
    size_t n_awake = sizeof ph_name_AWAKE - 1;
    bool awake = (size_t)(name_end - name) == n_awake && strncmp(name, ph_name_AWAKE, n_awake) == 0;
    char state = name_end[2];
    return !awake && state != 'R' && state != 'D'; /* D: waits for a disk, which ends by itself */
}

bool ph_other_threads_sleep(void) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return true;
    int self = gettid();
    bool all = true;
    for (struct dirent *task; all && (task = readdir(tasks));)
        if (task->d_name[0] != '.' && atoi(task->d_name) != self) all = sleeps(dirfd(tasks), task->d_name);
    closedir(tasks);
    return all;
}
