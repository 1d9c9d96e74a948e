/*
 * What lies between two records is a list of launches. A training loop repeats its lists, and the work that the host
 * does before each launch, so both are named by the hash of what they hold and told when they occur first. What is left
 * is a HISTORY_ENTRY for each list and each record; these gather and leave many at a time.
 *
 * Work is counted over all threads. What the counts do not explain (sleeps, threads that wait for each other) is kept
 * as the rest of the time.
 */
#define _GNU_SOURCE
#include "op_stream/history.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/hash.h"
#include "core/lock.h"
#include "core/interned.h"
#include "core/run.h"
#include "threads/host.h"
#include "threads/sites.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_ENTRIES = 1024, MOST_TOLD = 1 << 20 };

static struct {
    uint64_t at_ns;                              /* of the last launch or record */
    uint64_t counts[PH_HOST_KINDS], modelled_ns; /* of all threads, then */
    struct ph_HISTORY_LAUNCH *launches;
    size_t nlaunches, capacity;
    struct ph_HISTORY_ENTRY entries[MANY_ENTRIES];
    uint32_t nentries;
    ph_number_set works, lists; /* that were told */
} history;

static uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 1099511628211u;
    return hash ^ (hash >> 29);
}

static void tell_work(uint64_t number, const uint64_t *counts, uint64_t modelled_ns, uint64_t rest_ns) {
    struct ph_WORK_COUNT told[PH_HOST_KINDS];
    struct ph_HISTORY_WORK record = {.work = number, .modelled_ns = modelled_ns, .rest_ns = (int64_t)rest_ns};
    for (uint32_t kind = 0; kind < PH_HOST_KINDS; kind++)
        if (counts[kind]) told[record.entries++] = (struct ph_WORK_COUNT){.kind = kind, .units = counts[kind]};
    ph_append_out_of_band(PH_KIND_HISTORY_WORK, &record, sizeof record, told, record.entries * sizeof *told);
}

/* The number of what the host has done since the last launch or record. */
static uint64_t work_until(uint64_t at_ns) {
    uint64_t counts[PH_HOST_KINDS], for_ns = at_ns - history.at_ns, hash = 14695981039346656037u;
    uint64_t modelled_ns = ph_threads_counts(counts);
    for (int kind = 0; kind < PH_HOST_KINDS; kind++) {
        uint64_t before = history.counts[kind];
        history.counts[kind] = counts[kind];
        hash = mixed(hash, counts[kind] -= before);
    }
    uint64_t spent_ns = modelled_ns - history.modelled_ns, rest_ns = for_ns - spent_ns;
    history.at_ns = at_ns;
    history.modelled_ns = modelled_ns;
    uint64_t number = mixed(mixed(hash, spent_ns), rest_ns);
    if (history.works.n < MOST_TOLD && ph_number_set_add(&history.works, number))
        tell_work(number, counts, spent_ns, rest_ns);
    return number;
}

static void add(uint64_t key, uint32_t stream, uint32_t what) {
    history.launches =
        ph_room_for_one(history.launches, history.nlaunches, &history.capacity, sizeof *history.launches);
    history.launches[history.nlaunches++] =
        (struct ph_HISTORY_LAUNCH){.key = key, .work = work_until(ph_host_clock_now()), .stream = stream, .what = what};
}

/* The rank starts: nothing of before counts. */
static void begin(uint64_t at_ns) {
    history.modelled_ns = ph_threads_counts(history.counts);
    history.at_ns = at_ns;
    history.nlaunches = history.nentries = 0;
}

void ph_history_launch(uint32_t stream, uint64_t key, bool queued) {
    add(key, stream, queued ? PH_HISTORY_QUEUED : PH_HISTORY_NODE);
}

void ph_history_wait(uint64_t key) { add(key, 0, PH_HISTORY_HOST_COPY); }

/* ---- who asks ---------------------------------------------------------------------------------------------------- */

static _Thread_local bool asked_by_torch; /* the question that the thread is about to ask */

typedef enum { OURS, TORCHS, ALLOCATORS, STREAM_QUERY, OTHERS } owner;

static owner owner_found(const void *address) {
    Dl_info about, own;
    if (!dladdr(address, &about) || !about.dli_fname || !dladdr((void *)owner_found, &own)) return OTHERS;
    if (about.dli_fbase == own.dli_fbase) return OURS;
    const char *slash = strrchr(about.dli_fname, '/'), *name = slash ? slash + 1 : about.dli_fname;
    bool torchs = strncmp(name, "libtorch_cuda", 13) == 0 || strncmp(name, "libtorch_cpu", 12) == 0 ||
                  strncmp(name, "libc10", 6) == 0;
    if (!torchs) return OTHERS;
    if (about.dli_sname && strstr(about.dli_sname, "CUDAStream5queryEv")) return STREAM_QUERY;
    return strncmp(name, "libc10_cuda", 11) == 0 ? ALLOCATORS : TORCHS; /* it queries no event for anybody else */
}

/* Whose code is at this address. It takes long to find out, and the same few places ask again and again. */
static owner owner_of(const void *address) {
    enum { PLACES = 256, SHIFT = 60 }; /* addresses of programs have 47 bits */
    static atomic_uint_fast64_t known[PLACES];
    atomic_uint_fast64_t *place = &known[((uintptr_t)address >> 2) % PLACES];
    uint64_t found = atomic_load_explicit(place, memory_order_relaxed);
    if ((found & (((uint64_t)1 << SHIFT) - 1)) != (uintptr_t)address) {
        found = (uint64_t)owner_found(address) << SHIFT | (uintptr_t)address;
        atomic_store_explicit(place, found, memory_order_relaxed);
    }
    return (owner)(found >> SHIFT);
}

