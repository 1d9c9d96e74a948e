/*
 * cuDNN: legacy batch norm, activation descriptors, spatial transformer.
 *
 * Reserve space of batch norm is 0 bytes. So is its workspace, but of f16 and f32 with channels last.
 */
#include "kernels/library.h"
#include "cudnn/backend.h"

#include <stdlib.h>
#include <string.h>

typedef struct activation {
    int mode, nan;
    double coefficient;
} activation;
typedef struct transformer {
    int kind;
    cudnn_tensor output;
} transformer;

CUDNN_DESCRIPTOR(Activation, activation)
CUDNN_DESCRIPTOR(SpatialTransformer, transformer)

PH_EXPORT int cudnnSetActivationDescriptor(activation *it, int mode, int nan, double coefficient) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it) return CUDNN_BAD_POINTER;
    *it = (activation){mode, nan, coefficient};
    return CUDNN_OK;
}

/* ---- batch norm -------------------------------------------------------------------------------------------------- */
static int run(cudnn_handle *handle, bool backward, int mode, const cudnn_tensor *x) {
    if (!handle || !x) return CUDNN_BAD_POINTER;
    norm_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.backward = backward;
    problem.mode = mode;
    problem.dtype = x->dtype;
    problem.nhwc = x->ndims > 2 && x->strides[1] == 1;
    problem.ndims = x->ndims;
    memcpy(problem.x, x->dims, sizeof problem.x);
    return norm_launch(handle->stream, &problem);
}

/* With channels last, blocks of rows and of 64 channels have two sums of each channel; forward they also count down
 * together. As measured (laboratory/notes/workspaces.md): bf16 takes nothing. */
static size_t sums_nbytes(bool backward, const cudnn_tensor *x) {
    enum { F32_ROWS = 64, F16_ROWS = 160, BACKWARD_ROWS = 96, CHANNELS = 64, COUNTER = 4, SUMS = 2 * 4 };
    enum { MORE = 1072, BACKWARD_MORE = 1056 };
    bool last = x->ndims > 2 && x->strides[1] == 1 && x->strides[x->ndims - 1] == x->dims[1];
    if (!last || (x->dtype != CUDNN_DTYPE_F16 && x->dtype != CUDNN_DTYPE_F32)) return 0;
    size_t rows = (size_t)x->dims[0], of_rows = x->dtype == CUDNN_DTYPE_F16 ? F16_ROWS : F32_ROWS;
    if (backward) of_rows = BACKWARD_ROWS;
    for (int i = 2; i < x->ndims; i++) rows *= (size_t)x->dims[i];
    size_t blocks = (rows + of_rows - 1) / of_rows, columns = ((size_t)x->dims[1] + CHANNELS - 1) / CHANNELS;
    size_t counters = columns * COUNTER;
    return blocks * columns * CHANNELS * SUMS + (backward ? counters + BACKWARD_MORE : (blocks + 1) * counters + MORE);
}

static int space(const void *handle, const cudnn_tensor *x, size_t nbytes, size_t *out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !x || !out) return CUDNN_BAD_POINTER;
    *out = nbytes;
    return CUDNN_OK;
}

PH_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnn_handle *handle, int mode, int ops,
                                                                       const cudnn_tensor *x, const cudnn_tensor *z,
                                                                       const cudnn_tensor *y, const cudnn_tensor *scale,
                                                                       const activation *with, size_t *nbytes) {
    (void)mode, (void)ops, (void)z, (void)y, (void)scale, (void)with;
    return space(handle, x, x ? sums_nbytes(false, x) : 0, nbytes);
}

PH_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnn_handle *handle, int mode, int ops,
                                                                const cudnn_tensor *x, const cudnn_tensor *y,
                                                                const cudnn_tensor *dy, const cudnn_tensor *dz,
                                                                const cudnn_tensor *dx, const cudnn_tensor *scale,
                                                                const activation *with, size_t *nbytes) {
    (void)mode, (void)ops, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)with;
    return space(handle, x, x ? sums_nbytes(true, x) : 0, nbytes);
}

PH_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnn_handle *handle, int mode, int ops,
                                                                   const activation *with, const cudnn_tensor *x,
                                                                   size_t *nbytes) {
    (void)mode, (void)ops, (void)with;
    return space(handle, x, 0, nbytes);
}

PH_EXPORT int cudnnBatchNormalizationForwardInference(cudnn_handle *handle, int mode, const void *alpha,
                                                      const void *beta, const cudnn_tensor *x) {
    (void)alpha, (void)beta; /* the other parameters are buffers and their descriptors */
    return run(handle, false, mode, x);
}

PH_EXPORT int cudnnBatchNormalizationForwardTrainingEx(cudnn_handle *handle, int mode, int ops, const void *alpha,
                                                       const void *beta, const cudnn_tensor *x) {
    (void)ops, (void)alpha, (void)beta;
    return run(handle, false, mode, x);
}

PH_EXPORT int cudnnBatchNormalizationBackwardEx(cudnn_handle *handle, int mode, int ops, const void *alpha,
                                                const void *beta, const void *alpha_parameters,
                                                const void *beta_parameters, const cudnn_tensor *x) {
    (void)ops, (void)alpha, (void)beta, (void)alpha_parameters, (void)beta_parameters;
    return run(handle, true, mode, x);
}

/* ---- spatial transformer: charged by the bytes of its output ----------------------------------------------------- */
PH_EXPORT int cudnnSetSpatialTransformerNdDescriptor(transformer *it, int kind, int dtype, int ndims,
                                                     const int dims[]) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it || !dims || ndims < 1 || ndims > CUDNN_MAX_DIMS) return CUDNN_BAD_PARAM;
    it->kind = kind;
    it->output = (cudnn_tensor){.dtype = dtype, .ndims = ndims};
    for (int i = 0; i < ndims; i++) it->output.dims[i] = dims[i];
    return CUDNN_OK;
}

static int transform(cudnn_handle *handle, const transformer *it, const char *name, uint64_t times) {
    if (!handle || !it) return CUDNN_BAD_POINTER;
    return ph_library_launch(handle->stream, name, times * cudnn_tensor_nbytes(&it->output)) ? CUDNN_OK
                                                                                             : CUDNN_BAD_PARAM;
}

PH_EXPORT int cudnnSpatialTfGridGeneratorForward(cudnn_handle *handle, const transformer *it) {
    return transform(handle, it, "cudnnSpatialTfGridGeneratorForward", 1);
}
PH_EXPORT int cudnnSpatialTfGridGeneratorBackward(cudnn_handle *handle, const transformer *it) {
    return transform(handle, it, "cudnnSpatialTfGridGeneratorBackward", 1);
}
PH_EXPORT int cudnnSpatialTfSamplerForward(cudnn_handle *handle, const transformer *it) {
    return transform(handle, it, "cudnnSpatialTfSamplerForward", 2);
}
PH_EXPORT int cudnnSpatialTfSamplerBackward(cudnn_handle *handle, const transformer *it) {
    return transform(handle, it, "cudnnSpatialTfSamplerBackward", 4);
}
