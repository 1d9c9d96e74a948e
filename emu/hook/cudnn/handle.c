/* cuDNN: handle, versions, errors. */
#include "device/versions.h"
#include "cudnn/cudnn.h"

#include <stdio.h>
#include <stdlib.h>

PH_EXPORT int cudnnCreate(cudnn_handle **handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle) return CUDNN_BAD_POINTER;
    return (*handle = calloc(1, sizeof **handle)) ? CUDNN_OK : CUDNN_NO_MEMORY;
}

PH_EXPORT int cudnnDestroy(cudnn_handle *handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(handle);
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetStream(cudnn_handle *handle, void *stream) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle) return CUDNN_BAD_POINTER;
    handle->stream = stream;
    return CUDNN_OK;
}

PH_EXPORT int cudnnGetStream(cudnn_handle *handle, void **stream) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !stream) return CUDNN_BAD_POINTER;
    *stream = handle->stream;
    return CUDNN_OK;
}

/* PyTorch refuses a cuDNN that is older than the one that it was built with, and chooses attention kernels by the
 * version.
 */
PH_EXPORT size_t cudnnGetVersion(void) { return ph_real_version("libcudnn.so", "cudnnGetVersion", 91900); }

PH_EXPORT size_t cudnnGetCudartVersion(void) { return ph_real_version("libcudnn.so", "cudnnGetCudartVersion", 13000); }

/* property: 0 is the major number, 1 the minor, 2 the patch level */
PH_EXPORT int cudnnGetProperty(int property, int *value) {
    size_t version = cudnnGetVersion();
    if (!value || property < 0 || property > 2) return CUDNN_BAD_PARAM;
    *value = (int)(property == 0 ? version / 10000 : property == 1 ? version / 100 % 100 : version % 100);
    return CUDNN_OK;
}

PH_EXPORT const char *cudnnGetErrorString(int status) {
    switch (status) {
    case CUDNN_OK:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_BAD_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_NOT_FINALIZED:
        return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_NO_MEMORY:
        return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    default:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

PH_EXPORT void cudnnGetLastErrorString(char *message, size_t capacity) {
    if (message && capacity) snprintf(message, capacity, "the emulated cuDNN has no further details");
}
