/*
 * Entries of a profile, by number. See profile.h. All state is under the record lock.
 */
#define _GNU_SOURCE
#include "cupti/profile.h"
#include "op_stream/clock.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "threads/host.h"
#include "core/run.h"
#include "../private/symbols.h"
#include "op_stream/trace.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

enum { MAX_EXTERNALS = 1024 };

typedef struct kept {
    uint64_t tsc, start_ns, end_ns, key;
    uint32_t what, correlation, thread, kind, device, stream;
    const char *name;
    uint64_t external[PH_EXTERNAL_KINDS];
    bool placed, taken;
} kept;

typedef struct known_work {
    struct ph_TRACED_WORK work;
    char *name;
} known_work;

static struct {
    bool on;
    uint64_t first; /* number of the first entry that is kept */
    kept *entries;
    size_t n, capacity, ncollected; /* entries before ncollected were taken or will never be */
    known_work **work;              /* open addressing; NULL marks a free slot */
    size_t nwork, work_capacity;
    uint64_t epoch_ns; /* Unix time at virtual time 0 */
    /* of the call that is being noted */
    uint32_t call_kind;
    const char *call_name;
} profile;

static _Thread_local struct {
    int n[PH_EXTERNAL_KINDS];
    uint64_t ids[PH_EXTERNAL_KINDS][MAX_EXTERNALS];
} *externals;

static _Thread_local uint64_t section_ns; /* see phantora_profiler_section */

/* ---- entries ----------------------------------------------------------------------------------------------------- */

void ph_profile_push(int kind, uint64_t id) {
    if (!externals) externals = ph_allocate(sizeof *externals);
    int n = externals->n[kind]++;
    if (n < MAX_EXTERNALS) externals->ids[kind][n] = id;
}

uint64_t ph_profile_pop(int kind) {
    if (!externals || externals->n[kind] == 0) return 0;
    int n = --externals->n[kind];
    return n < MAX_EXTERNALS ? externals->ids[kind][n] : 0;
}

static uint64_t external_of(int kind) {
    if (!externals || externals->n[kind] == 0) return 0;
    int n = externals->n[kind] < MAX_EXTERNALS ? externals->n[kind] : MAX_EXTERNALS;
    return externals->ids[kind][n - 1];
}

static void note_call(uint32_t kind, const char *name) {
    profile.call_kind = kind;
    profile.call_name = name;
}

static void note(uint64_t number, const struct ph_TRACE_ENTRY *entry) {
    if (!profile.on || number != profile.first + profile.n) return;
    profile.entries = ph_room_for_one(profile.entries, profile.n, &profile.capacity, sizeof *profile.entries);
    kept *it = &profile.entries[profile.n++];
    *it = (kept){.tsc = __rdtsc(),
                 .what = entry->what,
                 .correlation = entry->correlation,
                 .thread = (uint32_t)(uintptr_t)pthread_self()};
    if (entry->what != PH_TRACE_CALL) return;
    it->kind = profile.call_kind;
    it->name = profile.call_name;
    for (int kind = 0; kind < PH_EXTERNAL_KINDS; kind++) it->external[kind] = external_of(kind);
}

/* ---- from the coordinator ---------------------------------------------------------------------------------------- */

static known_work **work_slot(uint64_t key) {
    size_t mask = profile.work_capacity - 1, at = key & mask;
    while (profile.work[at] && profile.work[at]->work.key != key) at = (at + 1) & mask;
    return &profile.work[at];
}

static void take_work(const unsigned char *body, size_t nbytes) {
    known_work *it = ph_allocate(sizeof *it);
    memcpy(&it->work, body, sizeof it->work);
    it->name = ph_allocate(nbytes - sizeof it->work + 1);
    memcpy(it->name, body + sizeof it->work, nbytes - sizeof it->work);
    ph_record_lock();
    if (profile.nwork * 2 >= profile.work_capacity) {
        known_work **old = profile.work;
        size_t old_capacity = profile.work_capacity;
        profile.work_capacity = old_capacity ? 2 * old_capacity : 256;
        profile.work = ph_allocate(profile.work_capacity * sizeof *profile.work);
        for (size_t i = 0; i < old_capacity; i++)
            if (old[i]) *work_slot(old[i]->work.key) = old[i];
        free(old);
    }
    *work_slot(it->work.key) = it;
    profile.nwork++;
    ph_record_unlock();
}

