/* Managed memory: see managed.h. Its addresses are some of those for virtual memory management. */
#include "memory/managed.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "cuda/types.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/vmm.h"

#include <string.h>

typedef struct allocation {
    unsigned char *start;
    size_t nbytes, reserved;
} allocation;

static struct {
    allocation *allocations;
    size_t n, capacity;
} managed;

int ph_managed_alloc(void **out, size_t nbytes) {
    *out = NULL;
    if (nbytes == 0) return CUDA_INVALID_VALUE;
    int status = ph_device_usable();
    size_t reserved = (nbytes + PH_PAGE - 1) / PH_PAGE * PH_PAGE;
    if (status == CUDA_OK) status = ph_vmm_reserve(out, reserved, 0);
    if (status) return status;
    ph_lock(PH_LOCK_MANAGED);
    managed.allocations =
        ph_room_for_one(managed.allocations, managed.n, &managed.capacity, sizeof *managed.allocations);
    managed.allocations[managed.n++] = (allocation){*out, nbytes, reserved};
    ph_unlock(PH_LOCK_MANAGED);
    return CUDA_OK;
}

int ph_managed_free(void *p) {
    allocation freed = {0};
    ph_lock(PH_LOCK_MANAGED);
    for (size_t i = 0; i < managed.n; i++)
        if (managed.allocations[i].start == p) {
            freed = managed.allocations[i];
            managed.allocations[i] = managed.allocations[--managed.n];
            break;
        }
    ph_unlock(PH_LOCK_MANAGED);
    if (!freed.start) return CUDA_INVALID_VALUE;
    ph_memory_drop_pages(freed.start, freed.reserved);
    return ph_vmm_unreserve(freed.start, freed.reserved);
}

bool ph_managed_range(const void *p, void **start, size_t *nbytes) {
    bool found = false;
    ph_lock(PH_LOCK_MANAGED);
    for (size_t i = 0; i < managed.n && !found; i++) {
        const allocation *it = &managed.allocations[i];
        if ((size_t)((const unsigned char *)p - it->start) >= it->nbytes) continue;
        if (start) *start = it->start;
        if (nbytes) *nbytes = it->nbytes;
        found = true;
    }
    ph_unlock(PH_LOCK_MANAGED);
    return found;
}
