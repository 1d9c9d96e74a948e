/*
 * Who holds device memory when most of it is allocated: every block that PyTorch's allocator has given out, with the
 * operation and the line of the script that asked for it, and what it is for.
 *
 * The blocks of the peak are those that were given out before it and are held, and those that have been taken back
 * since, which are kept until the next peak. So nothing is copied while memory grows.
 *
 * Lines are looked up while memory grows: a look takes longer than all else. A step that has brought no new peak ends
 * it, and the next new peak begins it again.
 *
 * What a block is for is known when it is given out (an activation if autograd may save it), when it is taken back (a
 * temporary if the operation that asked for it still runs), or from Python at the end of a step (parameters, gradients,
 * the optimizer's state: emu/interpreter/memory_holders.py).
 */
#define _GNU_SOURCE
#include "holders/holders.h"
#include "core/lock.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/hash.h"
#include "threads/host.h"
#include "data/data.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/server_memory.h"
#include "memory/vmm.h"
#include "nvtx/nvtx.h"
#include "core/run.h"
#include "threads/modules.h"
#include "threads/sites.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024, MOST_OP_NAME = 256, MANY_BLOCKS = 20000 /* without a step's end */ };

typedef struct holder {
    struct holder *next;
    uintptr_t start;
    uint64_t nbytes, number; /* number: of the allocation, from 1 */
    const char *op;          /* NULL: none */
    const ph_thread *thread;
    uint64_t outer_ops; /* of the thread, when the block was given out */
    uint64_t launched;  /* the last collective that was given it; 0: none was */
    uint32_t step;      /* that of this collective */
    uint16_t site, module;
    uint8_t held_as, device;
    bool counted;                  /* a compiler's blocks are not */
    bool in_python, again, spared; /* again: of more than one collective; spared: free, says least_peak.c */
} holder;

typedef struct device_state {
    uint64_t live, peak, peak_number, peak_reserved;
    holder *gone;            /* blocks of the peak that have been taken back */
    ph_over_step *over_step; /* NULL: no block has been given out */
    ph_least *least;         /* likewise */
    ph_growth *growth;       /* likewise */
    uint32_t told_growth;    /* steps of it that were told */
    bool grew;               /* since it was told */
    uint64_t missing, missing_held, missing_reserved, failures;
    uint16_t missing_site;
} device_state;

static struct {
    holder **buckets, *unused;
    size_t nbuckets, n;
    uint64_t number;
    uint64_t grew_at;           /* the number of the last block that brought a peak */
    uint32_t step, launched_in; /* the present step; that of the last collective */
    bool grew_in_step;          /* since a step has ended */
    atomic_bool steady;         /* lines are not looked up */
    device_state devices[PH_MAX_DEVICES];
} state;

/* ---- live blocks by address, under the lock ------------------------------------------------------------------------
 */

static holder **bucket_of(uintptr_t start) { return &state.buckets[ph_mix(1, start) & (state.nbuckets - 1)]; }

static void grow(void) {
    holder **old = state.buckets;
    size_t before = state.nbuckets;
    state.nbuckets = before ? 2 * before : FIRST_BUCKETS;
    state.buckets = ph_allocate(state.nbuckets * sizeof *state.buckets);
    for (size_t i = 0; i < before; i++)
        for (holder *it = old[i], *next; it; it = next) {
            next = it->next;
            holder **bucket = bucket_of(it->start);
            it->next = *bucket;
            *bucket = it;
        }
    free(old);
}

static holder *find(uintptr_t start) {
    holder *it = state.nbuckets ? *bucket_of(start) : NULL;
    while (it && it->start != start) it = it->next;
    return it;
}

static holder *take_out(uintptr_t start) {
    if (!state.nbuckets) return NULL;
    holder **at = bucket_of(start);
    while (*at && (*at)->start != start) at = &(*at)->next;
    holder *it = *at;
    if (it) {
        *at = it->next;
        state.n--;
    }
    return it;
}

static void put_in(holder *it) {
    if (state.n >= state.nbuckets) grow();
    holder **bucket = bucket_of(it->start);
    it->next = *bucket;
    *bucket = it;
    state.n++;
}

static void drop(holder *it) {
    it->next = state.unused;
    state.unused = it;
}

static holder *new_holder(void) {
    holder *it = state.unused;
    if (it)
        state.unused = it->next;
    else
        it = ph_allocate(sizeof *it);
    return it;
}

