/* Virtual memory management: the functions behind cuMemAddressReserve, cuMemCreate, cuMemMap and the rest. */
#ifndef PHANTORA_VMM_H
#define PHANTORA_VMM_H

#include "core/base.h"
#include "cuda/types.h"
#include "memory/shared.h"

int ph_vmm_reserve(void **out, size_t nbytes, size_t alignment);
int ph_vmm_unreserve(void *start, size_t nbytes);
int ph_vmm_create(uint64_t *handle, size_t nbytes, const struct CUmemAllocationProp *properties);
int ph_vmm_release(uint64_t handle);
int ph_vmm_map(void *start, size_t nbytes, size_t offset, uint64_t handle);
int ph_vmm_unmap(void *start, size_t nbytes);
int ph_vmm_set_access(void *start, size_t nbytes);
int ph_vmm_properties(struct CUmemAllocationProp *out, uint64_t handle);
int ph_vmm_retain(uint64_t *handle, const void *address);
/* The identity of physical memory for other processes; the same memory has one. */
int ph_vmm_export(uint64_t handle, ph_shared *out);
/* Physical memory of another process (or this one's own, by another handle). */
int ph_vmm_import(uint64_t *handle, const ph_shared *identity, size_t nbytes);
/* The identity of the memory mapped at an address; false if it was neither exported nor imported. */
bool ph_vmm_shared_of(const void *p, ph_shared *out);
/* Has this process imported memory of another one? */
extern bool ph_vmm_imports;
bool ph_vmm_range_of(const void *p, int *device, void **start, size_t *nbytes);

/* Has the process ever mapped physical memory, as expandable segments of PyTorch's allocator do? */
bool ph_vmm_any(void);

#endif
