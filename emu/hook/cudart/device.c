/*
 * Runtime: devices, their properties, peers, versions.
 */
#include "device/versions.h"
#include "threads/host.h"
#include "op_stream/history.h"
#include "op_stream/warn.h"
#include "cudart/cudart.h"
#include "cuda/attributes.h"
#include "streams/wait.h"

#include <string.h>

PH_EXPORT int cudaGetDevice(int *device) {
    *device = ph_self()->device; /* called dozens of times per launch, so it charges no host time */
    return CUDA_OK;
}

PH_EXPORT int cudaSetDevice(int device) {
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    ph_self()->device = device;
    ph_context_use(device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaGetDeviceCount(int *count) {
    *count = ph_visible_count();
    return result(*count ? ph_device_usable() : CUDA_NO_DEVICE);
}

PH_EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    ph_history_binding_reads_attribute(__builtin_return_address(0), attribute);
    return result(ph_device_attr(attribute, device, value));
}

PH_EXPORT int cudaDriverGetVersion(int *version) {
    *version = ph_cfg.driver_version;
    return CUDA_OK;
}

PH_EXPORT int cudaRuntimeGetVersion(int *version) {
    *version = ph_runtime_version();
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

/* Members that both layouts have, each with the attribute (cudaDevAttr...) that gives its value. */
// clang-format off
#define COMMON_MEMBERS(V)                                                                                              \
    V(sharedMemPerBlock, MaxSharedMemoryPerBlock)                                                                      \
    V(regsPerBlock, MaxRegistersPerBlock)                                                                              \
    V(warpSize, WarpSize)                                                                                              \
    V(memPitch, MaxPitch)                                                                                              \
    V(maxThreadsPerBlock, MaxThreadsPerBlock)                                                                          \
    V(maxThreadsDim[0], MaxBlockDimX)                                                                                  \
    V(maxThreadsDim[1], MaxBlockDimY)                                                                                  \
    V(maxThreadsDim[2], MaxBlockDimZ)                                                                                  \
    V(maxGridSize[0], MaxGridDimX)                                                                                     \
    V(maxGridSize[1], MaxGridDimY)                                                                                     \
    V(maxGridSize[2], MaxGridDimZ)                                                                                     \
    V(totalConstMem, TotalConstantMemory)                                                                              \
    V(major, ComputeCapabilityMajor)                                                                                   \
    V(minor, ComputeCapabilityMinor)                                                                                   \
    V(textureAlignment, TextureAlignment)                                                                              \
    V(texturePitchAlignment, TexturePitchAlignment)                                                                    \
    V(multiProcessorCount, MultiProcessorCount)                                                                        \
    V(integrated, Integrated)                                                                                          \
    V(canMapHostMemory, CanMapHostMemory)                                                                              \
    V(maxTexture1D, MaxTexture1DWidth)                                                                                 \
    V(maxTexture1DMipmap, MaxTexture1DMipmappedWidth)                                                                  \
    V(maxTexture2D[0], MaxTexture2DWidth)                                                                              \
    V(maxTexture2D[1], MaxTexture2DHeight)                                                                             \
    V(maxTexture2DMipmap[0], MaxTexture2DMipmappedWidth)                                                               \
    V(maxTexture2DMipmap[1], MaxTexture2DMipmappedHeight)                                                              \
    V(maxTexture2DLinear[0], MaxTexture2DLinearWidth)                                                                  \
    V(maxTexture2DLinear[1], MaxTexture2DLinearHeight)                                                                 \
    V(maxTexture2DLinear[2], MaxTexture2DLinearPitch)                                                                  \
    V(maxTexture2DGather[0], MaxTexture2DGatherWidth)                                                                  \
    V(maxTexture2DGather[1], MaxTexture2DGatherHeight)                                                                 \
    V(maxTexture3D[0], MaxTexture3DWidth)                                                                              \
    V(maxTexture3D[1], MaxTexture3DHeight)                                                                             \
    V(maxTexture3D[2], MaxTexture3DDepth)                                                                              \
    V(maxTexture3DAlt[0], MaxTexture3DWidthAlt)                                                                        \
    V(maxTexture3DAlt[1], MaxTexture3DHeightAlt)                                                                       \
    V(maxTexture3DAlt[2], MaxTexture3DDepthAlt)                                                                        \
    V(maxTextureCubemap, MaxTextureCubemapWidth)                                                                       \
    V(maxTexture1DLayered[0], MaxTexture1DLayeredWidth)                                                                \
    V(maxTexture1DLayered[1], MaxTexture1DLayeredLayers)                                                               \
    V(maxTexture2DLayered[0], MaxTexture2DLayeredWidth)                                                                \
    V(maxTexture2DLayered[1], MaxTexture2DLayeredHeight)                                                               \
    V(maxTexture2DLayered[2], MaxTexture2DLayeredLayers)                                                               \
    V(maxTextureCubemapLayered[0], MaxTextureCubemapLayeredWidth)                                                      \
    V(maxTextureCubemapLayered[1], MaxTextureCubemapLayeredLayers)                                                     \
    V(maxSurface1D, MaxSurface1DWidth)                                                                                 \
    V(maxSurface2D[0], MaxSurface2DWidth)                                                                              \
    V(maxSurface2D[1], MaxSurface2DHeight)                                                                             \
    V(maxSurface3D[0], MaxSurface3DWidth)                                                                              \
    V(maxSurface3D[1], MaxSurface3DHeight)                                                                             \
    V(maxSurface3D[2], MaxSurface3DDepth)                                                                              \
    V(maxSurface1DLayered[0], MaxSurface1DLayeredWidth)                                                                \
    V(maxSurface1DLayered[1], MaxSurface1DLayeredLayers)                                                               \
    V(maxSurface2DLayered[0], MaxSurface2DLayeredWidth)                                                                \
    V(maxSurface2DLayered[1], MaxSurface2DLayeredHeight)                                                               \
    V(maxSurface2DLayered[2], MaxSurface2DLayeredLayers)                                                               \
    V(maxSurfaceCubemap, MaxSurfaceCubemapWidth)                                                                       \
    V(maxSurfaceCubemapLayered[0], MaxSurfaceCubemapLayeredWidth)                                                      \
    V(maxSurfaceCubemapLayered[1], MaxSurfaceCubemapLayeredLayers)                                                     \
    V(surfaceAlignment, SurfaceAlignment)                                                                              \
    V(concurrentKernels, ConcurrentKernels)                                                                            \
    V(ECCEnabled, EccEnabled)                                                                                          \
    V(pciBusID, PciBusId)                                                                                              \
    V(pciDeviceID, PciDeviceId)                                                                                        \
    V(pciDomainID, PciDomainId)                                                                                        \
    V(tccDriver, TccDriver)                                                                                            \
    V(asyncEngineCount, AsyncEngineCount)                                                                              \
    V(unifiedAddressing, UnifiedAddressing)                                                                            \
    V(memoryBusWidth, GlobalMemoryBusWidth)                                                                            \
    V(l2CacheSize, L2CacheSize)                                                                                        \
    V(persistingL2CacheMaxSize, MaxPersistingL2CacheSize)                                                              \
    V(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor)                                                        \
    V(streamPrioritiesSupported, StreamPrioritiesSupported)                                                            \
    V(globalL1CacheSupported, GlobalL1CacheSupported)                                                                  \
    V(localL1CacheSupported, LocalL1CacheSupported)                                                                    \
    V(sharedMemPerMultiprocessor, MaxSharedMemoryPerMultiprocessor)                                                    \
    V(regsPerMultiprocessor, MaxRegistersPerMultiprocessor)                                                            \
    V(managedMemory, ManagedMemory)                                                                                    \
    V(isMultiGpuBoard, IsMultiGpuBoard)                                                                                \
    V(multiGpuBoardGroupID, MultiGpuBoardGroupID)                                                                      \
    V(hostNativeAtomicSupported, HostNativeAtomicSupported)                                                            \
    V(pageableMemoryAccess, PageableMemoryAccess)                                                                      \
    V(concurrentManagedAccess, ConcurrentManagedAccess)                                                                \
    V(computePreemptionSupported, ComputePreemptionSupported)                                                          \
    V(canUseHostPointerForRegisteredMem, CanUseHostPointerForRegisteredMem)                                            \
    V(cooperativeLaunch, CooperativeLaunch)                                                                            \
    V(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin)                                                            \
    V(pageableMemoryAccessUsesHostPageTables, PageableMemoryAccessUsesHostPageTables)                                  \
    V(directManagedMemAccessFromHost, DirectManagedMemAccessFromHost)                                                  \
    V(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor)                                                          \
    V(accessPolicyMaxWindowSize, MaxAccessPolicyWindowSize)                                                            \
    V(reservedSharedMemPerBlock, ReservedSharedMemoryPerBlock)                                                         \
    V(hostRegisterSupported, HostRegisterSupported)                                                                    \
    V(sparseCudaArraySupported, SparseCudaArraySupported)                                                              \
    V(hostRegisterReadOnlySupported, HostRegisterReadOnlySupported)                                                    \
    V(timelineSemaphoreInteropSupported, TimelineSemaphoreInteropSupported)                                            \
    V(memoryPoolsSupported, MemoryPoolsSupported)                                                                      \
    V(gpuDirectRDMASupported, GPUDirectRDMASupported)                                                                  \
    V(gpuDirectRDMAFlushWritesOptions, GPUDirectRDMAFlushWritesOptions)                                                \
    V(gpuDirectRDMAWritesOrdering, GPUDirectRDMAWritesOrdering)                                                        \
    V(memoryPoolSupportedHandleTypes, MemoryPoolSupportedHandleTypes)                                                  \
    V(deferredMappingCudaArraySupported, DeferredMappingCudaArraySupported)                                            \
    V(ipcEventSupported, IpcEventSupport)                                                                              \
    V(clusterLaunch, ClusterLaunch)                                                                                    \
    V(unifiedFunctionPointers, UnifiedFunctionPointers)

#define MEMBERS_12(V)                                                                                                  \
    V(clockRate, ClockRate)                                                                                            \
    V(deviceOverlap, GpuOverlap)                                                                                       \
    V(kernelExecTimeoutEnabled, KernelExecTimeout)                                                                     \
    V(computeMode, ComputeMode)                                                                                        \
    V(maxTexture1DLinear, MaxTexture1DLinearWidth)                                                                     \
    V(memoryClockRate, MemoryClockRate)                                                                                \
    V(singleToDoublePrecisionPerfRatio, SingleToDoublePrecisionPerfRatio)                                              \
    V(cooperativeMultiDeviceLaunch, CooperativeMultiDeviceLaunch)

#define MEMBERS_13(V)                                                                                                  \
    V(deviceNumaConfig, NumaConfig)                                                                                    \
    V(deviceNumaId, NumaId)                                                                                            \
    V(mpsEnabled, MpsEnabled)                                                                                          \
    V(hostNumaId, HostNumaId)                                                                                          \
    V(gpuPciDeviceID, GpuPciDeviceId)                                                                                  \
    V(gpuPciSubsystemID, GpuPciSubsystemId)                                                                            \
    V(hostNumaMultinodeIpcSupported, HostNumaMultinodeIpcSupported)
// clang-format on

#define FILL(member, attribute) to->member = (__typeof__(to->member))value_of(cudaDevAttr##attribute, device);
#define HEAD                                                                                                           \
    memset(to, 0, sizeof *to);                                                                                         \
    memcpy(to->name, ph_cfg.device_name, sizeof to->name);                                                             \
    to->totalGlobalMem = ph_cfg.memory_nbytes;                                                                         \
    ph_device_uuid(ph_visible_gpu(device), to->uuid.bytes);

static void fill_13(struct cudaDeviceProp13 *to, int device) { HEAD COMMON_MEMBERS(FILL) MEMBERS_13(FILL) }

static void fill_12(struct cudaDeviceProp12 *to, int device){HEAD COMMON_MEMBERS(FILL) MEMBERS_12(FILL)}

/* CUDA 12's headers map the plain name to cudaGetDeviceProperties_v2. In CUDA 13 the plain name has CUDA 13's struct.
 */
PH_EXPORT int cudaGetDeviceProperties(struct cudaDeviceProp13 *properties, int device) {
    PH_READS("properties");
    ph_host_call(PH_CALL_QUERY);
    if (ph_runtime_version() < 13000)
        return result(ph_refuse("cudaGetDeviceProperties with the struct of CUDA 11", CUDA_NOT_SUPPORTED));
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    fill_13(properties, device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaGetDeviceProperties_v2(struct cudaDeviceProp12 *properties, int device) {
    PH_READS("properties");
    ph_host_call(PH_CALL_QUERY);
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    fill_12(properties, device);
    return result(ph_device_usable());
}

PH_EXPORT int cudaDeviceGetPCIBusId(char *text, int capacity, int device) {
    if (!ph_device_exists(device) || capacity < 13)
        return result(ph_device_exists(device) ? CUDA_INVALID_VALUE : CUDA_INVALID_DEVICE);
    ph_device_pci(ph_visible_gpu(device), text, (size_t)capacity);
    return CUDA_OK;
}

PH_EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *text) {
    int found = ph_visible_as(ph_device_of_pci(text));
    *device = found < 0 ? 0 : found;
    return result(found < 0 ? CUDA_INVALID_DEVICE : CUDA_OK);
}

PH_EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = PH_LEAST_PRIORITY;
    if (greatest) *greatest = PH_GREATEST_PRIORITY;
    return CUDA_OK;
}

PH_EXPORT int cudaDeviceSynchronize(void) {
    ph_host_call(PH_CALL_SYNC);
    return result(ph_device_synchronize(ph_self()->device));
}

/* Every GPU of a server can access the others. */
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
