/*
 * NCCL's watchdogs in virtual time.
 *
 * On a cluster a watchdog ends its process when a collective has lasted longer than the process group's timeout. Here
 * collectives take as long in real time as the emulation takes, so timeouts are lengthened (emu/clock/timeouts.py), but
 * not in runs in which something dies. There
 *
 *   - the program's threads read virtual time where PyTorch's library notes when a collective began;
 *   - its watchdogs read real time, which lies long before that, until the coordinator says that nothing can happen any
 *     more (STALLED);
 *   - then each looks once more, and finds all work that is done. From then on its waits between looks take no real
 *     time: its clock, which begins at that instant of virtual time, moves by as much as it wanted to wait. It finds
 *     what lasts too long at the look at which it would find it on a cluster, and does what PyTorch's code does.
 */
#define _GNU_SOURCE
#include "streams/watch.h"
#include "core/alloc.h"
#include "core/records.h"
#include "core/run.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "threads/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Virtual instants as PyTorch's library sees them: far from those of the real clock. */
static const int64_t VIRTUAL_NS = INT64_C(1) << 60;
enum { JUMP_REAL_NS = 100000, MS_NS = 1000000, S_NS = 1000000000 };

static struct {
    atomic_uint stalls; /* how often the run has stalled */
    uint64_t at_ns;
    uint64_t *undone;
    size_t n;
} stalled;

static _Thread_local struct {
    unsigned stall; /* of which the thread knows */
    bool looked;    /* with what is done known */
    int64_t waited_ns;
    uint64_t wait_ns; /* the wait that is to pass */
} own;

void ph_told_of_stall(const unsigned char *body, size_t nbytes) {
    struct ph_STALLED told;
    if (nbytes < sizeof told) return;
    memcpy(&told, body, sizeof told);
    if (nbytes < sizeof told + told.entries * sizeof *stalled.undone) return;
    uint64_t *undone = ph_allocate((told.entries + 1) * sizeof *undone);
    memcpy(undone, body + sizeof told, told.entries * sizeof *undone);
    stalled.undone = undone; /* the former table is kept: a watchdog may be reading it */
    stalled.n = told.entries;
    stalled.at_ns = told.at_ns;
    atomic_fetch_add(&stalled.stalls, 1);
}

bool ph_stalled(void) { return atomic_load(&stalled.stalls) > 0; }

bool ph_stalled_done(uint64_t recording) {
    for (size_t i = 0; i < stalled.n; i++)
        if (stalled.undone[i] == recording) return false;
    return true;
}

static int64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * S_NS + now.tv_nsec;
}

int64_t ph_watchdog_now(void) {
    if (!ph_run.started || ph_run.finished) return real_ns();
    if (!ph_thread_is_watcher()) return VIRTUAL_NS + (int64_t)ph_clock_estimate();
    return own.looked ? VIRTUAL_NS + (int64_t)stalled.at_ns + own.waited_ns : real_ns();
}

/* The monitor that watches the watchdog counts real time, as it does elsewhere. */
static bool is_watchdog(void) {
    if (ph_thread_kind() == PH_THREAD_HELPS) return true;
    char name[PH_THREAD_NAME_NBYTES] = "";
    prctl(PR_GET_NAME, name, 0, 0, 0);
    return ph_thread_kind() == PH_THREAD_WATCHES && strncmp(name, "pt_nccl_watchdg", 15) == 0;
}

bool ph_watchdog_jumps(const struct timespec *until) {
    unsigned stall = atomic_load(&stalled.stalls);
    if (!stall || !is_watchdog()) return false;
    if (own.stall != stall) {
        own.stall = stall;
        own.looked = false;
        return false;
    }
    if (!own.looked) own.waited_ns = 0;
    own.looked = true;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t wait_ns = (int64_t)(until->tv_sec - now.tv_sec) * S_NS + until->tv_nsec - now.tv_nsec;
    own.wait_ns = wait_ns < MS_NS ? MS_NS : (uint64_t)(wait_ns + MS_NS / 2) / MS_NS * MS_NS;
    return true;
}

int ph_watchdog_jump(void *condition, void *mutex) {
    own.waited_ns += (int64_t)own.wait_ns;
    struct ph_STALL_CLOCK told = {.at_ns = stalled.at_ns + (uint64_t)own.waited_ns};
    ph_emit_out_of_band(PH_KIND_STALL_CLOCK, &told, sizeof told, NULL, 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += JUMP_REAL_NS;
    if (until.tv_nsec >= S_NS) {
        until.tv_nsec -= S_NS;
        until.tv_sec++;
    }
    return pthread_cond_timedwait(condition, mutex, &until);
}
