/*
 * cudnn/: the legacy API and the graph API.
 *
 *   handle.c       handle, versions, errors
 *   descriptors.c  legacy: tensor and filter descriptors
 *   conv.c         legacy: convolutions
 *   norm.c         legacy: batch norm, activation descriptors, spatial transformer
 *   rnn.c ctc.c    legacy: dropout states and recurrent networks; CTC loss
 *   backend.c      graph API: descriptors, whose attributes are stored by number
 *   graph.c        graph API: what an operation graph computes
 *   work.c         signatures of convolutions, norms and attention
 *   workspace.c    the workspace that convolutions need, by the measured calls of workspaces.csv.gz, which are apart as
 *                  metrics.def says
 *
 * Comes in: calls. Goes out: launches with the signatures of work.c; other calls by name and bytes.
 */
#ifndef PHANTORA_CUDNN_H
#define PHANTORA_CUDNN_H

#include "threads/host.h"
#include "costs/signature.h"

enum {
    CUDNN_OK = 0,
    CUDNN_BAD_PARAM = 2000,
    CUDNN_BAD_POINTER = 2002,
    CUDNN_NOT_FINALIZED = 2004,
    CUDNN_NOT_SUPPORTED = 3000,
    CUDNN_NO_MEMORY = 4003
};
enum { CUDNN_MAX_DIMS = 8 };

typedef struct cudnn_handle {
    void *stream;
} cudnn_handle;

/* A tensor or a filter. Dims are in logical order (n c h w), strides in elements. */
typedef struct cudnn_tensor {
    int dtype, ndims, format;
    int64_t dims[CUDNN_MAX_DIMS], strides[CUDNN_MAX_DIMS];
} cudnn_tensor;

uint64_t cudnn_tensor_nbytes(const cudnn_tensor *tensor);
uint64_t cudnn_dtype_nbytes(int dtype, uint64_t items); /* dtype: cudnnDataType_t, as everywhere here */
/* Sets the strides of a packed tensor by its format: 0 is nchw, 1 is nhwc. */
void cudnn_pack_strides(cudnn_tensor *tensor);

/* Defines cudnnCreate...Descriptor and cudnnDestroy...Descriptor; a new descriptor is filled with zeros. */
#define CUDNN_DESCRIPTOR(Name, type)                                                                                   \
    PH_EXPORT int cudnnCreate##Name##Descriptor(type **out) {                                                          \
        ph_host_call(PH_CALL_LIBRARY_QUERY);                                                                           \
        if (!out) return CUDNN_BAD_POINTER;                                                                            \
        return (*out = calloc(1, sizeof **out)) ? CUDNN_OK : CUDNN_NO_MEMORY;                                          \
    }                                                                                                                  \
    PH_EXPORT int cudnnDestroy##Name##Descriptor(type *it) {                                                           \
        ph_host_call(PH_CALL_LIBRARY_QUERY);                                                                           \
        free(it);                                                                                                      \
        return CUDNN_OK;                                                                                               \
    }

/* ---- work.c: problems are gap-free structs; their bytes are their key -------------------------------------------- */
typedef struct conv_problem {
    int32_t direction; /* PH_CONV_FORWARD ... */
    int32_t dtype, nhwc, tf32;
    int64_t groups, nspatial;
    int64_t ndims;
    int64_t x[5], w[5], y[5], pad[3], stride[3], dilation[3];
} conv_problem;

typedef struct norm_problem {
    int32_t backward;
    int32_t mode; /* PH_NORM_SPATIAL ... */
    int32_t dtype, nhwc;
    int64_t ndims, x[CUDNN_MAX_DIMS];
} norm_problem;

typedef struct sdpa_problem {
    int32_t backward, dtype, causal, dropout, ragged, unused; /* ragged: sequences are one behind the other */
    int64_t q[4], k[4], v[4];
    int64_t left, right; /* bounds of a window, as in its signature; left 0: there is none */
} sdpa_problem;

void conv_problem_make(conv_problem *out, ph_field_conv_direction direction, const cudnn_tensor *x,
                       const cudnn_tensor *w, const cudnn_tensor *y, int nspatial, const int64_t *pad,
                       const int64_t *stride, const int64_t *dilation, bool tf32);
/* ---- workspace.c ------------------------------------------------------------------------------------------------- */
size_t conv_workspace(const conv_problem *problem);
/* Returns the workspace of the kernel that needs most, among all that compute the problem; 0: none is known to need
 * more than the chosen one. */
size_t conv_largest_workspace(const conv_problem *problem);
int conv_launch(void *stream, const conv_problem *problem);
int norm_launch(void *stream, const norm_problem *problem);
int sdpa_launch(void *stream, const sdpa_problem *problem);

#endif
