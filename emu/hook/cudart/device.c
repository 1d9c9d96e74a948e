/*
 * Runtime: devices, their properties, peers, versions.
 */
#include "core/host.h"
#include "core/warn.h"
#include "cudart/cudart.h"

#include <string.h>

PH_EXPORT int cudaGetDevice(int *device) {
    *device = ph_self()->device; /* called dozens of times per launch: nothing else here */
    return CUDA_OK;
}

PH_EXPORT int cudaSetDevice(int device) {
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    ph_self()->device = device;
    ph_context_use(device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaGetDeviceCount(int *count) {
    *count = ph_cfg.device_count;
    return result(ph_device_usable());
}

PH_EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return result(ph_device_attr(attribute, device, value));
}

PH_EXPORT int cudaDriverGetVersion(int *version) {
    *version = ph_cfg.driver_version;
    return CUDA_OK;
}

PH_EXPORT int cudaRuntimeGetVersion(int *version) {
    *version = ph_cfg.runtime_version;
    return CUDA_OK;
}

PH_EXPORT int cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    return result(ph_device_exists(device) ? ph_device_usable() : CUDA_INVALID_DEVICE);
}

static int value_of(int attribute, int device) {
    int value;
    ph_device_attr(attribute, device, &value);
    return value;
}

/* Members that both layouts have, with the attribute that tells each. */
// clang-format off
#define COMMON_MEMBERS(V)                                                                                              \
    V(sharedMemPerBlock, 8) V(regsPerBlock, 12) V(warpSize, 10) V(memPitch, 11) V(maxThreadsPerBlock, 1)               \
    V(maxThreadsDim[0], 2) V(maxThreadsDim[1], 3) V(maxThreadsDim[2], 4) V(maxGridSize[0], 5) V(maxGridSize[1], 6)     \
    V(maxGridSize[2], 7) V(totalConstMem, 9) V(major, 75) V(minor, 76) V(textureAlignment, 14)                         \
    V(texturePitchAlignment, 51) V(multiProcessorCount, 16) V(integrated, 18) V(canMapHostMemory, 19)                  \
    V(maxTexture1D, 21) V(maxTexture1DMipmap, 77) V(maxTexture2D[0], 22) V(maxTexture2D[1], 23)                        \
    V(maxTexture2DMipmap[0], 73) V(maxTexture2DMipmap[1], 74) V(maxTexture2DLinear[0], 70)                             \
    V(maxTexture2DLinear[1], 71) V(maxTexture2DLinear[2], 72) V(maxTexture2DGather[0], 45)                             \
    V(maxTexture2DGather[1], 46) V(maxTexture3D[0], 24) V(maxTexture3D[1], 25) V(maxTexture3D[2], 26)                  \
    V(maxTexture3DAlt[0], 47) V(maxTexture3DAlt[1], 48) V(maxTexture3DAlt[2], 49) V(maxTextureCubemap, 52)             \
    V(maxTexture1DLayered[0],42) V(maxTexture1DLayered[1],43) V(maxTexture2DLayered[0],27)                             \
    V(maxTexture2DLayered[1], 28) V(maxTexture2DLayered[2], 29) V(maxTextureCubemapLayered[0], 53)                     \
    V(maxTextureCubemapLayered[1], 54) V(maxSurface1D, 55) V(maxSurface2D[0], 56) V(maxSurface2D[1], 57)               \
    V(maxSurface3D[0], 58) V(maxSurface3D[1], 59) V(maxSurface3D[2], 60) V(maxSurface1DLayered[0],61)                  \
    V(maxSurface1DLayered[1],62) V(maxSurface2DLayered[0],63) V(maxSurface2DLayered[1],64)                             \
    V(maxSurface2DLayered[2], 65) V(maxSurfaceCubemap, 66) V(maxSurfaceCubemapLayered[0], 67)                          \
    V(maxSurfaceCubemapLayered[1], 68) V(surfaceAlignment,30) V(concurrentKernels, 31) V(ECCEnabled, 32)               \
    V(pciBusID, 33) V(pciDeviceID, 34) V(pciDomainID, 50) V(tccDriver, 35) V(asyncEngineCount, 40)                     \
    V(unifiedAddressing, 41) V(memoryBusWidth, 37) V(l2CacheSize, 38) V(persistingL2CacheMaxSize,108)                  \
    V(maxThreadsPerMultiProcessor,39) V(streamPrioritiesSupported,78) V(globalL1CacheSupported,79)                     \
    V(localL1CacheSupported,80) V(sharedMemPerMultiprocessor, 81) V(regsPerMultiprocessor, 82) V(managedMemory, 83)    \
    V(isMultiGpuBoard, 84) V(multiGpuBoardGroupID, 85) V(hostNativeAtomicSupported, 86) V(pageableMemoryAccess, 88)    \
    V(concurrentManagedAccess, 89) V(computePreemptionSupported, 90) V(canUseHostPointerForRegisteredMem, 91)          \
    V(cooperativeLaunch, 95) V(sharedMemPerBlockOptin, 97) V(pageableMemoryAccessUsesHostPageTables,100)               \
    V(directManagedMemAccessFromHost,101) V(maxBlocksPerMultiProcessor, 106) V(accessPolicyMaxWindowSize,109)          \
    V(reservedSharedMemPerBlock,111) V(hostRegisterSupported, 99) V(sparseCudaArraySupported, 112)                     \
    V(hostRegisterReadOnlySupported,113) V(timelineSemaphoreInteropSupported,114) V(memoryPoolsSupported, 115)         \
    V(gpuDirectRDMASupported,116) V(gpuDirectRDMAFlushWritesOptions, 117) V(gpuDirectRDMAWritesOrdering, 118)          \
    V(memoryPoolSupportedHandleTypes, 119) V(deferredMappingCudaArraySupported,121) V(ipcEventSupported,125)           \
    V(clusterLaunch, 120) V(unifiedFunctionPointers, 129)

