/* Identities of memory that other processes import: see shared.h. */
#define _GNU_SOURCE
#include "memory/shared.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "cuda/types.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/vmm.h"
#include "core/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARED_MAGIC 0x7068736861726564ull
_Static_assert(sizeof(ph_shared) <= sizeof(ph_ipc_handle), "an identity fits an IPC handle");

/* Allocations that have been exported by IPC keep their identity: PyTorch asks for it once for each tensor. */
typedef struct exported {
    const void *start;
    ph_shared identity;
} exported;

static struct {
    uint64_t made;
    exported *allocations;
    size_t n, capacity;
} shared;

ph_shared ph_shared_make(int device, size_t nbytes) {
    ph_shared it = {.magic = SHARED_MAGIC,
                    .number = __atomic_add_fetch(&shared.made, 1, __ATOMIC_RELAXED),
                    .rank = ph_run.rank,
                    .process = ph_run.process,
                    .gpu = ph_visible_gpu(device),
                    .nbytes = nbytes};
    return it;
}

int ph_shared_export(const ph_shared *it) {
    int fd = memfd_create("phantora-memory", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, it, sizeof *it) != (ssize_t)sizeof *it) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool ph_shared_import(int fd, ph_shared *out) {
    return pread(fd, out, sizeof *out, 0) == (ssize_t)sizeof *out && out->magic == SHARED_MAGIC;
}

bool ph_shared_foreign(const ph_shared *it) { return it->rank != ph_run.rank || it->process != ph_run.process; }

/* ---- CUDA IPC ---------------------------------------------------------------------------------------------------- */

int ph_ipc_get(ph_ipc_handle *out, const void *p) {
    void *start;
    size_t nbytes;
    int device = ph_memory_device_of(p);
    if (device < 0 || ph_memory_range_of(p, &start, &nbytes) != CUDA_OK) return CUDA_INVALID_VALUE;
    ph_lock(PH_LOCK_SHARED);
    size_t i = 0;
    while (i < shared.n && shared.allocations[i].start != start) i++;
    bool same = i < shared.n && shared.allocations[i].identity.nbytes == nbytes;
    if (i == shared.n) {
        shared.allocations =
            ph_room_for_one(shared.allocations, shared.n, &shared.capacity, sizeof *shared.allocations);
        shared.n++;
    }
    if (!same) shared.allocations[i] = (exported){start, ph_shared_make(device, nbytes)};
    memset(out, 0, sizeof *out);
    memcpy(out, &shared.allocations[i].identity, sizeof shared.allocations[i].identity);
    ph_unlock(PH_LOCK_SHARED);
    return CUDA_OK;
}

bool ph_ipc_shared_of(const void *p, ph_shared *out) {
    ph_lock(PH_LOCK_SHARED);
    size_t i = 0;
    while (i < shared.n &&
           (uintptr_t)p - (uintptr_t)shared.allocations[i].start >= shared.allocations[i].identity.nbytes)
        i++;
    bool found = i < shared.n;
    if (found) *out = shared.allocations[i].identity;
    ph_unlock(PH_LOCK_SHARED);
    return found;
}

int ph_ipc_open(void **out, const ph_ipc_handle *handle) {
    ph_shared it;
    memcpy(&it, handle, sizeof it);
    *out = NULL;
    if (it.magic != SHARED_MAGIC) return CUDA_INVALID_VALUE;
    if (!ph_shared_foreign(&it)) return CUDA_INVALID_CONTEXT; /* as CUDA: not in the process that exported it */
    size_t nbytes = (it.nbytes + PH_PAGE - 1) / PH_PAGE * PH_PAGE;
    uint64_t physical;
    int status = ph_vmm_import(&physical, &it, nbytes);
    if (status == CUDA_OK) status = ph_vmm_reserve(out, nbytes, 0);
    if (status == CUDA_OK) status = ph_vmm_map(*out, nbytes, 0, physical);
    if (status == CUDA_OK) ph_vmm_release(physical); /* the mapping keeps it */
    return status;
}

int ph_ipc_close(void *p) {
    ph_shared it;
    void *start;
    size_t nbytes;
    int device;
    if (!ph_vmm_shared_of(p, &it) || !ph_shared_foreign(&it) || !ph_vmm_range_of(p, &device, &start, &nbytes))
        return CUDA_INVALID_VALUE;
    int status = ph_vmm_unmap(start, nbytes);
    return status ? status : ph_vmm_unreserve(start, nbytes);
}