/* ---- what a block is for -------------------------------------------------------------------------------------------
 */

/* Under the lock. */
static void held_for(holder *it, uint8_t purpose) {
    if (it->counted && it->held_as != purpose)
        ph_over_step_move(state.devices[it->device].over_step, it->number, it->nbytes, it->held_as, purpose);
    it->held_as = purpose;
}

/* Under the lock. */
static void step_begins(void) {
    state.step++;
    for (int device = 0; device < PH_MAX_DEVICES; device++)
        if (state.devices[device].over_step) ph_over_step_next(state.devices[device].over_step, state.number);
}

/* ---- the allocator -------------------------------------------------------------------------------------------------
 */

static void given_out(int device, uintptr_t start, uint64_t nbytes, uint64_t reserved) {
    const ph_thread *thread = ph_self();
    bool counted = !ph_uncounted();
    uint16_t site = counted && !atomic_load_explicit(&state.steady, memory_order_relaxed) ? ph_site() : 0;
    bool backward;
    uint16_t module = counted && !atomic_load_explicit(&state.steady, memory_order_relaxed) ? ph_module(&backward) : 0;
    const char *op = ph_current_work();
    uint8_t guess = ph_first_guess(thread);
    ph_lock(PH_LOCK_HOLDERS);
    holder *it = new_holder();
    *it = (holder){.start = start,
                   .nbytes = nbytes,
                   .number = ++state.number,
                   .op = op,
                   .thread = thread,
                   .outer_ops = thread->outer_ops,
                   .site = site,
                   .module = module,
                   .held_as = guess,
                   .device = (uint8_t)device,
                   .counted = counted};
    put_in(it);
    device_state *own = &state.devices[device];
    if (!own->over_step) {
        own->over_step = ph_over_step_make(it->number - 1);
        own->least = ph_least_make();
        own->growth = ph_growth_make();
    }
    if (counted) {
        own->live += nbytes;
        ph_least_change(own->least, (int64_t)nbytes);
        ph_over_step_change(own->over_step, it->number, (int64_t)nbytes, guess);
    }
    if (counted && own->live > own->peak) {
        own->peak = own->live;
        own->peak_number = it->number;
        own->peak_reserved = reserved;
        own->grew = state.grew_in_step = true;
        state.grew_at = it->number;
        atomic_store_explicit(&state.steady, false, memory_order_relaxed);
        /* Blocks that had gone since the former peak do not count in this one. */
        for (holder *gone = own->gone, *next; gone; gone = next) {
            next = gone->next;
            drop(gone);
        }
        own->gone = NULL;
    } else if (it->number - state.grew_at > MANY_BLOCKS) {
        /* So many blocks without a new peak: until there is one, nobody needs to know their lines. */
        atomic_store_explicit(&state.steady, true, memory_order_relaxed);
    }
    if (counted) ph_server_memory_peak(device, own->peak, reserved);
    ph_unlock(PH_LOCK_HOLDERS);
}

static void taken_back(uintptr_t start) {
    const ph_thread *thread = ph_self();
    bool let_go = ph_in_process_group();
    ph_lock(PH_LOCK_HOLDERS);
    holder *it = take_out(start);
    device_state *own = it ? &state.devices[it->device] : NULL;
    if (it && it->counted) {
        bool in_its_op = it->thread == thread && thread->ndispatched && it->outer_ops == thread->outer_ops;
        if (in_its_op && it->held_as == PH_HELD_ACTIVATIONS) held_for(it, PH_HELD_TEMPORARIES);
        own->live -= it->nbytes;
        if (let_go && it->launched && !it->spared) {
            ph_least_since(own->least, it->launched, it->nbytes);
            own->grew = true;
        }
        if (!it->spared) ph_least_change(own->least, -(int64_t)it->nbytes);
        ph_over_step_change(own->over_step, state.number, -(int64_t)it->nbytes, it->held_as);
    }
    if (it && it->counted && it->number <= own->peak_number) {
        /* It was there at the peak, whose holders may yet be asked for. */
        it->next = own->gone;
        own->gone = it;
    } else if (it) {
        drop(it);
    }
    ph_unlock(PH_LOCK_HOLDERS);
}