#define MEMBERS_12(V)                                                                                                  \
    V(clockRate, 13) V(deviceOverlap, 15) V(kernelExecTimeoutEnabled, 17) V(computeMode, 20)                           \
    V(maxTexture1DLinear, 69) V(memoryClockRate, 36) V(singleToDoublePrecisionPerfRatio, 87)                           \
    V(cooperativeMultiDeviceLaunch, 96)

#define MEMBERS_13(V)                                                                                                  \
    V(deviceNumaConfig, 130) V(deviceNumaId, 131) V(mpsEnabled, 133) V(hostNumaId, 134) V(gpuPciDeviceID, 139)         \
    V(gpuPciSubsystemID, 140) V(hostNumaMultinodeIpcSupported, 143)
// clang-format on

#define FILL(member, attribute) to->member = (__typeof__(to->member))value_of(attribute, device);
#define HEAD                                                                                                           \
    memset(to, 0, sizeof *to);                                                                                         \
    memcpy(to->name, ph_cfg.device_name, sizeof to->name);                                                             \
    to->totalGlobalMem = ph_cfg.memory_nbytes;                                                                         \
    ph_device_uuid(device, to->uuid.bytes);

static void fill_13(struct cudaDeviceProp13 *to, int device) { HEAD COMMON_MEMBERS(FILL) MEMBERS_13(FILL) }

static void fill_12(struct cudaDeviceProp12 *to, int device){HEAD COMMON_MEMBERS(FILL) MEMBERS_12(FILL)}

/* CUDA 12's headers name the present layout cudaGetDeviceProperties_v2; CUDA 13 gave the plain name to its own. */
PH_EXPORT int cudaGetDeviceProperties(struct cudaDeviceProp13 *properties, int device) {
    ph_host_call(PH_CALL_QUERY);
    if (ph_cfg.runtime_version < 13000)
        return result(ph_refuse("cudaGetDeviceProperties of CUDA 11", CUDA_NOT_SUPPORTED));
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    fill_13(properties, device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaGetDeviceProperties_v2(struct cudaDeviceProp12 *properties, int device) {
    ph_host_call(PH_CALL_QUERY);
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    fill_12(properties, device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaDeviceGetPCIBusId(char *text, int capacity, int device) {
    if (!ph_device_exists(device) || capacity < 13)
        return result(ph_device_exists(device) ? CUDA_INVALID_VALUE : CUDA_INVALID_DEVICE);
    ph_device_pci(device, text, (size_t)capacity);
    return CUDA_OK;
}

PH_EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *text) {
    int found = ph_device_of_pci(text);
    *device = found < 0 ? 0 : found;
    return result(found < 0 ? CUDA_INVALID_DEVICE : CUDA_OK);
}

PH_EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_OK;
}

PH_EXPORT int cudaDeviceSynchronize(void) {
    ph_host_call(PH_CALL_SYNC);
    return result(ph_device_synchronize(ph_self()->device));
}

/* The GPUs of a server reach each other. */
PH_EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = ph_device_exists(device) && ph_device_exists(peer) && device != peer;
    return result(ph_device_exists(device) && ph_device_exists(peer) ? CUDA_OK : CUDA_INVALID_DEVICE);
}

PH_EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return result(ph_peer_enable(ph_self()->device, peer, flags));
}

PH_EXPORT int cudaDeviceDisablePeerAccess(int peer) { return result(ph_peer_disable(ph_self()->device, peer)); }

PH_EXPORT int cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    enum { PERFORMANCE_RANK = 1, ACCESS_SUPPORTED = 2, NATIVE_ATOMICS = 3, ARRAY_ACCESS = 4 };
    bool apart = ph_device_exists(from) && ph_device_exists(to) && from != to;
    *value = apart && (attribute == ACCESS_SUPPORTED || attribute == NATIVE_ATOMICS);
    return result(!apart                                                         ? CUDA_INVALID_DEVICE
                  : attribute < PERFORMANCE_RANK || attribute > ARRAY_ACCESS + 1 ? CUDA_INVALID_VALUE
                                                                                 : CUDA_OK);
}
