/*
 * The device address space: one range of host addresses, which takes no memory until it is touched.
 *
 *   [device 0 | device 1 | ... | addresses for virtual memory management]
 *
 * The slice of a device is larger than its memory. A real GPU can map any free physical pages to a new address, so
 * holes between allocations do not reduce what can be allocated; the capacity is counted apart from the addresses.
 * Large requests get whole 2 MiB pages; small ones share pages and are aligned to 512 bytes, as with cudaMalloc.
 *
 * CUDA reserves addresses in multiples of 32 MiB, each below the last, and fills them from their low end. Of equal free
 * blocks PyTorch's allocator takes the one with the lowest address, so what it reserves depends on that. Here, too, an
 * allocation takes the lowest hole in what is reserved, and addresses are the same in every run.
 */
#define _GNU_SOURCE
#include "memory/memory.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "core/config.h"
#include "op_stream/history.h"
#include "threads/host.h"
#include "device/device.h"
#include "memory/search.h"
#include "memory/server_memory.h"
#include "memory/vmm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 512, UNITS = PH_PAGE / ALIGNMENT, WORDS = UNITS / 64, SMALL = 1 << 20, SLICES_PER_MEMORY = 4 };
#define STATIC_NBYTES ((size_t)256 << 20) /* at the end of each slice, not part of the capacity */
#define MAPPED_NBYTES ((size_t)16 << 40)
#define RESERVED_AT_ONCE ((size_t)32 << 20)

typedef struct chunk { /* a page shared by small allocations: a bit for each unit, set if it is in use */
    uint64_t used[WORDS];
    uint16_t nunits[UNITS]; /* length of the allocation that begins there */
    int live;
} chunk;

typedef struct block {
    size_t offset, nbytes;
    chunk *small;
} block;

typedef struct device_memory {
    block *blocks; /* sorted by offset */
    size_t nblocks, capacity;
    uint64_t used, peak;
    size_t static_used, below; /* below: how far from the end of the slice addresses are reserved */
} device_memory;

struct ph_memory_map ph_mem;
void (*ph_pages_dropped)(const void *start, size_t nbytes);
static struct {
    device_memory devices[PH_MAX_DEVICES];
} memory;

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

