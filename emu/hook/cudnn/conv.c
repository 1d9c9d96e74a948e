/*
 * cuDNN: convolutions of the legacy API. Heuristics offer one algorithm per direction, the one that cuDNN offers most
 * often. A program may use any other; its cost is the same.
 */
#include "core/config.h"
#include "cudnn/cudnn.h"

#include <stdlib.h>

typedef struct convolution {
    int nspatial, mode, dtype, groups, math;
    int64_t pad[3], stride[3], dilation[3];
} convolution;

/* cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t are alike. */
typedef struct algorithm_performance {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math;
    int reserved[3];
} algorithm_performance;

enum { ALGO_FORWARD = 1, ALGO_BACKWARD = 1, MATH_FMA = 3 };

PH_EXPORT int cudnnCreateConvolutionDescriptor(convolution **out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!out) return CUDNN_BAD_POINTER;
    if (!(*out = calloc(1, sizeof **out))) return CUDNN_NO_MEMORY;
    (*out)->groups = 1;
    return CUDNN_OK;
}

PH_EXPORT int cudnnDestroyConvolutionDescriptor(convolution *it) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(it);
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetConvolutionNdDescriptor(convolution *it, int nspatial, const int pad[], const int stride[],
                                              const int dilation[], int mode, int dtype) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it || nspatial < 1 || nspatial > 3 || !pad || !stride || !dilation) return CUDNN_BAD_PARAM;
    it->nspatial = nspatial;
    it->mode = mode;
    it->dtype = dtype;
    for (int i = 0; i < nspatial; i++) {
        it->pad[i] = pad[i];
        it->stride[i] = stride[i];
        it->dilation[i] = dilation[i];
    }
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetConvolutionGroupCount(convolution *it, int groups) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it || groups < 1) return CUDNN_BAD_PARAM;
    it->groups = groups;
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetConvolutionMathType(convolution *it, int math) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it) return CUDNN_BAD_PARAM;
    it->math = math;
    return CUDNN_OK;
}

static int make(conv_problem *out, ph_field_conv_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
                const cudnn_tensor *y, const convolution *how) {
    if (!x || !w || !y || !how || x->ndims != w->ndims || x->ndims != how->nspatial + 2) return CUDNN_BAD_PARAM;
    conv_problem_make(out, direction, x, w, y, how->nspatial, how->pad, how->stride, how->dilation,
                      how->math != MATH_FMA && ph_cfg.cc_major >= 8);
    out->groups = how->groups;
    return CUDNN_OK;
}

static int workspace(ph_field_conv_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
                     const cudnn_tensor *y, const convolution *how, size_t *nbytes) {
    conv_problem problem;
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    int status = nbytes ? make(&problem, direction, x, w, y, how) : CUDNN_BAD_POINTER;
    if (status == CUDNN_OK) *nbytes = conv_workspace(&problem);
    return status;
}

static int algorithms(ph_field_conv_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
                      const cudnn_tensor *y, const convolution *how, int requested, int *returned,
                      algorithm_performance *results) {
    size_t nbytes = 0;
    int status = workspace(direction, x, w, y, how, &nbytes);
    if (status != CUDNN_OK || requested < 1 || !returned || !results)
        return status != CUDNN_OK ? status : CUDNN_BAD_PARAM;
    results[0] = (algorithm_performance){.algo = direction == PH_CONV_FORWARD ? ALGO_FORWARD : ALGO_BACKWARD,
                                         .time = -1,
                                         .memory = nbytes,
                                         .determinism = 1,
                                         .math = how->math};
    *returned = 1;
    return CUDNN_OK;
}

static int run(cudnn_handle *handle, ph_field_conv_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
               const cudnn_tensor *y, const convolution *how) {
    conv_problem problem;
    int status = handle ? make(&problem, direction, x, w, y, how) : CUDNN_BAD_POINTER;
    return status == CUDNN_OK ? conv_launch(handle->stream, &problem) : status;
}

PH_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(cudnn_handle *handle, const cudnn_tensor *x, const cudnn_tensor *w,
                                                     const convolution *how, const cudnn_tensor *y, int requested,
                                                     int *returned, algorithm_performance *results) {
    (void)handle;
    return algorithms(PH_CONV_FORWARD, x, w, y, how, requested, returned, results);
}

PH_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnn_handle *handle, const cudnn_tensor *w,
                                                          const cudnn_tensor *dy, const convolution *how,
                                                          const cudnn_tensor *dx, int requested, int *returned,
                                                          algorithm_performance *results) {
    (void)handle;
    return algorithms(PH_CONV_DGRAD, dx, w, dy, how, requested, returned, results);
}

PH_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn_handle *handle, const cudnn_tensor *x,
                                                            const cudnn_tensor *dy, const convolution *how,
                                                            const cudnn_tensor *dw, int requested, int *returned,
                                                            algorithm_performance *results) {
    (void)handle;
    return algorithms(PH_CONV_WGRAD, x, dw, dy, how, requested, returned, results);
}

