/*
 * Driver: modules, functions, launches, occupancy, tensor maps.
 */
#include "core/hash.h"
#include "threads/host.h"
#include "driver/driver.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "streams/host_function.h"

#include <string.h>

PH_EXPORT int cuModuleLoad(void **module, const char *path) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_module_load_file(path, module);
}

PH_EXPORT int cuModuleLoadData(void **module, const void *image) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_module_load(image, module);
}

PH_EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values) {
    (void)n, (void)options, (void)values; /* options of the just-in-time compiler, whose logs stay empty */
    return cuModuleLoadData(module, image);
}

PH_EXPORT int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }

PH_EXPORT int cuModuleUnload(void *module) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_module_unload(module);
}

PH_EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    ph_host_call(PH_CALL_QUERY);
    return ph_module_function(module, name, (ph_kernel **)function);
}

/* A CUlibrary is a module here, a CUkernel a function. */
PH_EXPORT int cuLibraryLoadData(void **library, const void *image, int *jit, void **jit_values, unsigned njit,
                                int *options, void **values, unsigned n) {
    (void)jit, (void)jit_values, (void)njit, (void)options, (void)values, (void)n;
    return cuModuleLoadData(library, image);
}

PH_EXPORT int cuLibraryUnload(void *library) { return cuModuleUnload(library); }
PH_EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    return cuModuleGetFunction(kernel, library, name);
}

PH_EXPORT int cuLibraryGetModule(void **module, void *library) {
    *module = library;
    return library ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuKernelGetFunction(void **function, void *kernel) {
    *function = kernel_of(kernel);
    return *function ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuFuncGetName(const char **name, void *function) {
    const ph_kernel *kernel = kernel_of(function);
    *name = kernel ? kernel->name : NULL;
    return kernel ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = 0;
    const ph_kernel *kernel = kernel_of(function);
    return kernel ? ph_kernel_attribute(kernel, attribute, value) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
    ph_kernel *kernel = kernel_of(function);
    return kernel ? ph_kernel_set_attribute(kernel, attribute, value) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuFuncSetCacheConfig(void *function, int preference) {
    (void)preference; /* a hint */
    return kernel_of(function) ? CUDA_OK : CUDA_INVALID_HANDLE;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Returns the driver's error: where the runtime has two errors the driver has one. */
static int driver_status(int status) {
    return status == CUDA_INVALID_CONFIGURATION     ? CUDA_INVALID_VALUE
           : status == CUDA_INVALID_DEVICE_FUNCTION ? CUDA_INVALID_HANDLE
                                                    : status;
}

static int launch(void *function, dim3 grid, dim3 block, unsigned shared_nbytes, void *stream, void **params) {
    return driver_status(
        ph_kernel_launch(ph_kernel_of(function), grid, block, shared_nbytes, ph_stream_of(stream), params));
}

PH_EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared_nbytes, void *stream, void **params, void **extra) {
    (void)extra;
    return launch(function, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared_nbytes, stream, params);
}

PH_EXPORT int cuLaunchKernelEx(const struct CUlaunchConfig *c, void *function, void **params, void **extra) {
    (void)extra;
    return launch(function, (dim3){c->gridDimX, c->gridDimY, c->gridDimZ},
                  (dim3){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes, c->hStream, params);
}

PH_EXPORT int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                        unsigned bz, unsigned shared_nbytes, void *stream, void **params) {
    int status = ph_cooperative_fits(kernel_of(function), (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared_nbytes);
    return status ? status : launch(function, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared_nbytes, stream, params);
}

PH_EXPORT int cuLaunchHostFunc(void *stream, void (*function)(void *), void *arg) {
    ph_host_call(PH_CALL_LAUNCH);
    ph_stream *on = ph_stream_of(stream);
    if (!on || !function) return on ? CUDA_INVALID_VALUE : CUDA_INVALID_HANDLE;
    return ph_host_function_launch(on, function, arg);
}

/* ---- occupancy --------------------------------------------------------------------------------------------------- */

PH_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int block_threads,
                                                                   size_t shared_nbytes, unsigned flags) {
    (void)flags;
    *blocks = 0;
    const ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel || block_threads <= 0) return kernel ? CUDA_INVALID_VALUE : CUDA_INVALID_HANDLE;
    *blocks = ph_occupancy_blocks(kernel, block_threads, shared_nbytes);
    return CUDA_OK;
}

PH_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int block_threads,
                                                          size_t shared_nbytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_nbytes, 0);
}

PH_EXPORT int cuOccupancyMaxActiveClusters(int *clusters, void *function, const struct CUlaunchConfig *config) {
    *clusters = 0;
    const ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel) return CUDA_INVALID_HANDLE;
    int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    *clusters = ph_occupancy_clusters(kernel, threads, config->sharedMemBytes, config->attrs, config->numAttrs);
    return *clusters < 0 ? CUDA_INVALID_VALUE : CUDA_OK;
}

/* ---- tensor maps ------------------------------------------------------------------------------------------------- */

/* A tensor map is 128 opaque bytes that kernels read. Since no kernel runs, they have to be the same for the same
 * arguments, and to tell how large the tensor is (kernels/operands.c). */
PH_EXPORT int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *dims,
                                     const uint64_t *strides, const unsigned *box, const unsigned *element_strides,
                                     int interleave, int swizzle, int l2, int fill) {
    memset(map, 0, 128);
    if (rank == 0 || rank > 5 || !address || !dims || !box || !element_strides || (rank > 1 && !strides))
        return CUDA_INVALID_VALUE;
    static const unsigned char nbits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
    uint64_t items = 1;
    for (unsigned i = 0; i < rank; i++) items *= dims[i];
    const uint64_t words[] = {(uintptr_t)address,
                              PH_TENSOR_MAP,
                              items * (type >= 0 && (size_t)type < sizeof nbits ? nbits[type] : 8) / 8,
                              (uint64_t)type << 32 | rank,
                              ph_hash(1, dims, rank * sizeof *dims),
                              rank > 1 ? ph_hash(2, strides, (rank - 1) * sizeof *strides) : 0,
                              ph_hash(3, box, rank * sizeof *box),
                              ph_hash(4, element_strides, rank * sizeof *element_strides),
                              (uint64_t)interleave << 48 | (uint64_t)swizzle << 32 | (uint64_t)l2 << 16 |
                                  (uint64_t)fill};
    memcpy(map, words, sizeof words);
    return CUDA_OK;
}