static void take_traced(const unsigned char *body, size_t nbytes) {
    struct ph_TRACED head;
    memcpy(&head, body, sizeof head);
    ph_record_lock();
    for (uint32_t i = 0; i < head.entries && sizeof head + (i + 1) * sizeof(struct ph_TRACED_ENTRY) <= nbytes; i++) {
        struct ph_TRACED_ENTRY told;
        memcpy(&told, body + sizeof head + i * sizeof told, sizeof told);
        if (told.number < profile.first || told.number - profile.first >= profile.n) continue;
        kept *it = &profile.entries[told.number - profile.first];
        it->start_ns = told.start_ns;
        it->end_ns = told.end_ns;
        it->key = told.key;
        it->device = told.device;
        it->stream = told.stream;
        it->placed = true;
    }
    ph_record_unlock();
}

/* ---- for CUPTI --------------------------------------------------------------------------------------------------- */

/* Asks for the time: what was launched before the question and has ended is told before its answer. */
static void ask(void) {
    ph_trace_until_now();
    phantora_clock_ns();
}

void ph_profile_update(void) {
    if (profile.on) ask();
}

void ph_profile_collect(void (*take)(const ph_activity *, void *), void *arg) {
    if (!profile.on) return;
    for (size_t i = profile.ncollected;; i++) {
        ph_record_lock();
        if (i >= profile.n) {
            while (profile.ncollected < profile.n && profile.entries[profile.ncollected].taken) profile.ncollected++;
            ph_record_unlock();
            return;
        }
        kept *it = &profile.entries[i];
        bool gpu = it->what == PH_TRACE_LAUNCH || it->what == PH_TRACE_NCCL;
        bool ready = it->placed && !it->taken && (gpu || it->what == PH_TRACE_CALL);
        ph_activity activity = {.what = it->what,
                                .correlation = it->correlation,
                                .thread = it->thread,
                                .device = it->device,
                                .stream = it->stream,
                                .start_ns = it->start_ns,
                                .end_ns = it->end_ns,
                                .kind = it->kind,
                                .name = it->name};
        memcpy(activity.external, it->external, sizeof activity.external);
        if (ready && gpu) {
            known_work **slot = profile.work_capacity ? work_slot(it->key) : NULL;
            ready = slot && *slot;
            if (ready) {
                activity.work = &(*slot)->work;
                activity.work_name = (*slot)->name;
            }
        }
        it->taken = it->taken || ready || (!gpu && it->what != PH_TRACE_CALL);
        ph_record_unlock();
        /* Without the record lock: `take` may call the script's profiler. */
        if (ready) take(&activity, arg);
    }
}

uint64_t ph_profile_unix(uint64_t virtual_ns) { return profile.epoch_ns + virtual_ns; }

/* Does the entry tell when the host did something? */
static bool tells_host(size_t i) {
    const kept *it = &profile.entries[i];
    return it->placed && it->what != PH_TRACE_LAUNCH && it->what != PH_TRACE_NCCL;
}

uint64_t ph_profile_unix_of_tsc(uint64_t tsc) {
    ph_record_lock();
    size_t low = 0, high = profile.n; /* finds the first entry behind the time stamp */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (profile.entries[middle].tsc <= tsc)
            low = middle + 1;
        else
            high = middle;
    }
    size_t before = low, after = low; /* the entry before `before`, and `after`, tell the host's time */
    while (before > 0 && !tells_host(before - 1)) before--;
    while (after < profile.n && !tells_host(after)) after++;
    const kept *a = before > 0 ? &profile.entries[before - 1] : NULL;
    const kept *b = after < profile.n ? &profile.entries[after] : NULL;
    uint64_t at_ns = a ? a->end_ns : b ? b->start_ns : section_ns;
    if (a && b && b->start_ns > a->end_ns)
        at_ns += (uint64_t)((double)(tsc - a->tsc) / (double)(b->tsc - a->tsc) * (double)(b->start_ns - a->end_ns));
    ph_record_unlock();
    return ph_profile_unix(at_ns);
}