void ph_holders_block(int device, const void *start, int64_t nbytes, uint64_t reserved) {
    if (ph_run.orphan || device < 0 || device >= PH_MAX_DEVICES) return;
    if (nbytes > 0)
        given_out(device, (uintptr_t)start, (uint64_t)nbytes, reserved);
    else
        taken_back((uintptr_t)start);
}

void ph_holders_launch(void) {
    ph_lock(PH_LOCK_HOLDERS);
    for (int device = 0; device < PH_MAX_DEVICES; device++)
        if (state.devices[device].least) ph_least_launch(state.devices[device].least);
    ph_unlock(PH_LOCK_HOLDERS);
}

bool ph_holders_collective(int device, const void *input, const void *output) {
    const void *buffers[] = {input, output};
    bool first = false;
    if (ph_run.orphan || device < 0 || device >= PH_MAX_DEVICES || ph_uncounted()) return false;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        uintptr_t start = buffers[i] ? ph_data_block_start(buffers[i]) : 0;
        ph_lock(PH_LOCK_HOLDERS);
        device_state *own = &state.devices[device];
        holder *it = start ? find(start) : NULL;
        if (it && it->device == device) {
            first |= !it->launched;
            uint64_t now = ph_least_launched(own->least);
            it->again |= it->launched && it->launched != now; /* it may be input and output of this one */
            it->launched = now;
            it->step = state.launched_in = state.step;
            if (it->spared) ph_least_change(own->least, (int64_t)it->nbytes);
            it->spared = false;
        }
        ph_unlock(PH_LOCK_HOLDERS);
    }
    return first;
}

/* `held`: what the device holds that this request could not have had; `reserved`: that, and the allocator's cache. */
static void missing(int device, uint64_t nbytes, uint64_t held, uint64_t reserved) {
    uint16_t site = ph_site();
    ph_lock(PH_LOCK_HOLDERS);
    device_state *own = &state.devices[device];
    own->missing = nbytes;
    own->missing_held = held;
    own->missing_reserved = reserved;
    own->missing_site = site;
    own->failures++;
    own->grew = true;
    ph_unlock(PH_LOCK_HOLDERS);
}

static bool is_told_of(int device) {
    return !ph_run.orphan && device >= 0 && device < PH_MAX_DEVICES && !ph_uncounted();
}

void ph_holders_missing(int device, uint64_t nbytes, uint64_t reserved) {
    if (!is_told_of(device)) return;
    uint64_t used = ph_memory_used(device), outside = used > reserved ? used - reserved : 0;
    missing(device, nbytes, state.devices[device].live + outside, reserved + outside);
}

void ph_holders_missing_outside(int device, uint64_t nbytes) {
    if (!is_told_of(device)) return;
    uint64_t used = ph_memory_used(device);
    missing(device, nbytes, used, used);
}

/* ---- called by ctypes ----------------------------------------------------------------------------------------------
 */

/* Returns who holds what, whatever for. Called under the lock. */
static ph_holder_groups live_groups(int device) {
    ph_holder_groups all = ph_holder_groups_make(state.n);
    for (size_t i = 0; i < state.nbuckets; i++)
        for (const holder *it = state.buckets[i]; it; it = it->next)
            if (it->counted && it->device == device) ph_holder_groups_add(&all, it->nbytes, 0, it->site, it->op);
    return all;
}

static bool differs_from_told(const device_state *own) {
    return own->growth && ph_growth_found(own->growth).steps != own->told_growth;
}

/* Under the lock. Growth is told when it is found and when it has ended; how long it has lasted, at the rank's end. */
static void compare_with_last_steps(int device) {
    device_state *own = &state.devices[device];
    if (!own->growth) return;
    bool grows = ph_growth_step(own->growth, own->live);
    if (grows) {
        ph_growth_held(own->growth, live_groups(device));
        state.grew_in_step = true; /* the lines of what comes next are wanted */
    }
    bool found = ph_growth_found(own->growth).steps > 0;
    if (found != (own->told_growth > 0)) own->grew = true;
}

/* Is there a peak, or growth, that has not been told? */
PH_EXPORT int phantora_memory_grew(void) {
    ph_lock(PH_LOCK_HOLDERS);
    bool grew = false;
    for (int device = 0; device < ph_cfg.device_count; device++) {
        state.devices[device].grew |= differs_from_told(&state.devices[device]);
        grew |= state.devices[device].grew;
    }
    ph_unlock(PH_LOCK_HOLDERS);
    return grew;
}

