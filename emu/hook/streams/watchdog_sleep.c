/*
 * The watchdog of ProcessGroupNCCL looks at all its work ten times a second of real time. Hundreds of ranks that share
 * a few processors spend a tenth of them so, and most looks find nothing: while the program makes calls, only work
 * that a launch has made visible (watch.c) counts as done. Here the watchdog's sleep goes on in these cases.
 *
 * PyTorch's library waits on a condition variable of the C library, which comes before this one in the global scope. So
 * its import is replaced where the dynamic linker keeps it.
 */
#define _GNU_SOURCE
#include "core/run.h"
#include "../private/symbols.h"
#include "threads/thread.h"
#include "streams/watch.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A monitor of PyTorch's ends the process if the watchdog does not look for minutes. */
enum { PERIOD_NS = 100000000, MOST_PERIODS = 50 };

/* Can the calling watchdog find anything that it has not found before? */
static bool looking_is_idle(void) {
    static _Thread_local uint64_t seen_calls;
    uint64_t calls = atomic_load(&ph_counts.api_calls);
    bool active = calls != seen_calls;
    seen_calls = calls;
    return active && !ph_run.finished && !ph_watch_any_visible() && !ph_stalled();
}

static void add_period(struct timespec *until) {
    until->tv_nsec += PERIOD_NS;
    if (until->tv_nsec >= 1000000000) {
        until->tv_nsec -= 1000000000;
        until->tv_sec++;
    }
}

static int sleep_on(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    if (UNLIKELY(ph_run.mortal) && ph_watchdog_jumps(until)) return ph_watchdog_jump(condition, mutex);
    struct timespec next = *until;
    int status = pthread_cond_timedwait(condition, mutex, &next);
    if (ph_thread_kind() != PH_THREAD_WATCHES) return status;
    for (int periods = 1; status == ETIMEDOUT && periods < MOST_PERIODS && looking_is_idle(); periods++) {
        add_period(&next);
        status = pthread_cond_timedwait(condition, mutex, &next);
    }
    return status;
}

/* Returns what the library gets in place of the function of this name; NULL: nothing. */
static void *replacement(const char *symbol) {
    if (strcmp(symbol, ph_symbol_name(PH_SYMBOL_WATCHDOG_WAIT)) == 0) return (void *)sleep_on;
    bool clock = ph_run.mortal && strcmp(symbol, ph_symbol_name(PH_SYMBOL_STEADY_CLOCK)) == 0;
    return clock ? (void *)ph_watchdog_now : NULL;
}

static void replace(void **slot, void *function) {
    uintptr_t page = (uintptr_t)slot & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    if (mprotect((void *)page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) == 0)
        __atomic_store(slot, &function, __ATOMIC_RELEASE);
}

void ph_watchdog_sleeps_in(const char *library) {
    struct link_map *map = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!map) return;
    const char *names = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) * imports[2] = {NULL, NULL};
    size_t nbytes[2] = {0, 0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) imports[0] = (const ElfW(Rela) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) nbytes[0] = entry->d_un.d_val;
        if (entry->d_tag == DT_RELA) imports[1] = (const ElfW(Rela) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_RELASZ) nbytes[1] = entry->d_un.d_val;
    }
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; names && symbols && imports[table] && i < nbytes[table] / sizeof *imports[table]; i++) {
            const ElfW(Rela) *import = &imports[table][i];
            void *function = replacement(names + symbols[ELF64_R_SYM(import->r_info)].st_name);
            if (function) replace((void **)(map->l_addr + import->r_offset), function);
        }
    dlclose(map);
}
