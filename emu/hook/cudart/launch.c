/*
 * Runtime: launches, function attributes, occupancy.
 */
#include "threads/host.h"
#include "cudart/cudart.h"
#include "kernels/registry.h"

#include <string.h>

PH_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_nbytes, void *stream) {
    ph_thread *thread = ph_self();
    if (thread->nconfigs == PH_MAX_CONFIGS) return 1; /* then nvcc's stub skips the launch */
    thread->configs[thread->nconfigs++] = (ph_call_config){grid, block, shared_nbytes, stream};
    return 0;
}

PH_EXPORT int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_nbytes, void *stream) {
    ph_thread *thread = ph_self();
    if (thread->nconfigs == 0) return result(CUDA_MISSING_CONFIGURATION);
    const ph_call_config *config = &thread->configs[--thread->nconfigs];
    *grid = config->grid;
    *block = config->block;
    *shared_nbytes = config->shared_nbytes;
    memcpy(stream, &config->stream, sizeof config->stream);
    return CUDA_OK;
}

/* nvcc's newer stubs launch by the handle from __cudaGetKernel. */
PH_EXPORT int __cudaLaunchKernel(ph_kernel *kernel, dim3 grid, dim3 block, void **args, size_t shared_nbytes,
                                 void *stream) {
    return result(ph_kernel_launch(kernel, grid, block, shared_nbytes, ph_stream_of(stream), args));
}

PH_EXPORT int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_nbytes,
                               void *stream) {
    return result(ph_kernel_launch(ph_kernel_of(function), grid, block, shared_nbytes, ph_stream_of(stream), args));
}

PH_EXPORT int cudaLaunchKernelExC(const struct cudaLaunchConfig *config, const void *function, void **args) {
    return result(ph_kernel_launch(ph_kernel_of(function), config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                   ph_stream_of(config->stream), args));
}

PH_EXPORT int cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args,
                                          size_t shared_nbytes, void *stream) {
    ph_kernel *kernel = ph_kernel_of(function);
    int status = ph_cooperative_fits(kernel, grid, block, shared_nbytes);
    return result(status ? status : ph_kernel_launch(kernel, grid, block, shared_nbytes, ph_stream_of(stream), args));
}

PH_EXPORT int cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    ph_host_call(PH_CALL_QUERY);
    memset(attributes, 0, sizeof *attributes);
    const ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel) return result(CUDA_INVALID_DEVICE_FUNCTION);
    ph_kernel_attributes(kernel, attributes);
    return CUDA_OK;
}

PH_EXPORT int cudaFuncSetAttribute(const void *function, int attribute, int value) {
    ph_host_call(PH_CALL_QUERY);
    ph_kernel *kernel = ph_kernel_of(function);
    return result(kernel ? ph_kernel_set_attribute(kernel, attribute, value) : CUDA_INVALID_DEVICE_FUNCTION);
}

PH_EXPORT int cudaKernelSetAttributeForDevice(void *handle, int attribute, int value, int device) {
    return ph_device_exists(device) ? cudaFuncSetAttribute(handle, attribute, value) : result(CUDA_INVALID_DEVICE);
}

PH_EXPORT int cudaFuncSetCacheConfig(const void *function, int preference) {
    (void)preference; /* a hint; it has no effect on GPUs since Volta */
    return result(ph_kernel_of(function) ? CUDA_OK : CUDA_INVALID_DEVICE_FUNCTION);
}

PH_EXPORT int cudaFuncGetName(const char **name, const void *function) {
    const ph_kernel *kernel = ph_kernel_of(function);
    *name = kernel ? kernel->name : NULL;
    return result(kernel ? CUDA_OK : CUDA_INVALID_DEVICE_FUNCTION);
}

PH_EXPORT int cudaGetFuncBySymbol(void **out, const void *symbol) {
    *out = ph_kernel_of(symbol);
    return result(*out ? CUDA_OK : CUDA_INVALID_DEVICE_FUNCTION);
}

PH_EXPORT int cudaGetKernel(void **out, const void *symbol) { return cudaGetFuncBySymbol(out, symbol); }

PH_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                     int block_threads, size_t shared_nbytes,
                                                                     unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_QUERY);
    *blocks = 0;
    const ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel) return result(CUDA_INVALID_DEVICE_FUNCTION);
    if (block_threads <= 0) return result(CUDA_INVALID_VALUE);
    *blocks = ph_occupancy_blocks(kernel, block_threads, shared_nbytes);
    return CUDA_OK;
}

PH_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_threads,
                                                            size_t shared_nbytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_nbytes, 0);
}

PH_EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                             const struct cudaLaunchConfig *config) {
    ph_host_call(PH_CALL_QUERY);
    *clusters = 0;
    const ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel) return result(CUDA_INVALID_DEVICE_FUNCTION);
    int threads = (int)(config->blockDim.x * config->blockDim.y * config->blockDim.z);
    *clusters = ph_occupancy_clusters(kernel, threads, config->dynamicSmemBytes, config->attrs, config->numAttrs);
    return result(*clusters < 0 ? CUDA_INVALID_VALUE : CUDA_OK);
}