/* There is only one algorithm, so a search runs nothing. */
PH_EXPORT int cudnnFindConvolutionForwardAlgorithmEx(cudnn_handle *handle, const cudnn_tensor *x, const void *x_data,
                                                     const cudnn_tensor *w, const void *w_data, const convolution *how,
                                                     const cudnn_tensor *y, void *y_data, int requested, int *returned,
                                                     algorithm_performance *results, void *space, size_t space_nbytes) {
    (void)x_data, (void)w_data, (void)y_data, (void)space, (void)space_nbytes;
    int status = run(handle, PH_CONV_FORWARD, x, w, y, how);
    return status == CUDNN_OK ? algorithms(PH_CONV_FORWARD, x, w, y, how, requested, returned, results) : status;
}

PH_EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(cudnn_handle *handle, const cudnn_tensor *w,
                                                          const void *w_data, const cudnn_tensor *dy,
                                                          const void *dy_data, const convolution *how,
                                                          const cudnn_tensor *dx, void *dx_data, int requested,
                                                          int *returned, algorithm_performance *results, void *space,
                                                          size_t space_nbytes) {
    (void)w_data, (void)dy_data, (void)dx_data, (void)space, (void)space_nbytes;
    int status = run(handle, PH_CONV_DGRAD, dx, w, dy, how);
    return status == CUDNN_OK ? algorithms(PH_CONV_DGRAD, dx, w, dy, how, requested, returned, results) : status;
}

PH_EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnn_handle *handle, const cudnn_tensor *x,
                                                            const void *x_data, const cudnn_tensor *dy,
                                                            const void *dy_data, const convolution *how,
                                                            const cudnn_tensor *dw, void *dw_data, int requested,
                                                            int *returned, algorithm_performance *results, void *space,
                                                            size_t space_nbytes) {
    (void)x_data, (void)dy_data, (void)dw_data, (void)space, (void)space_nbytes;
    int status = run(handle, PH_CONV_WGRAD, x, dw, dy, how);
    return status == CUDNN_OK ? algorithms(PH_CONV_WGRAD, x, dw, dy, how, requested, returned, results) : status;
}

PH_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(cudnn_handle *handle, const cudnn_tensor *x,
                                                      const cudnn_tensor *w, const convolution *how,
                                                      const cudnn_tensor *y, int algo, size_t *nbytes) {
    (void)handle, (void)algo;
    return workspace(PH_CONV_FORWARD, x, w, y, how, nbytes);
}

PH_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn_handle *handle, const cudnn_tensor *w,
                                                           const cudnn_tensor *dy, const convolution *how,
                                                           const cudnn_tensor *dx, int algo, size_t *nbytes) {
    (void)handle, (void)algo;
    return workspace(PH_CONV_DGRAD, dx, w, dy, how, nbytes);
}

PH_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn_handle *handle, const cudnn_tensor *x,
                                                             const cudnn_tensor *dy, const convolution *how,
                                                             const cudnn_tensor *dw, int algo, size_t *nbytes) {
    (void)handle, (void)algo;
    return workspace(PH_CONV_WGRAD, x, dw, dy, how, nbytes);
}

PH_EXPORT int cudnnConvolutionForward(cudnn_handle *handle, const void *alpha, const cudnn_tensor *x,
                                      const void *x_data, const cudnn_tensor *w, const void *w_data,
                                      const convolution *how, int algo, void *space, size_t space_nbytes,
                                      const void *beta, const cudnn_tensor *y, void *y_data) {
    (void)alpha, (void)x_data, (void)w_data, (void)algo, (void)space, (void)space_nbytes, (void)beta, (void)y_data;
    return run(handle, PH_CONV_FORWARD, x, w, y, how);
}

PH_EXPORT int cudnnConvolutionBiasActivationForward(cudnn_handle *handle, const void *alpha, const cudnn_tensor *x,
                                                    const void *x_data, const cudnn_tensor *w, const void *w_data,
                                                    const convolution *how, int algo, void *space, size_t space_nbytes,
                                                    const void *alpha2, const cudnn_tensor *z, const void *z_data,
                                                    const cudnn_tensor *bias, const void *bias_data,
                                                    const void *activation, const cudnn_tensor *y, void *y_data) {
    (void)alpha, (void)x_data, (void)w_data, (void)algo, (void)space, (void)space_nbytes, (void)alpha2, (void)z,
        (void)z_data, (void)bias;
    (void)bias_data, (void)activation, (void)y_data;
    return run(handle, PH_CONV_FORWARD, x, w, y, how);
}

PH_EXPORT int cudnnConvolutionBackwardData(cudnn_handle *handle, const void *alpha, const cudnn_tensor *w,
                                           const void *w_data, const cudnn_tensor *dy, const void *dy_data,
                                           const convolution *how, int algo, void *space, size_t space_nbytes,
                                           const void *beta, const cudnn_tensor *dx, void *dx_data) {
    (void)alpha, (void)w_data, (void)dy_data, (void)algo, (void)space, (void)space_nbytes, (void)beta, (void)dx_data;
    return run(handle, PH_CONV_DGRAD, dx, w, dy, how);
}

PH_EXPORT int cudnnConvolutionBackwardFilter(cudnn_handle *handle, const void *alpha, const cudnn_tensor *x,
                                             const void *x_data, const cudnn_tensor *dy, const void *dy_data,
                                             const convolution *how, int algo, void *space, size_t space_nbytes,
                                             const void *beta, const cudnn_tensor *dw, void *dw_data) {
    (void)alpha, (void)x_data, (void)dy_data, (void)algo, (void)space, (void)space_nbytes, (void)beta, (void)dw_data;
    return run(handle, PH_CONV_WGRAD, x, dw, dy, how);
}