int ph_memory_reserve(void) {
    ph_mem.slice_nbytes = round_up(ph_cfg.memory_nbytes * SLICES_PER_MEMORY, PH_PAGE) + STATIC_NBYTES;
    ph_mem.capacity = ph_cfg.memory_nbytes - ph_cfg.reserved_nbytes;
    ph_mem.mapped_nbytes = MAPPED_NBYTES;
    ph_mem.nbytes = ph_mem.slice_nbytes * (size_t)ph_cfg.device_count + MAPPED_NBYTES;
    void *at =
        mmap(NULL, ph_mem.nbytes + PH_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return -1;
    madvise(at, ph_mem.nbytes + PH_PAGE, MADV_DONTDUMP);
    madvise(at, ph_mem.nbytes + PH_PAGE, MADV_NOHUGEPAGE); /* else touching one byte would take 2 MiB */
    ph_mem.base = (unsigned char *)round_up((uintptr_t)at, PH_PAGE);
    ph_server_memory_make();
    ph_mem.mapped_area = ph_mem.base + ph_mem.slice_nbytes * (size_t)ph_cfg.device_count;
    return 0;
}

bool ph_is_device_pointer(const void *p) { return (size_t)((const unsigned char *)p - ph_mem.base) < ph_mem.nbytes; }

static int slice_of(const void *p) {
    size_t offset = (size_t)((const unsigned char *)p - ph_mem.base);
    return ph_is_device_pointer(p) && offset < ph_mem.slice_nbytes * (size_t)ph_cfg.device_count
               ? (int)(offset / ph_mem.slice_nbytes)
               : -1;
}

void ph_memory_drop_pages(void *start, size_t nbytes) {
    uintptr_t from = round_up((uintptr_t)start, 4096), to = ((uintptr_t)start + nbytes) & ~(uintptr_t)4095;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
    ph_pages_dropped(start, nbytes);
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

static int take(device_memory *device, size_t nbytes) {
    if (nbytes > ph_mem.capacity || device->used > ph_mem.capacity - nbytes) return CUDA_OUT_OF_MEMORY;
    device->used += nbytes;
    if (device->used > device->peak && !ph_uncounted()) device->peak = device->used;
    return CUDA_OK;
}

int ph_memory_take(int device, size_t nbytes) {
    ph_lock(PH_LOCK_MEMORY);
    int status = take(&memory.devices[device], nbytes);
    ph_unlock(PH_LOCK_MEMORY);
    return status;
}

void ph_memory_give(int device, size_t nbytes) {
    ph_lock(PH_LOCK_MEMORY);
    memory.devices[device].used -= nbytes;
    ph_unlock(PH_LOCK_MEMORY);
}

uint64_t ph_memory_used(int device) { return memory.devices[device].used; }
uint64_t ph_memory_peak(int device) { return memory.devices[device].peak; }

void ph_memory_info(int gpu, size_t *free_nbytes, size_t *total_nbytes) {
    int device = ph_visible_as(gpu);
    if (UNLIKELY(ph_cfg.history)) ph_history_looked(device);
    uint64_t used = ph_server_memory_of_others(gpu);
    ph_lock(PH_LOCK_MEMORY);
    if (device >= 0) used += memory.devices[device].used;
    ph_unlock(PH_LOCK_MEMORY);
    *free_nbytes = used < ph_mem.capacity ? ph_mem.capacity - used : 0;
    *total_nbytes = ph_cfg.memory_nbytes;
}

/* ---- blocks of whole pages, under the lock ----------------------------------------------------------------------- */

static ptrdiff_t block_at(const device_memory *device, size_t offset) {
    return ph_last_at_or_below(device->blocks, device->nblocks, sizeof *device->blocks, offset);
}

static size_t end_of_slice(void) { return (ph_mem.slice_nbytes - STATIC_NBYTES) / RESERVED_AT_ONCE * RESERVED_AT_ONCE; }

/* The lowest hole from `offset` on that has so many bytes; `before`: the block that follows it. */
static size_t lowest_hole(const device_memory *device, size_t offset, size_t nbytes, size_t *before) {
    size_t i = 0;
    for (; i < device->nblocks && device->blocks[i].offset - offset < nbytes; i++)
        offset = device->blocks[i].offset + device->blocks[i].nbytes;
    *before = i;
    return offset;
}

static block *insert(device_memory *device, size_t nbytes) {
    size_t end = end_of_slice(), more = round_up(nbytes, RESERVED_AT_ONCE), i;
    size_t offset = lowest_hole(device, end - device->below, nbytes, &i);
    if (offset + nbytes > end) {
        device->below = more < end - device->below ? device->below + more : end;
        offset = lowest_hole(device, end - device->below, nbytes, &i);
    }
    if (offset + nbytes > end || take(device, nbytes) != CUDA_OK) return NULL;
    device->blocks = ph_room_for_one(device->blocks, device->nblocks, &device->capacity, sizeof *device->blocks);
    memmove(device->blocks + i + 1, device->blocks + i, (device->nblocks - i) * sizeof *device->blocks);
    device->nblocks++;
    device->blocks[i] = (block){.offset = offset, .nbytes = nbytes};
    return &device->blocks[i];
}

static void erase(device_memory *device, ptrdiff_t i) {
    device->used -= device->blocks[i].nbytes;
    device->nblocks--;
    memmove(device->blocks + i, device->blocks + i + 1, (device->nblocks - (size_t)i) * sizeof *device->blocks);
    size_t lowest = device->nblocks ? device->blocks[0].offset : end_of_slice();
    device->below = round_up(end_of_slice() - lowest, RESERVED_AT_ONCE);
}

/* ---- small allocations within a shared page ---------------------------------------------------------------------- */

static bool bit(const chunk *c, int unit) { return c->used[unit / 64] >> (unit % 64) & 1; }
static void flip(chunk *c, int unit) { c->used[unit / 64] ^= 1ull << (unit % 64); }

static int chunk_take(chunk *c, int nunits) {
    for (int at = 0, run = 0; at < UNITS; at++) {
        run = bit(c, at) ? 0 : run + 1;
        if (run < nunits) continue;
        int start = at - nunits + 1;
        for (int unit = start; unit <= at; unit++) flip(c, unit);
        c->nunits[start] = (uint16_t)nunits;
        c->live++;
        return start;
    }
    return -1;
}

static void *alloc_small(device_memory *device, unsigned char *slice, size_t nbytes) {
    int nunits = (int)((nbytes + ALIGNMENT - 1) / ALIGNMENT), unit;
    for (size_t i = 0; i < device->nblocks; i++)
        if (device->blocks[i].small && (unit = chunk_take(device->blocks[i].small, nunits)) >= 0)
            return slice + device->blocks[i].offset + (size_t)unit * ALIGNMENT;
    block *page = insert(device, PH_PAGE);
    if (!page) return NULL;
    page->small = ph_allocate(sizeof *page->small);
    chunk_take(page->small, nunits);
    return slice + page->offset;
}

int ph_device_alloc(int device, size_t nbytes, void **out) {
    *out = NULL;
    int status = ph_device_usable();
    if (status || nbytes == 0) return status;
    ph_context_use(device);
    unsigned char *slice = ph_mem.base + ph_mem.slice_nbytes * (size_t)device;
    device_memory *own = &memory.devices[device];
    ph_lock(PH_LOCK_MEMORY);
    if (nbytes <= SMALL)
        *out = alloc_small(own, slice, nbytes);
    else if (nbytes <= ph_mem.capacity) {
        block *pages = insert(own, round_up(nbytes, PH_PAGE));
        *out = pages ? slice + pages->offset : NULL;
    }
    ph_unlock(PH_LOCK_MEMORY);
    return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* The allocation that an offset lies in: its block, and in a shared page its first unit. NULL if there is none. */
static block *find(device_memory *device, size_t offset, ptrdiff_t *index, int *unit) {
    *index = block_at(device, offset);
    if (*index < 0) return NULL;
    block *found = &device->blocks[*index];
    if (offset - found->offset >= found->nbytes) return NULL;
    *unit = 0;
    if (found->small) {
        int at = (int)((offset - found->offset) / ALIGNMENT);
        if (!bit(found->small, at)) return NULL;
        while (!found->small->nunits[at]) at--;
        *unit = at;
    }
    return found;
}

/* The pages are dropped before another thread can be given the addresses. */
int ph_device_free(void *p) {
    if (!p) return CUDA_OK;
    int slice = slice_of(p), unit;
    if (slice < 0) return CUDA_INVALID_VALUE;
    device_memory *device = &memory.devices[slice];
    size_t offset = (size_t)((unsigned char *)p - ph_mem.base) - ph_mem.slice_nbytes * (size_t)slice;
    ptrdiff_t index;
    ph_lock(PH_LOCK_MEMORY);
    block *found = find(device, offset, &index, &unit);
    bool begins = found && found->offset + (size_t)unit * ALIGNMENT == offset;
    if (begins && found->small) {
        chunk *c = found->small;
        ph_memory_drop_pages(p, (size_t)c->nunits[unit] * ALIGNMENT);
        for (int at = unit; at < unit + c->nunits[unit]; at++) flip(c, at);
        c->nunits[unit] = 0;
        if (--c->live == 0) {
            free(c);
            erase(device, index);
        }
    } else if (begins) {
        ph_memory_drop_pages(p, found->nbytes);
        erase(device, index);
    }
    ph_unlock(PH_LOCK_MEMORY);
    return begins ? CUDA_OK : CUDA_INVALID_VALUE;
}

int ph_memory_device_of(const void *p) {
    int device = slice_of(p);
    if (device >= 0 || !ph_is_device_pointer(p)) return device;
    return ph_vmm_range_of(p, &device, NULL, NULL) ? device : -1;
}

/* The allocation that an address lies in. */
int ph_memory_range_of(const void *p, void **start, size_t *nbytes) {
    int slice = slice_of(p), unit, device;
    if (slice < 0) return ph_vmm_range_of(p, &device, start, nbytes) ? CUDA_OK : CUDA_INVALID_VALUE;
    unsigned char *base = ph_mem.base + ph_mem.slice_nbytes * (size_t)slice;
    ptrdiff_t index;
    ph_lock(PH_LOCK_MEMORY);
    block *found = find(&memory.devices[slice], (size_t)((const unsigned char *)p - base), &index, &unit);
    if (found) {
        *start = base + found->offset + (size_t)unit * ALIGNMENT;
        *nbytes = found->small ? (size_t)found->small->nunits[unit] * ALIGNMENT : found->nbytes;
    }
    ph_unlock(PH_LOCK_MEMORY);
    return found ? CUDA_OK : CUDA_INVALID_VALUE;
}

void *ph_memory_static(int device, size_t nbytes) {
    device_memory *own = &memory.devices[device];
    ph_lock(PH_LOCK_MEMORY);
    size_t from = own->static_used;
    bool fits = nbytes <= STATIC_NBYTES && from <= STATIC_NBYTES - nbytes;
    if (fits) own->static_used = from + round_up(nbytes, ALIGNMENT);
    ph_unlock(PH_LOCK_MEMORY);
    return fits ? ph_mem.base + ph_mem.slice_nbytes * (size_t)(device + 1) - STATIC_NBYTES + from : NULL;
}

PH_EXPORT uint64_t phantora_device_base(void) { return (uint64_t)(uintptr_t)ph_mem.base; }
PH_EXPORT uint64_t phantora_device_nbytes(void) { return ph_mem.nbytes; }
PH_EXPORT uint64_t phantora_device_peak(int device) {
    return device >= 0 && device < ph_cfg.device_count ? ph_memory_peak(device) : 0;
}
