/*
 * cuBLAS: the handle and its settings, versions, errors.
 *
 * A handle takes memory of the GPU. PyTorch makes one for each thread that multiplies, autograd's too. What the first
 * one takes belongs to what a GPU's description keeps from the start (memory.reserved_nbytes).
 */
#include "device/versions.h"
#include "holders/holders.h"
#include "memory/memory.h"
#include "threads/host.h"
#include "threads/thread.h"
#include "core/config.h"
#include "cublas/cublas.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Of cuBLAS 13 on an H200, in a further thread. Older GPUs, to which cuBLAS gives smaller workspaces, were not
 * measured: nothing is counted there. */
#define HANDLE_NBYTES ((uint64_t)64 << 20)

static _Atomic uint32_t handles[PH_MAX_DEVICES];

PH_EXPORT int cublasCreate_v2(cublas_handle **handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !(*handle = calloc(1, sizeof **handle))) return CUBLAS_INVALID_VALUE;
    int device = ph_self()->device;
    uint64_t takes = atomic_fetch_add(&handles[device], 1) && ph_cfg.cc_major >= 9 ? HANDLE_NBYTES : 0;
    if (takes && ph_memory_take(device, takes) != 0) {
        ph_holders_missing_outside(device, takes);
        atomic_fetch_sub(&handles[device], 1);
        free(*handle);
        *handle = NULL;
        return CUBLAS_ALLOC_FAILED;
    }
    (*handle)->device = device;
    (*handle)->taken = takes;
    return CUBLAS_OK;
}

PH_EXPORT int cublasDestroy_v2(cublas_handle *handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    atomic_fetch_sub(&handles[handle->device], 1);
    if (handle->taken) ph_memory_give(handle->device, handle->taken);
    free(handle);
    return CUBLAS_OK;
}

PH_EXPORT int cublasGetVersion_v2(cublas_handle *handle, int *version) {
    (void)handle;
    if (!version) return CUBLAS_INVALID_VALUE;
    *version = (int)ph_real_version("libcublasLt.so", "cublasLtGetVersion", 130100);
    return CUBLAS_OK;
}

/* property: 0 is the major number, 1 the minor, 2 the patch level */
PH_EXPORT int cublasGetProperty(int property, int *value) {
    if (!value || property < 0 || property > 2) return CUBLAS_INVALID_VALUE;
    int version = 0;
    cublasGetVersion_v2(NULL, &version);
    *value = property == 0 ? version / 10000 : property == 1 ? version / 100 % 100 : version % 100;
    return CUBLAS_OK;
}

/* The two calls that set and get one field of the handle. */
#define SETTING(Name, suffix, field, type)                                                                             \
    PH_EXPORT int cublasSet##Name##suffix(cublas_handle *handle, type value) {                                         \
        ph_host_call(PH_CALL_LIBRARY_QUERY);                                                                           \
        if (!handle) return CUBLAS_NOT_INITIALIZED;                                                                    \
        handle->field = value;                                                                                         \
        return CUBLAS_OK;                                                                                              \
    }                                                                                                                  \
    PH_EXPORT int cublasGet##Name##suffix(cublas_handle *handle, type *value) {                                        \
        ph_host_call(PH_CALL_LIBRARY_QUERY);                                                                           \
        if (!handle) return CUBLAS_NOT_INITIALIZED;                                                                    \
        if (!value) return CUBLAS_INVALID_VALUE;                                                                       \
        *value = handle->field;                                                                                        \
        return CUBLAS_OK;                                                                                              \
    }
SETTING(PointerMode, _v2, pointer_mode, int)
SETTING(MathMode, , math_mode, int)
SETTING(AtomicsMode, , atomics_mode, int)
SETTING(SmCountTarget, , sm_target, int)

/* Sets the stream. The handle also goes back to the library's own workspace, as cuBLAS documents. */
PH_EXPORT int cublasSetStream_v2(cublas_handle *handle, void *stream) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    handle->stream = stream;
    handle->workspace = NULL;
    handle->workspace_nbytes = 0;
    return CUBLAS_OK;
}

PH_EXPORT int cublasGetStream_v2(cublas_handle *handle, void **stream) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !stream) return handle ? CUBLAS_INVALID_VALUE : CUBLAS_NOT_INITIALIZED;
    *stream = handle->stream;
    return CUBLAS_OK;
}

PH_EXPORT int cublasSetWorkspace_v2(cublas_handle *handle, void *workspace, size_t nbytes) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    handle->workspace = workspace;
    handle->workspace_nbytes = nbytes;
    return CUBLAS_OK;
}

PH_EXPORT const char *cublasGetStatusName(int status) {
    switch (status) {
    case 0:
        return "CUBLAS_STATUS_SUCCESS";
    case 1:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case 8:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case 16:
        return "CUBLAS_STATUS_LICENSE_ERROR";
    default:
        return "<unknown>";
    }
}

PH_EXPORT const char *cublasGetStatusString(int status) { return cublasGetStatusName(status); }
