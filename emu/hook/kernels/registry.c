/*
 * Kernels and variables that the start-up code of nvcc registers: host addresses and their names.
 *
 * Names are not copied. They are hashed at registration, which mostly happens in the forker: ranks share its pages. If
 * an address is registered again (a library was unloaded and another one loaded in its place) it has the new name.
 */
#define _GNU_SOURCE
#include "kernels/registry.h"
#include "kernels/architectures.h"
#include "core/lock.h"
#include "kernels/peers.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "memory/memory.h"
#include "threads/thread.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const void *address;
    ph_kernel *kernel;
} entry;

typedef struct variable {
    const void *address;
    size_t nbytes;
    void *on_device[PH_MAX_DEVICES];
    struct variable *next;
} variable;

static struct {
    entry *slots;
    size_t n, capacity;
    ph_kernel *arena;
    size_t arena_left;
    variable *variables;
} registry;

static entry *slot_of(const void *address) {
    size_t mask = registry.capacity - 1, slot = (size_t)ph_mix((uintptr_t)address, 7) & mask;
    while (registry.slots[slot].address && registry.slots[slot].address != address) slot = (slot + 1) & mask;
    return &registry.slots[slot];
}

static void grow(void) {
    entry *old = registry.slots;
    size_t old_capacity = registry.capacity;
    registry.capacity = old_capacity ? old_capacity * 2 : 1 << 15;
    registry.slots = ph_allocate(registry.capacity * sizeof *registry.slots);
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].address) *slot_of(old[i].address) = old[i];
    free(old);
}

/* Under the lock. */
static ph_kernel *from_arena(const char *name) {
    if (registry.arena_left == 0) {
        registry.arena_left = 1024;
        registry.arena = ph_allocate(registry.arena_left * sizeof *registry.arena);
    }
    registry.arena_left--;
    ph_kernel *kernel = registry.arena++;
    kernel->magic = PH_KERNEL_MAGIC;
    kernel->name = name;
    kernel->has_layout = ph_has_layout(name);
    kernel->images = ph_images_at(name);
    kernel->peers = ph_is_peer_kernel(name);
    kernel->name_hash = ph_hash(
        5, name, strlen(name)); /* now, because a rank's first launch must not write to pages that ranks share */
    return kernel;
}

ph_kernel *ph_kernel_make(const char *name) {
    char *copy = ph_allocate(strlen(name) + 1);
    strcpy(copy, name);
    ph_lock(PH_LOCK_REGISTRY);
    ph_kernel *kernel = from_arena(copy);
    ph_unlock(PH_LOCK_REGISTRY);
    return kernel;
}

void ph_register_kernel(const void *address, const char *name) {
    ph_lock(PH_LOCK_REGISTRY);
    if (registry.n * 2 >= registry.capacity) grow();
    entry *at = slot_of(address);
    registry.n += !at->address;
    *at = (entry){address, from_arena(name)};
    ph_unlock(PH_LOCK_REGISTRY);
}

/* Older stubs of nvcc launch by the address of the host function, newer ones by the handle from __cudaGetKernel. */
ph_kernel *ph_kernel_of(const void *function) {
    if (!function) return NULL;
    ph_lock(PH_LOCK_REGISTRY);
    ph_kernel *kernel = registry.capacity ? slot_of(function)->kernel : NULL;
    ph_unlock(PH_LOCK_REGISTRY);
    if (kernel) return kernel;
    kernel = (ph_kernel *)(uintptr_t)function;
    return (uintptr_t)function % _Alignof(ph_kernel) == 0 && kernel->magic == PH_KERNEL_MAGIC ? kernel : NULL;
}

void ph_register_variable(const void *address, size_t nbytes) {
    variable *added = ph_allocate(sizeof *added);
    added->address = address;
    added->nbytes = nbytes;
    ph_lock(PH_LOCK_REGISTRY);
    added->next = registry.variables;
    registry.variables = added;
    ph_unlock(PH_LOCK_REGISTRY);
}