bool ph_history_is_torchs(const void *address) {
    owner found = owner_of(address);
    return found == TORCHS || found == ALLOCATORS;
}
bool ph_is_allocator(const void *caller) { return owner_of(caller) == ALLOCATORS; }

static _Thread_local int python_asks;

/* by = 1: what the thread asks from now on, Python code has asked for (Work.is_completed); -1: the end of that. */
PH_EXPORT void phantora_python_asks(int by) { python_asks += by; }
PH_EXPORT int phantora_is_recorded(void) { return ph_cfg.history; }

/*
 * Does PyTorch's own C++ code ask, to let go of what finished work held? Event.query comes straight from Python's side
 * of it, and Stream.query through one function.
 */
static bool asked_by_torch_itself(void) {
    enum { MOST_FRAMES = 24 };
    void *frames[MOST_FRAMES];
    if (python_asks) return false;
    int n = backtrace(frames, MOST_FRAMES);
    owner last = OURS;
    for (int i = 0; i < n; i++) {
        owner now = owner_of(frames[i]);
        if (now == OTHERS) break;
        if (now != OURS || last == OURS) last = now;
    }
    return last == TORCHS || last == ALLOCATORS;
}

bool ph_torch_asks(void) {
    const ph_thread *thread = ph_self();
    return thread->ndispatched > thread->frame_dispatched || asked_by_torch_itself();
}

void ph_history_asks(void) { asked_by_torch = ph_torch_asks(); }

static void entry(uint64_t launches, uint64_t work, uint16_t kind, bool inside) {
    if (history.nentries == MANY_ENTRIES) ph_history_flush();
    history.entries[history.nentries++] =
        (struct ph_HISTORY_ENTRY){.launches = launches, .work = work, .kind = kind, .inside = inside};
}

void ph_history_close(void) {
    if (!history.nlaunches) return;
    uint64_t number = 14695981039346656037u;
    for (size_t i = 0; i < history.nlaunches; i++) {
        const struct ph_HISTORY_LAUNCH *launch = &history.launches[i];
        number = mixed(mixed(number, launch->key), launch->work);
        number = mixed(number, (uint64_t)launch->stream << 32 | launch->what);
    }
    if (history.lists.n < MOST_TOLD && ph_number_set_add(&history.lists, number)) {
        struct ph_HISTORY_LIST record = {.number = number, .entries = (uint32_t)history.nlaunches};
        ph_append_out_of_band(PH_KIND_HISTORY_LIST, &record, sizeof record, history.launches,
                              history.nlaunches * sizeof *history.launches);
    }
    history.nlaunches = 0;
    entry(number, 0, PH_KIND_SEGMENT, false);
}

void ph_history_record(uint16_t kind, uint64_t at_ns) {
    if (kind == PH_KIND_SEGMENT) return; /* its launches are in the history already */
    if (kind == PH_KIND_HELLO) {
        begin(at_ns);
        return;
    }
    ph_history_close();
    entry(0, work_until(at_ns), kind, asked_by_torch);
    asked_by_torch = false;
    if (kind == PH_KIND_BYE) ph_history_flush();
}

void ph_history_looked(int device) {
    static atomic_uint last; /* most programs ask at one place, if at all */
    uint32_t site = ph_site();
    if (!ph_run.started || atomic_exchange(&last, site + 1) == site + 1) return;
    struct ph_LOOKED record = {.device = (uint32_t)device, .at_site = site};
    ph_emit_out_of_band(PH_KIND_LOOKED, &record, sizeof record, NULL, 0);
}

/* ---- what kind of GPU ------------------------------------------------------------------------------------------- */

void ph_history_reads(const char *attribute) {
    static ph_number_set told; /* under the warnings' lock, which nothing is taken under */
    bool family;
    if (LIKELY(!ph_cfg.history) || !ph_run.started) return;
    uint32_t site = ph_site_of_reader(&family);
    if (!site) return;
    if (family) attribute = "bf16_supported";
    ph_lock(PH_LOCK_WARNINGS);
    bool fresh = ph_number_set_add(&told, ph_hash(site, attribute, strlen(attribute)));
    ph_unlock(PH_LOCK_WARNINGS);
    if (!fresh) return;
    struct ph_ATTRIBUTE_READ record = {.at_site = site};
    ph_emit_out_of_band(PH_KIND_ATTRIBUTE_READ, &record, sizeof record, attribute, strlen(attribute));
}

PH_EXPORT void phantora_script_reads(const char *attribute) { ph_history_reads(attribute); }

/* ctypes, NVIDIA's own bindings, and Triton's, which a script may ask as well. */
static bool is_binding(const void *caller) {
    static const char *const PARTS[] = {"/libffi", "/_ctypes", "/cuda/bindings/", "/cuda_utils"};
    Dl_info about;
    if (!dladdr(caller, &about) || !about.dli_fname) return false;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (strstr(about.dli_fname, PARTS[i])) return true;
    return false;
}

void ph_history_binding_reads(const void *caller, const char *attribute) {
    if (UNLIKELY(ph_cfg.history) && is_binding(caller)) ph_history_reads(attribute);
}

void ph_history_binding_reads_attribute(const void *caller, int attribute) {
    if (LIKELY(!ph_cfg.history)) return;
    char name[24];
    snprintf(name, sizeof name, "attr.%d", attribute);
    ph_history_binding_reads(caller, name);
}

void ph_history_flush(void) {
    if (!history.nentries) return;
    struct ph_HISTORY record = {.entries = history.nentries};
    history.nentries = 0;
    ph_append_out_of_band(PH_KIND_HISTORY, &record, sizeof record, history.entries,
                          record.entries * sizeof *history.entries);
}
