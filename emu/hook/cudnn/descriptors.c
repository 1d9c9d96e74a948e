/* cuDNN: tensor and filter descriptors of the legacy API. */
#include "cudnn/cudnn.h"

#include <stdlib.h>

uint64_t cudnn_dtype_nbytes(int dtype, uint64_t items) { return ph_dtype_nbytes(ph_dtype_of_cudnn(dtype), items); }

uint64_t cudnn_tensor_nbytes(const cudnn_tensor *tensor) {
    uint64_t elements = tensor->ndims ? 1 : 0;
    for (int i = 0; i < tensor->ndims; i++) elements *= (uint64_t)(tensor->dims[i] > 0 ? tensor->dims[i] : 0);
    return cudnn_dtype_nbytes(tensor->dtype, elements);
}

void cudnn_pack_strides(cudnn_tensor *tensor) {
    int64_t stride = 1;
    if (tensor->format == 1 && tensor->ndims > 2) {
        tensor->strides[1] = 1;
        stride = tensor->dims[1];
        for (int i = tensor->ndims - 1; i >= 2; i--) {
            tensor->strides[i] = stride;
            stride *= tensor->dims[i];
        }
        tensor->strides[0] = stride;
        return;
    }
    for (int i = tensor->ndims - 1; i >= 0; i--) {
        tensor->strides[i] = stride;
        stride *= tensor->dims[i];
    }
}

static int create(cudnn_tensor **out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!out) return CUDNN_BAD_POINTER;
    return (*out = calloc(1, sizeof **out)) ? CUDNN_OK : CUDNN_NO_MEMORY;
}

PH_EXPORT int cudnnCreateTensorDescriptor(cudnn_tensor **out) { return create(out); }
PH_EXPORT int cudnnCreateFilterDescriptor(cudnn_tensor **out) { return create(out); }

PH_EXPORT int cudnnDestroyTensorDescriptor(cudnn_tensor *tensor) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(tensor);
    return CUDNN_OK;
}

PH_EXPORT int cudnnDestroyFilterDescriptor(cudnn_tensor *filter) { return cudnnDestroyTensorDescriptor(filter); }

static int set(cudnn_tensor *tensor, int dtype, int format, int ndims, const int *dims, const int *strides) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!tensor || !dims || ndims < 1 || ndims > CUDNN_MAX_DIMS) return CUDNN_BAD_PARAM;
    *tensor = (cudnn_tensor){.dtype = dtype, .ndims = ndims, .format = format};
    for (int i = 0; i < ndims; i++) tensor->dims[i] = dims[i];
    if (!strides) cudnn_pack_strides(tensor);
    for (int i = 0; strides && i < ndims; i++) tensor->strides[i] = strides[i];
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetTensorNdDescriptor(cudnn_tensor *tensor, int dtype, int ndims, const int dims[],
                                         const int strides[]) {
    return strides ? set(tensor, dtype, 0, ndims, dims, strides) : CUDNN_BAD_POINTER;
}

PH_EXPORT int cudnnSetFilterNdDescriptor(cudnn_tensor *filter, int dtype, int format, int ndims, const int dims[]) {
    return set(filter, dtype, format, ndims, dims, NULL);
}

/* `requested` is the length of the arrays; *ndims becomes the true number. */
static int get(const cudnn_tensor *tensor, int requested, int *dtype, int *ndims, int *dims, int *strides) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!tensor || !dtype || !ndims || requested < 0 || (requested && !dims)) return CUDNN_BAD_PARAM;
    *dtype = tensor->dtype;
    *ndims = tensor->ndims;
    for (int i = 0; i < requested && i < tensor->ndims; i++) {
        dims[i] = (int)tensor->dims[i];
        if (strides) strides[i] = (int)tensor->strides[i];
    }
    return CUDNN_OK;
}

PH_EXPORT int cudnnGetTensorNdDescriptor(const cudnn_tensor *tensor, int requested, int *dtype, int *ndims, int dims[],
                                         int strides[]) {
    return get(tensor, requested, dtype, ndims, dims, strides);
}

PH_EXPORT int cudnnGetFilterNdDescriptor(const cudnn_tensor *filter, int requested, int *dtype, int *format, int *ndims,
                                         int dims[]) {
    if (!filter || !format) return CUDNN_BAD_PARAM;
    *format = filter->format;
    return get(filter, requested, dtype, ndims, dims, NULL);
}