/* The variable's place on the calling thread's device, allocated at its first use. */
int ph_variable_of(const void *symbol, void **address, size_t *nbytes) {
    *address = NULL;
    *nbytes = 0;
    int device = ph_self()->device;
    ph_lock(PH_LOCK_REGISTRY);
    variable *at = registry.variables;
    while (at && at->address != symbol) at = at->next;
    if (at) {
        if (!at->on_device[device]) at->on_device[device] = ph_memory_static(device, at->nbytes);
        *address = at->on_device[device];
        *nbytes = at->nbytes;
    }
    ph_unlock(PH_LOCK_REGISTRY);
    return !at ? CUDA_INVALID_SYMBOL : *address ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

ph_peers ph_peer_functions;

bool ph_is_peer_kernel(const char *name) {
    return strstr(name, "userbuffers_") || strstr(name, "CUDASymmetricMemoryOps") ||
           strstr(name, "c10d16symmetric_memory") || strstr(name, "cross_device_reduce_");
}

/* ---- what nvcc's stubs call -------------------------------------------------------------------------------------- */

/* Do the functions that are registered next belong to PyTorch? What its kernels write, emu/control knows. */
static _Thread_local bool of_pytorch;

/* The library that code lies in, as the loader tells. Most calls come from the same one as the call before. */
static struct {
    uintptr_t code, begin, end;
    bool of_pytorch;
} library;

static int look_at(struct dl_phdr_info *info, size_t nbytes, void *unused) {
    (void)nbytes, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || library.code < begin || library.code >= end) continue;
        const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
        library.begin = begin;
        library.end = end;
        library.of_pytorch = strncmp(name, "libtorch", 8) == 0 || strncmp(name, "libc10", 6) == 0;
        return 1;
    }
    return 0;
}

static bool in_pytorch(const void *code) {
    ph_lock(PH_LOCK_REGISTRY);
    library.code = (uintptr_t)code;
    if (library.code < library.begin || library.code >= library.end) {
        library.of_pytorch = false;
        dl_iterate_phdr(look_at, NULL);
    }
    bool answer = library.of_pytorch;
    ph_unlock(PH_LOCK_REGISTRY);
    return answer;
}

PH_EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    of_pytorch = in_pytorch(__builtin_return_address(0));
    ph_fatbin *handle = ph_allocate(sizeof *handle);
    handle->code = wrapper ? ph_fatbin_of(wrapper) : NULL;
    return (void **)handle;
}
PH_EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
/* The library goes, and its code with it. Its kernels stay known: a graph may still launch them. */
PH_EXPORT void __cudaUnregisterFatBinary(void **handle) {
    if (handle) ((ph_fatbin *)handle)->code = NULL;
}
PH_EXPORT char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

PH_EXPORT void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                                      int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size) {
    (void)device_function, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
    ph_register_kernel(host_function, name);
    ph_kernel *kernel = ph_kernel_of(host_function);
    kernel->fatbin = (const ph_fatbin *)handle;
    if (of_pytorch) kernel->stores = "";
}

PH_EXPORT void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name,
                                 int external, size_t nbytes, int constant, int global) {
    (void)handle, (void)device_address, (void)name, (void)external, (void)constant, (void)global;
    ph_register_variable(host_variable, nbytes);
}

PH_EXPORT void __cudaRegisterManagedVar(void **handle, void **host_variable, char *device_address, const char *name,
                                        int external, size_t nbytes, int constant, int global) {
    (void)handle, (void)device_address, (void)name, (void)external, (void)constant, (void)global;
    *host_variable = calloc(1, nbytes);
    ph_register_variable(host_variable, nbytes);
}

/* nvcc's newer stubs ask once for a handle, by which they launch. */
PH_EXPORT int __cudaGetKernel(ph_kernel **kernel, const void *host_function) {
    *kernel = ph_kernel_of(host_function);
    return *kernel ? CUDA_OK : CUDA_INVALID_DEVICE_FUNCTION;
}