/* A step ends. Is there a peak that has not been told, or growth that has begun or ended? */
PH_EXPORT int phantora_memory_step(void) {
    ph_lock(PH_LOCK_HOLDERS);
    for (int device = 0; device < ph_cfg.device_count; device++) compare_with_last_steps(device);
    atomic_store_explicit(&state.steady, !state.grew_in_step, memory_order_relaxed);
    state.grew_in_step = false;
    bool grew = false;
    for (int device = 0; device < ph_cfg.device_count; device++) grew |= state.devices[device].grew;
    if (!grew) step_begins(); /* else phantora_memory_tell follows */
    ph_unlock(PH_LOCK_HOLDERS);
    return grew;
}

/* Storages of tensors begin at these addresses. `held_as`: what for; 0: Python has them, no more is known. */
PH_EXPORT void phantora_memory_held(uint32_t held_as, const uint64_t *addresses, int n) {
    for (int i = 0; i < n; i++) {
        uintptr_t within = ph_data_block_start((const void *)(uintptr_t)addresses[i]);
        ph_lock(PH_LOCK_HOLDERS);
        holder *it = find(within ? within : (uintptr_t)addresses[i]);
        if (it) it->in_python = true;
        if (it && held_as) held_for(it, (uint8_t)held_as);
        ph_unlock(PH_LOCK_HOLDERS);
    }
}

/* Storages of a module's parameters, of their gradients or of an optimizer's state of them begin at these addresses.
 * `module`: its number; 0: they are of several. */
PH_EXPORT void phantora_memory_of(uint32_t module, const uint64_t *addresses, int n) {
    for (int i = 0; i < n; i++) {
        uintptr_t within = ph_data_block_start((const void *)(uintptr_t)addresses[i]);
        ph_lock(PH_LOCK_HOLDERS);
        holder *it = find(within ? within : (uintptr_t)addresses[i]);
        if (it) it->module = (uint16_t)module;
        ph_unlock(PH_LOCK_HOLDERS);
    }
}

/* ---- what the coordinator is told ----------------------------------------------------------------------------------
 */

static void add(ph_holder_groups *to, const holder *it, bool by_module) {
    if (by_module)
        ph_holder_groups_add(to, it->nbytes, it->held_as, it->module, NULL);
    else
        ph_holder_groups_add(to, it->nbytes, it->held_as, it->site, it->op);
}

/* The blocks of the peak. `by_module`: in groups by module in place of site and operation. Under the lock. */
static ph_holder_groups groups_of(int device, bool by_module) {
    const device_state *own = &state.devices[device];
    size_t blocks = state.n;
    for (const holder *it = own->gone; it; it = it->next) blocks++;
    ph_holder_groups all = ph_holder_groups_make(blocks);
    for (size_t i = 0; i < state.nbuckets; i++)
        for (const holder *it = state.buckets[i]; it; it = it->next)
            if (it->counted && it->device == device && it->number <= own->peak_number) add(&all, it, by_module);
    for (const holder *it = own->gone; it; it = it->next) add(&all, it, by_module);
    return all;
}

static void tell_modules(int device) {
    ph_lock(PH_LOCK_HOLDERS);
    ph_holder_groups groups = groups_of(device, true);
    ph_unlock(PH_LOCK_HOLDERS);
    struct ph_MODULE_MEMORY record = {.device = (uint32_t)device};
    struct ph_MODULE_HELD *told = ph_allocate((groups.n + 1) * sizeof *told);
    for (size_t i = 0; i < groups.capacity; i++) {
        const ph_holder_group *one = &groups.slots[i];
        if (one->blocks)
            told[record.entries++] = (struct ph_MODULE_HELD){
                .nbytes = one->nbytes, .blocks = one->blocks, .held_as = one->held_as, .module = one->site};
    }
    ph_emit_out_of_band(PH_KIND_MODULE_MEMORY, &record, sizeof record, told, record.entries * sizeof *told);
    free(told);
    free(groups.slots);
}

