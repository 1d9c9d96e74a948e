/* For the C tests: the calls they make, and a check that says where it failed. */
#ifndef CHECK_H
#define CHECK_H

#include "cuda/types.h"
#include "cuda/attributes.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define EQUAL(a, b)                                                                                                    \
    do {                                                                                                               \
        long long left = (long long)(a), right = (long long)(b);                                                       \
        if (left != right) {                                                                                           \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #a, left, right);                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

extern int phantora_load(const char *device_file);
extern uint64_t phantora_device_peak(int device);
extern uint64_t phantora_device_base(void);
extern uint64_t phantora_device_nbytes(void);

extern int cudaGetDevice(int *), cudaGetDeviceCount(int *), cudaSetDevice(int), cudaGetLastError(void),
    cudaPeekAtLastError(void);
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
extern int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
extern int cudaDeviceGetDefaultMemPool(void **, int), cudaMemPoolGetAttribute(void *, int, void *);
extern int cudaDeviceGetMemPool(void **, int), cudaDeviceSetMemPool(int, void *);
extern int cudaMemPoolCreate(void **, const struct cudaMemPoolProps *), cudaMemPoolDestroy(void *);
extern int cudaMallocFromPoolAsync(void **, size_t, void *, void *);
extern int cudaMemPoolSetAttribute(void *, int, void *), cudaMemPoolTrimTo(void *, size_t);
extern int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *);
extern int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
extern int cudaPointerGetAttributes(struct cudaPointerAttributes *, const void *);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
extern int cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, void *);
extern int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamDestroy(void *), cudaStreamSynchronize(void *);
extern int cudaStreamWaitEvent(void *, void *, unsigned), cudaStreamIsCapturing(void *, int *);
extern int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **);
extern int cudaStreamGetCaptureInfo(void *, int *, unsigned long long *, void **, void ***, void **, size_t *);
extern int cudaEventCreateWithFlags(void **, unsigned), cudaEventDestroy(void *), cudaEventRecord(void *, void *);
extern int cudaEventQuery(void *), cudaEventSynchronize(void *), cudaLaunchHostFunc(void *, void (*)(void *), void *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaFuncGetAttributes(struct cudaFuncAttributes *, const void *),
    cudaFuncSetAttribute(const void *, int, int);
extern int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
extern int cudaGraphGetNodes(void *, void **, size_t *), cudaGraphDestroy(void *), cudaGraphNodeGetType(void *, int *);
extern int cudaGraphNodeGetDependencies(void *, void **, void *, size_t *), cudaGraphLaunch(void *, void *);
extern int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long), cudaGraphExecDestroy(void *);
extern int cudaUserObjectCreate(void **, void *, void (*)(void *), unsigned, unsigned);
extern int cudaGraphRetainUserObject(void *, void *, unsigned, unsigned);
extern int cudaGetSymbolAddress(void **, const void *),
    cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
extern int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
extern int cudaDeviceGetAttribute(int *, int, int), cudaGetDeviceProperties(struct cudaDeviceProp13 *, int);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                                   int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);

extern int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long),
    cuMemAddressFree(uint64_t, size_t);
extern int cuMemCreate(uint64_t *, size_t, const struct CUmemAllocationProp *, unsigned long long),
    cuMemRelease(uint64_t);
extern int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long), cuMemUnmap(uint64_t, size_t);
extern int cuMemSetAccess(uint64_t, size_t, const struct CUmemAccessDesc *, size_t);
extern int cuMemGetAllocationGranularity(size_t *, const struct CUmemAllocationProp *, int);
extern int cuMemGetAddressRange_v2(uint64_t *, size_t *, uint64_t), cuPointerGetAttribute(void *, int, uint64_t);
extern int cuMemsetD32Async(uint64_t, unsigned, size_t, void *);
extern int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *),
    cuModuleUnload(void *);
extern int cuFuncGetAttribute(int *, int, void *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);

#endif