/* ---- PyTorch's clocks ------------------------------------------------------------------------------------------ */

/* The script's profiler begins: its time stamps become virtual time, `epoch_ns` is Unix time at virtual time 0. */
PH_EXPORT void phantora_profiler_begins(uint64_t epoch_ns) {
    if (!ph_run.started || ph_run.finished) return;
    uint64_t next = ph_trace_profile(false);
    ph_record_lock();
    profile.on = true;
    profile.epoch_ns = epoch_ns;
    profile.first = next;
    profile.n = profile.ncollected = 0;
    ph_record_unlock();
    ph_trace_profile(true);
}

PH_EXPORT void phantora_profiler_ended(void) {
    ph_trace_profile(false);
    ph_record_lock();
    profile.on = false;
    free(profile.entries);
    profile.entries = NULL;
    profile.n = profile.capacity = profile.ncollected = 0;
    ph_record_unlock();
}

/* Makes std::chrono::system_clock tell this thread that virtual time from now on; 0: real time again. */
PH_EXPORT void phantora_profiler_section(uint64_t virtual_ns) { section_ns = profile.on ? virtual_ns : 0; }

/* std::chrono::system_clock::now() */
PH_EXPORT int64_t _ZNSt6chrono3_V212system_clock3nowEv(void);
PH_EXPORT int64_t _ZNSt6chrono3_V212system_clock3nowEv(void) {
    if (section_ns) return (int64_t)ph_profile_unix(section_ns);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* std::function<int64_t(uint64_t)> of GCC's C++ library: 16 bytes of its own, then two functions. */
typedef struct converter {
    uint64_t own[2];
    bool (*manage)(void *to, const void *from, int operation);
    int64_t (*invoke)(const void *function, uint64_t *tsc);
} converter;

enum { GET_TYPE = 0, GET_FUNCTOR = 1, CLONE = 2 };

static bool manage(void *to, const void *from, int operation) {
    if (operation == CLONE || operation == GET_FUNCTOR)
        memcpy(to, operation == CLONE ? from : (const void *)&from, operation == CLONE ? 16 : sizeof from);
    else if (operation == GET_TYPE)
        memset(to, 0, sizeof(void *));
    return false;
}

static int64_t invoke(const void *function, uint64_t *tsc) {
    (void)function;
    if (*tsc & PH_VIRTUAL_TIME) return (int64_t)(*tsc & ~PH_VIRTUAL_TIME);
    return (int64_t)ph_profile_unix_of_tsc(*tsc);
}

static void *theirs(converter *result, void *self) {
    const char *name = ph_symbol_name(PH_SYMBOL_CLOCK_CONVERTER);
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), *found = library ? dlsym(library, name) : NULL;
    if (!found) ph_die("libc10.so, which called the hook library, has no makeConverter");
    void *(*make)(converter *, void *);
    memcpy(&make, &found, sizeof make);
    return make(result, self);
}

/* c10::ApproximateClockToUnixTimeConverter::makeConverter(): what turns time stamps into Unix time. */
PH_EXPORT void *_ZN3c1035ApproximateClockToUnixTimeConverter13makeConverterEv(converter *result, void *self);
PH_EXPORT void *_ZN3c1035ApproximateClockToUnixTimeConverter13makeConverterEv(converter *result, void *self) {
    if (!profile.on) return theirs(result, self);
    ask();
    *result = (converter){.manage = manage, .invoke = invoke};
    return result;
}

void ph_profile_connect(void) {
    PH_CONNECT(ph_profiler.note, note);
    PH_CONNECT(ph_profiler.call, note_call);
    ph_on_record(PH_KIND_TRACED, take_traced);
    ph_on_record(PH_KIND_TRACED_WORK, take_work);
}