static void tell(int device) {
    ph_holder_group told[PH_MOST_HOLDER_GROUPS];
    char payload[PH_MOST_HOLDER_GROUPS * (sizeof(struct ph_MEMORY_HOLDER) + MOST_OP_NAME) +
                 PH_MOST_STEP_POINTS * sizeof(struct ph_MEMORY_POINT) + MOST_OP_NAME];
    struct ph_MEMORY_POINT points[PH_MOST_STEP_POINTS];
    ph_lock(PH_LOCK_HOLDERS);
    device_state *own = &state.devices[device];
    ph_holder_groups groups = groups_of(device, false);
    size_t n = ph_holder_groups_take(&groups, told), nbytes = n * sizeof(struct ph_MEMORY_HOLDER);
    size_t npoints = own->over_step ? ph_over_step_points(own->over_step, points) : 0;
    struct ph_MEMORY_HELD record = {.device = (uint32_t)device,
                                    .entries = (uint32_t)n,
                                    .allocated = own->peak,
                                    .reserved = own->peak_reserved,
                                    .missing = own->missing,
                                    .missing_allocated = own->missing_held,
                                    .missing_reserved = own->missing_reserved,
                                    .failures = (uint32_t)own->failures,
                                    .missing_site = own->missing_site,
                                    .child = ph_run.child,
                                    .parent = ph_run.parent,
                                    .gpu = (uint32_t)ph_visible_gpu(device),
                                    .points = (uint32_t)npoints,
                                    .allocations = own->over_step ? ph_over_step_allocations(own->over_step) : 0,
                                    .least = own->least ? ph_least_peak(own->least) : 0};
    ph_grown grown = own->growth ? ph_growth_found(own->growth) : (ph_grown){0};
    record.growth = grown.nbytes;
    record.growth_steps = grown.steps;
    record.growth_site = grown.site;
    record.growth_equal = grown.equal;
    record.expandable = ph_vmm_any();
    own->told_growth = grown.steps;
    own->grew = false;
    ph_unlock(PH_LOCK_HOLDERS);
    memcpy(payload + nbytes, points, npoints * sizeof *points);
    nbytes += npoints * sizeof *points;
    for (size_t i = 0; i < n; i++) {
        struct ph_MEMORY_HOLDER entry = {
            .nbytes = told[i].nbytes, .blocks = told[i].blocks, .held_as = told[i].held_as, .site = told[i].site};
        memcpy(payload + i * sizeof entry, &entry, sizeof entry);
        const char *op = told[i].op ? told[i].op : "";
        size_t length = strnlen(op, MOST_OP_NAME - 1);
        memcpy(payload + nbytes, op, length);
        payload[nbytes + length] = '\n';
        nbytes += length + 1;
    }
    size_t length = grown.op ? strnlen(grown.op, MOST_OP_NAME - 1) : 0;
    if (length) memcpy(payload + nbytes, grown.op, length);
    nbytes += length;
    ph_emit_out_of_band(PH_KIND_MEMORY_HELD, &record, sizeof record, payload, nbytes);
    if (ph_modules_known && !ph_run.child) tell_modules(device);
}

/* A block that one collective was given, in a step before the last one that had collectives, and that Python has no
 * tensor of: nobody but the process group is known to keep it. If the run is short it never lets go. Under the lock. */
static void spare(holder *it) {
    bool left = it->launched && !it->again && !it->in_python && it->step != state.launched_in;
    if (!left || it->spared || !it->counted) return;
    it->spared = true;
    ph_least_since(state.devices[it->device].least, it->launched, it->nbytes);
    ph_least_change(state.devices[it->device].least, -(int64_t)it->nbytes);
}

/* `step_ends`: blocks that outlive a step although Python has no tensor of them are libraries' workspaces. */
PH_EXPORT void phantora_memory_tell(int step_ends) {
    ph_lock(PH_LOCK_HOLDERS);
    for (size_t i = 0; i < state.nbuckets; i++)
        for (holder *it = state.buckets[i]; it; it = it->next) {
            if (step_ends && !it->in_python && it->held_as == PH_HELD_ACTIVATIONS) held_for(it, PH_HELD_TEMPORARIES);
            if (step_ends) spare(it);
            it->in_python = false;
        }
    ph_unlock(PH_LOCK_HOLDERS);
    for (int device = 0; device < ph_cfg.device_count; device++)
        if (state.devices[device].grew) tell(device);
    if (!step_ends) return;
    ph_lock(PH_LOCK_HOLDERS);
    step_begins();
    ph_unlock(PH_LOCK_HOLDERS);
}
