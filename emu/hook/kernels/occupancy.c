/*
 * What a kernel is like: its attributes, and how many of its blocks fit an SM.
 */
#include "core/config.h"
#include "kernels/kernel.h"

enum { USUAL_REGISTERS = 32 };

static int device_value(int attribute) {
    int value;
    ph_device_attribute(attribute, &value);
    return value;
}

static int registers_of(const ph_kernel *kernel) {
    return kernel && kernel->registers ? kernel->registers : USUAL_REGISTERS;
}

static int capability(void) { return ph_cfg.cc_major * 10 + ph_cfg.cc_minor; }

void ph_kernel_attributes(const ph_kernel *kernel, struct cudaFuncAttributes *out) {
    *out = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)kernel->static_shared,
        .localSizeBytes = (size_t)kernel->local_nbytes,
        .maxThreadsPerBlock = 1024,
        .numRegs = registers_of(kernel),
        .ptxVersion = capability(),
        .binaryVersion = capability(),
        .maxDynamicSharedSizeBytes =
            kernel->max_dynamic_shared ? kernel->max_dynamic_shared : (48 << 10) - kernel->static_shared,
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
    case 8: /* dynamic shared memory, beyond 48 KiB by consent only */
        if (value < 0 || value > device_value(97) - kernel->static_shared) return CUDA_INVALID_VALUE;
        kernel->max_dynamic_shared = value;
        return CUDA_OK;
    case 9:
        if (value < -1 || value > 100) return CUDA_INVALID_VALUE;
        kernel->carveout = value;
        return CUDA_OK;
    case 14:
        kernel->nonportable = value;
        return CUDA_OK;
    case 10:
    case 11:
    case 12:
    case 13:
    case 15: /* cluster shapes: nothing of ours depends on them */
        return CUDA_OK;
    default:
        return CUDA_INVALID_VALUE;
    }
}

static int least(int a, int b) { return a < b ? a : b; }

/* CUDA's occupancy rules: threads, blocks, registers (allocated per warp in units of 256) and shared memory per SM. */
int ph_occupancy_blocks(const ph_kernel *kernel, int block_threads, size_t dynamic_shared) {
    if (block_threads <= 0 || block_threads > 1024) return 0;
    int warps = (block_threads + 31) / 32;
    int blocks = least(device_value(106), device_value(39) / (warps * 32));
    int registers_per_warp = (registers_of(kernel) * 32 + 255) / 256 * 256;
    blocks = least(blocks, device_value(82) / registers_per_warp / warps);
    size_t shared = dynamic_shared + (kernel ? (size_t)kernel->static_shared : 0);
    if (shared > (size_t)device_value(97)) return 0;
    size_t per_block = (shared + (size_t)device_value(111) + 127) / 128 * 128;
    return per_block ? least(blocks, (int)((size_t)device_value(81) / per_block)) : blocks;
}

int ph_cooperative_fits(const ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes) {
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, threads = (uint64_t)block.x * block.y * block.z;
    if (!kernel || threads == 0 || threads > 1024) return CUDA_OK; /* the launch itself says what is wrong */
    uint64_t resident = (uint64_t)ph_occupancy_blocks(kernel, (int)threads, shared_nbytes) * (uint64_t)ph_cfg.sm_count;
    return blocks <= resident ? CUDA_OK : CUDA_COOPERATIVE_TOO_LARGE;
}
