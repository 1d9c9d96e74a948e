/*
 * Driver: multicast objects, by whose addresses a GPU writes to the memory of all members of a group. Their bytes are
 * not followed; which kernels use them nccl/symmetric.c knows.
 */
#include "threads/host.h"
#include "device/device.h"
#include "driver/driver.h"
#include "memory/memory.h"
#include "memory/shared.h"
#include "memory/vmm.h"

struct CUmulticastObjectProp {
    unsigned int numDevices;
    size_t size;
    unsigned long long handleTypes, flags;
};

PH_EXPORT int cuMulticastGetGranularity(size_t *nbytes, const struct CUmulticastObjectProp *properties, int option) {
    (void)properties, (void)option;
    if (!nbytes) return CUDA_INVALID_VALUE;
    *nbytes = PH_PAGE;
    return CUDA_OK;
}

PH_EXPORT int cuMulticastCreate(uint64_t *handle, const struct CUmulticastObjectProp *properties) {
    ph_host_call(PH_CALL_ALLOC);
    *handle = 0;
    if (!properties || properties->size == 0 || properties->size % PH_PAGE) return CUDA_INVALID_VALUE;
    ph_shared identity = ph_shared_make(ph_self()->device, properties->size);
    return ph_vmm_import(handle, &identity, properties->size);
}

PH_EXPORT int cuMulticastAddDevice(uint64_t handle, int device) {
    (void)handle;
    ph_host_call(PH_CALL_ALLOC);
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuMulticastBindMem(uint64_t handle, size_t offset, uint64_t memory, size_t memory_offset, size_t nbytes,
                                 unsigned long long flags) {
    (void)handle, (void)offset, (void)memory, (void)memory_offset, (void)nbytes;
    ph_host_call(PH_CALL_ALLOC);
    return flags ? CUDA_INVALID_VALUE : CUDA_OK;
}

PH_EXPORT int cuMulticastBindAddr(uint64_t handle, size_t offset, CUdeviceptr memory, size_t nbytes,
                                  unsigned long long flags) {
    (void)handle, (void)offset, (void)memory, (void)nbytes;
    ph_host_call(PH_CALL_ALLOC);
    return flags ? CUDA_INVALID_VALUE : CUDA_OK;
}

PH_EXPORT int cuMulticastUnbind(uint64_t handle, int device, size_t offset, size_t nbytes) {
    (void)handle, (void)device, (void)offset, (void)nbytes;
    ph_host_call(PH_CALL_ALLOC);
    return CUDA_OK;
}
