/*
 * A kernel's attributes, and its occupancy: how many of its blocks fit an SM.
 */
#include "core/config.h"
#include "cuda/attributes.h"
#include "kernels/architectures.h"

/* Kernels registered by nvcc's stubs do not tell how many registers they take. */
enum { ASSUMED_REGISTERS = 32, REGISTER_UNIT = 256, SHARED_UNIT = 128 };

static int device_value(int attribute) {
    int value;
    ph_device_attribute(attribute, &value);
    return value;
}

static int registers_of(const ph_kernel *kernel) {
    return kernel && kernel->registers ? kernel->registers : ASSUMED_REGISTERS;
}

void ph_kernel_attributes(const ph_kernel *kernel, struct cudaFuncAttributes *out) {
    ph_architecture architecture = ph_architecture_of(kernel);
    *out = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)kernel->static_shared,
        .localSizeBytes = (size_t)kernel->local_nbytes,
        .maxThreadsPerBlock = PH_MAX_BLOCK_THREADS,
        .numRegs = registers_of(kernel),
        .ptxVersion = architecture.ptx,
        .binaryVersion = architecture.binary,
        .maxDynamicSharedSizeBytes =
            kernel->max_dynamic_shared ? kernel->max_dynamic_shared : PH_SHARED_WITHOUT_OPTIN - kernel->static_shared,
        .preferredShmemCarveout = kernel->carveout ? kernel->carveout : -1,
        .nonPortableClusterSizeAllowed = kernel->nonportable,
    };
}

int ph_kernel_attribute(const ph_kernel *kernel, int attribute, int *value) {
    struct cudaFuncAttributes all;
    ph_kernel_attributes(kernel, &all);
    const int values[] = {all.maxThreadsPerBlock,
                          (int)all.sharedSizeBytes,
                          (int)all.constSizeBytes,
                          (int)all.localSizeBytes,
                          all.numRegs,
                          all.ptxVersion,
                          all.binaryVersion,
                          all.cacheModeCA,
                          all.maxDynamicSharedSizeBytes,
                          all.preferredShmemCarveout,
                          all.clusterDimMustBeSet,
                          all.requiredClusterWidth,
                          all.requiredClusterHeight,
                          all.requiredClusterDepth,
                          all.nonPortableClusterSizeAllowed,
                          all.clusterSchedulingPolicyPreference};
    *value = 0;
    if (attribute < 0 || (size_t)attribute >= sizeof values / sizeof *values) return CUDA_INVALID_VALUE;
    *value = values[attribute];
    return CUDA_OK;
}

int ph_kernel_set_attribute(ph_kernel *kernel, int attribute, int value) {
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > device_value(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kernel->static_shared)
            return CUDA_INVALID_VALUE;
        kernel->max_dynamic_shared = value;
        return CUDA_OK;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < -1 || value > 100) return CUDA_INVALID_VALUE;
        kernel->carveout = value;
        return CUDA_OK;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
        kernel->nonportable = value;
        return CUDA_OK;
    case cudaFuncAttributeClusterDimMustBeSet:
    case cudaFuncAttributeRequiredClusterWidth:
    case cudaFuncAttributeRequiredClusterHeight:
    case cudaFuncAttributeRequiredClusterDepth:
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
        /* The cluster's shape changes neither a signature nor occupancy as it is computed here. */
        return CUDA_OK;
    default:
        return CUDA_INVALID_VALUE;
    }
}

static int least(int a, int b) { return a < b ? a : b; }

static int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/* CUDA's occupancy rules: threads, blocks, registers (allocated per warp) and shared memory limit the blocks of an SM.
 */
int ph_occupancy_blocks(const ph_kernel *kernel, int block_threads, size_t dynamic_shared) {
    if (block_threads <= 0 || block_threads > PH_MAX_BLOCK_THREADS) return 0;
    int threads = round_up(block_threads, PH_WARP_THREADS);
    int blocks = least(device_value(cudaDevAttrMaxBlocksPerMultiprocessor),
                       device_value(cudaDevAttrMaxThreadsPerMultiProcessor) / threads);
    int registers_per_warp = round_up(registers_of(kernel) * PH_WARP_THREADS, REGISTER_UNIT);
    int warps_by_registers = device_value(cudaDevAttrMaxRegistersPerMultiprocessor) / registers_per_warp;
    blocks = least(blocks, warps_by_registers / (threads / PH_WARP_THREADS));
    size_t shared = dynamic_shared + (kernel ? (size_t)kernel->static_shared : 0);
    if (shared > (size_t)device_value(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return 0;
    int per_block = round_up((int)shared + device_value(cudaDevAttrReservedSharedMemoryPerBlock), SHARED_UNIT);
    return per_block ? least(blocks, device_value(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / per_block) : blocks;
}

int ph_occupancy_clusters(const ph_kernel *kernel, int block_threads, size_t dynamic_shared, const void *attributes,
                          unsigned nattributes) {
    const struct {
        int id;
        char pad[4];
        unsigned x, y, z;
        char rest[52];
    } *given = attributes;
    _Static_assert(sizeof *given == 72, "CUlaunchAttribute and cudaLaunchAttribute");
    unsigned size = 1;
    for (unsigned i = 0; i < nattributes; i++)
        if (given[i].id == cudaLaunchAttributeClusterDimension) size = given[i].x * given[i].y * given[i].z;
    return size ? ph_occupancy_blocks(kernel, block_threads, dynamic_shared) * ph_cfg.sm_count / (int)size : -1;
}

int ph_cooperative_fits(const ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes) {
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, threads = (uint64_t)block.x * block.y * block.z;
    if (!kernel || threads == 0 || threads > PH_MAX_BLOCK_THREADS) return CUDA_OK; /* the launch itself is refused */
    uint64_t resident = (uint64_t)ph_occupancy_blocks(kernel, (int)threads, shared_nbytes) * (uint64_t)ph_cfg.sm_count;
    return blocks <= resident ? CUDA_OK : CUDA_COOPERATIVE_TOO_LARGE;
}
