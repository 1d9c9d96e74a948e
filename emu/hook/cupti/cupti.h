/* Structs and numbers of CUPTI's activity interface: as much of NVIDIA's headers as PyTorch's profiler uses. */
#ifndef PHANTORA_CUPTI_H
#define PHANTORA_CUPTI_H

#include "core/base.h"

enum {
    CUPTI_OK = 0,
    CUPTI_INVALID_PARAMETER = 1,
    CUPTI_MAX_LIMIT_REACHED = 12,
    CUPTI_QUEUE_EMPTY = 18,
    CUPTI_NOT_SUPPORTED = 27
};
enum {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_KERNEL = 3,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_OVERHEAD = 17,
    KIND_EXTERNAL_CORRELATION = 39,
};
enum { EXTERNAL_CUSTOM0 = 3, EXTERNAL_CUSTOM1 = 4 };
enum { COPY_KIND_HTOD = 1, COPY_KIND_DTOH = 2, COPY_KIND_DTOD = 8, COPY_KIND_HTOH = 9, COPY_KIND_PTOP = 10 };
enum { MEMORY_PAGEABLE = 1, MEMORY_PINNED = 2, MEMORY_DEVICE = 3 };

struct CUpti_ActivityAPI {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t processId, threadId, correlationId, returnValue;
};

struct CUpti_ActivityExternalCorrelation {
    uint32_t kind, externalKind;
    uint64_t externalId;
    uint32_t correlationId, reserved;
};

/* Kernel9, to which later versions add fields at the end. */
struct CUpti_ActivityKernel9 {
    uint32_t kind;
    uint8_t cacheConfig, sharedMemoryConfig;
    uint16_t registersPerThread;
    uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ, blockX, blockY, blockZ;
    int32_t staticSharedMemory, dynamicSharedMemory;
    uint32_t localMemoryPerThread, localMemoryTotal, correlationId;
    int64_t gridId;
    const char *name;
    void *reserved0;
    uint64_t queued, submitted;
    uint8_t launchType, isSharedMemoryCarveoutRequested, sharedMemoryCarveoutRequested, padding;
    uint32_t sharedMemoryExecuted;
    uint64_t graphNodeId;
    uint32_t shmemLimitConfig, graphId;
    void *pAccessPolicyWindow;
    uint32_t channelID, channelType, clusterX, clusterY, clusterZ, clusterSchedulingPolicy;
    uint64_t localMemoryTotal_v2;
    uint32_t maxPotentialClusterSize, maxActiveClusters;
};

struct CUpti_ActivityMemcpy5 {
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId, runtimeCorrelationId, pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType, pad2;
};

struct CUpti_ActivityMemset4 {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
    uint16_t flags, memoryKind;
    uint32_t pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType;
    uint8_t isDeviceLaunched, pad2[3];
};

typedef struct CUpti_ActivityAPI CUpti_ActivityAPI;
typedef struct CUpti_ActivityExternalCorrelation CUpti_ActivityExternalCorrelation;
typedef struct CUpti_ActivityKernel9 CUpti_ActivityKernel9;
typedef struct CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy5;
typedef struct CUpti_ActivityMemset4 CUpti_ActivityMemset4;

#endif
