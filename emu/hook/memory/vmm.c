/*
 * Virtual memory management, with addresses, physical memory and mappings apart: what the expandable segments of
 * PyTorch's allocator use.
 *
 * Capacity belongs to the handle of physical memory: creating it takes the capacity, which comes back when the handle
 * has been released and is no longer mapped. All addresses can be read and written at any time. Two mappings of one
 * handle would have to show the same bytes, which is not modelled: a second mapping is refused. Imported memory takes
 * no capacity (shared.h).
 */
#include "memory/vmm.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "core/config.h"
#include "op_stream/warn.h"
#include "device/device.h"
#include "threads/thread.h"
#include "memory/memory.h"
#include "memory/search.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct physical {
    uint32_t magic;
    int references, device;
    bool mapped, imported;
    size_t nbytes;
    struct CUmemAllocationProp properties;
    ph_shared identity; /* magic 0: neither exported nor imported */
} physical;

enum { PHYSICAL_MAGIC = 0x50485953 };

typedef struct mapping {
    unsigned char *start;
    size_t nbytes;
    physical *handle;
} mapping;
typedef struct range {
    unsigned char *start;
    size_t nbytes;
} range;

static struct {
    mapping *mappings; /* sorted by start */
    size_t nmappings, capacity;
    range *ranges; /* reserved addresses, sorted */
    size_t nranges, ranges_capacity;
} vmm;

static atomic_uint_fast64_t made; /* physical memory that this process has made */

static physical *physical_of(uint64_t handle) {
    physical *p = (physical *)(uintptr_t)handle;
    return p && p->magic == PHYSICAL_MAGIC ? p : NULL;
}

static void drop_if_unused(physical *p) {
    if (p->references || p->mapped) return;
    if (!p->imported) ph_memory_give(p->device, p->nbytes);
    p->magic = 0;
    free(p);
}

int ph_vmm_reserve(void **out, size_t nbytes, size_t alignment) {
    *out = NULL;
    if (nbytes == 0 || nbytes % PH_PAGE) return CUDA_INVALID_VALUE;
    size_t unit = alignment > PH_PAGE ? alignment : PH_PAGE;
    if (unit & (unit - 1)) return CUDA_INVALID_VALUE;
    ph_lock(PH_LOCK_VMM);
    uintptr_t at = (uintptr_t)ph_mem.mapped_area, end = at + ph_mem.mapped_nbytes;
    size_t i = 0;
    at = (at + unit - 1) & ~(unit - 1);
    for (; i < vmm.nranges && (at > (uintptr_t)vmm.ranges[i].start || (uintptr_t)vmm.ranges[i].start - at < nbytes);
         i++)
        at = ((uintptr_t)vmm.ranges[i].start + vmm.ranges[i].nbytes + unit - 1) & ~(unit - 1);
    bool fits = at < end && end - at >= nbytes;
    if (fits) {
        vmm.ranges = ph_room_for_one(vmm.ranges, vmm.nranges, &vmm.ranges_capacity, sizeof *vmm.ranges);
        memmove(vmm.ranges + i + 1, vmm.ranges + i, (vmm.nranges++ - i) * sizeof *vmm.ranges);
        vmm.ranges[i] = (range){(unsigned char *)at, nbytes};
        *out = (void *)at;
    }
    ph_unlock(PH_LOCK_VMM);
    return fits ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int ph_vmm_unreserve(void *start, size_t nbytes) {
    int status = CUDA_INVALID_VALUE;
    ph_lock(PH_LOCK_VMM);
    for (size_t i = 0; i < vmm.nranges; i++)
        if (vmm.ranges[i].start == start && vmm.ranges[i].nbytes == nbytes) {
            memmove(vmm.ranges + i, vmm.ranges + i + 1, (--vmm.nranges - i) * sizeof *vmm.ranges);
            status = CUDA_OK;
            break;
        }
    ph_unlock(PH_LOCK_VMM);
    return status;
}

int ph_vmm_create(uint64_t *handle, size_t nbytes, const struct CUmemAllocationProp *properties) {
    *handle = 0;
    int device = properties->location.id;
    if (properties->location.type != cudaMemLocationTypeDevice || !ph_device_exists(device))
        return properties->location.type == cudaMemLocationTypeDevice
                   ? CUDA_INVALID_DEVICE
                   : ph_refuse("cuMemCreate for host memory", CUDA_NOT_SUPPORTED);
    if (nbytes == 0 || nbytes % PH_PAGE) return CUDA_INVALID_VALUE;
    int status = ph_device_usable();
    if (status == CUDA_OK) status = ph_memory_take(device, nbytes);
    if (status) return status;
    physical *p = ph_allocate(sizeof *p);
    *p = (physical){
        .magic = PHYSICAL_MAGIC, .references = 1, .device = device, .nbytes = nbytes, .properties = *properties};
    *handle = (uint64_t)(uintptr_t)p;
    atomic_fetch_add(&made, 1);
    return CUDA_OK;
}

bool ph_vmm_any(void) { return atomic_load(&made) > 0; }

int ph_vmm_release(uint64_t handle) {
    ph_lock(PH_LOCK_VMM);
    physical *p = physical_of(handle);
    if (p && p->references > 0) {
        p->references--;
        drop_if_unused(p);
    } else
        p = NULL;
    ph_unlock(PH_LOCK_VMM);
    return p ? CUDA_OK : CUDA_INVALID_VALUE;
}

static ptrdiff_t mapping_at(const void *address) {
    return ph_last_at_or_below(vmm.mappings, vmm.nmappings, sizeof *vmm.mappings, (uintptr_t)address);
}

static bool reserved(const unsigned char *start, size_t nbytes) {
    for (size_t i = 0; i < vmm.nranges; i++)
        if (start >= vmm.ranges[i].start && start + nbytes <= vmm.ranges[i].start + vmm.ranges[i].nbytes) return true;
    return false;
}

int ph_vmm_map(void *start, size_t nbytes, size_t offset, uint64_t handle) {
    unsigned char *at = start;
    ph_lock(PH_LOCK_VMM);
    physical *p = physical_of(handle);
    ptrdiff_t before = mapping_at(start);
    bool overlaps = (before >= 0 && vmm.mappings[before].start + vmm.mappings[before].nbytes > at) ||
                    ((size_t)(before + 1) < vmm.nmappings && vmm.mappings[before + 1].start < at + nbytes);
    int status = !p || offset || nbytes != p->nbytes || overlaps || !reserved(at, nbytes) ? CUDA_INVALID_VALUE
                 : p->mapped                                                              ? CUDA_NOT_SUPPORTED
                                                                                          : CUDA_OK;
    if (status == CUDA_OK) {
        p->mapped = true;
        vmm.mappings = ph_room_for_one(vmm.mappings, vmm.nmappings, &vmm.capacity, sizeof *vmm.mappings);
        size_t i = (size_t)(before + 1);
        memmove(vmm.mappings + i + 1, vmm.mappings + i, (vmm.nmappings++ - i) * sizeof *vmm.mappings);
        vmm.mappings[i] = (mapping){at, nbytes, p};
    }
    ph_unlock(PH_LOCK_VMM);
    if (status == CUDA_NOT_SUPPORTED) ph_refuse("cuMemMap of memory that is mapped at another address, too,", status);
    return status;
}

/* Removes every mapping within the range. A mapping that is only partly within it is an error. */
int ph_vmm_unmap(void *start, size_t nbytes) {
    unsigned char *from = start, *to = from + nbytes;
    ph_lock(PH_LOCK_VMM);
    ptrdiff_t first = mapping_at(from);
    bool whole = first >= 0 && vmm.mappings[first].start == from;
    size_t end = (size_t)first;
    while (whole && end < vmm.nmappings && vmm.mappings[end].start < to)
        whole = vmm.mappings[end].start + vmm.mappings[end].nbytes <= to ? (end++, true) : false;
    if (whole) {
        ph_memory_drop_pages(start, nbytes); /* before another thread can map the addresses */
        for (size_t i = (size_t)first; i < end; i++) {
            vmm.mappings[i].handle->mapped = false;
            drop_if_unused(vmm.mappings[i].handle);
        }
        memmove(vmm.mappings + first, vmm.mappings + end, (vmm.nmappings - end) * sizeof *vmm.mappings);
        vmm.nmappings -= end - (size_t)first;
    }
    ph_unlock(PH_LOCK_VMM);
    return whole ? CUDA_OK : CUDA_INVALID_VALUE;
}

int ph_vmm_set_access(void *start, size_t nbytes) {
    ph_lock(PH_LOCK_VMM);
    ptrdiff_t at = mapping_at(start);
    bool mapped = nbytes > 0 && at >= 0 && vmm.mappings[at].start + vmm.mappings[at].nbytes > (unsigned char *)start;
    ph_unlock(PH_LOCK_VMM);
    return mapped ? CUDA_OK : CUDA_INVALID_VALUE;
}

int ph_vmm_properties(struct CUmemAllocationProp *out, uint64_t handle) {
    ph_lock(PH_LOCK_VMM);
    physical *p = physical_of(handle);
    if (p)
        *out = p->properties;
    else
        memset(out, 0, sizeof *out);
    ph_unlock(PH_LOCK_VMM);
    return p ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* Adds a reference to the physical memory behind an address and returns its handle. */
int ph_vmm_retain(uint64_t *handle, const void *address) {
    *handle = 0;
    ph_lock(PH_LOCK_VMM);
    ptrdiff_t at = mapping_at(address);
    if (at >= 0 && vmm.mappings[at].start + vmm.mappings[at].nbytes > (const unsigned char *)address) {
        vmm.mappings[at].handle->references++;
        *handle = (uint64_t)(uintptr_t)vmm.mappings[at].handle;
    }
    ph_unlock(PH_LOCK_VMM);
    return *handle ? CUDA_OK : CUDA_INVALID_VALUE;
}

bool ph_vmm_range_of(const void *p, int *device, void **start, size_t *nbytes) {
    ph_lock(PH_LOCK_VMM);
    ptrdiff_t at = mapping_at(p);
    bool mapped = at >= 0 && vmm.mappings[at].start + vmm.mappings[at].nbytes > (const unsigned char *)p;
    if (mapped) {
        *device = vmm.mappings[at].handle->device;
        if (start) *start = vmm.mappings[at].start;
        if (nbytes) *nbytes = vmm.mappings[at].nbytes;
    }
    ph_unlock(PH_LOCK_VMM);
    return mapped;
}

/* ---- memory of other processes ----------------------------------------------------------------------------------- */

bool ph_vmm_imports;

int ph_vmm_export(uint64_t handle, ph_shared *out) {
    ph_lock(PH_LOCK_VMM);
    physical *p = physical_of(handle);
    if (p) {
        if (!p->identity.magic) p->identity = ph_shared_make(p->device, p->nbytes);
        *out = p->identity;
    }
    ph_unlock(PH_LOCK_VMM);
    return p ? CUDA_OK : CUDA_INVALID_VALUE;
}

int ph_vmm_import(uint64_t *handle, const ph_shared *identity, size_t nbytes) {
    *handle = 0;
    int device = ph_visible_as(identity->gpu);
    int status = ph_device_usable();
    if (status) return status;
    physical *p = ph_allocate(sizeof *p);
    *p = (physical){.magic = PHYSICAL_MAGIC,
                    .references = 1,
                    .device = device >= 0 ? device : ph_self()->device,
                    .imported = true,
                    .nbytes = nbytes,
                    .properties = {.location = {.type = cudaMemLocationTypeDevice, .id = device}},
                    .identity = *identity};
    ph_vmm_imports = true;
    *handle = (uint64_t)(uintptr_t)p;
    return CUDA_OK;
}

bool ph_vmm_shared_of(const void *p, ph_shared *out) {
    ph_lock(PH_LOCK_VMM);
    ptrdiff_t at = mapping_at(p);
    bool found = at >= 0 && vmm.mappings[at].start + vmm.mappings[at].nbytes > (const unsigned char *)p &&
                 vmm.mappings[at].handle->identity.magic;
    if (found) *out = vmm.mappings[at].handle->identity;
    ph_unlock(PH_LOCK_VMM);
    return found;
}
