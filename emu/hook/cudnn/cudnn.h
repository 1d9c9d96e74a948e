/*
 * cuDNN: what its files share.
 *
 *   cudnn.c          handle, versions, errors
 *   cudnn_desc.c     the legacy API's tensor, filter, pooling ... descriptors
 *   cudnn_work.c     signatures of convolutions, norms and attention; how much workspace they need
 *   cudnn_conv.c     legacy convolutions
 *   cudnn_norm.c     legacy batch norm, pooling, spatial transformer
 *   cudnn_rnn.c      dropout states, RNN, CTC loss
 *   cudnn_backend.c  the graph API's descriptors: attributes stored by name
 *   cudnn_graph.c    what an operation graph computes, read from its nodes
 */
#ifndef PHANTORA_CUDNN_H
#define PHANTORA_CUDNN_H

#include "core/host.h"

enum {
    CUDNN_OK = 0,
    CUDNN_BAD_PARAM = 2000,
    CUDNN_BAD_POINTER = 2002,
    CUDNN_NOT_FINALIZED = 2004,
    CUDNN_NOT_SUPPORTED = 3000,
    CUDNN_NO_MEMORY = 4003
};
enum { CUDNN_MAX_DIMS = 8 };
/* cudnnDataType_t */
enum { CUDNN_FLOAT = 0, CUDNN_DOUBLE = 1, CUDNN_HALF = 2, CUDNN_BFLOAT16 = 9 };

typedef struct cudnn_handle {
    void *stream;
} cudnn_handle;

/* A tensor or a filter: dims in logical order (n c h w), strides in elements. */
typedef struct cudnn_tensor {
    int dtype, ndims, format;
    int64_t dims[CUDNN_MAX_DIMS], strides[CUDNN_MAX_DIMS];
} cudnn_tensor;

uint64_t cudnn_tensor_nbytes(const cudnn_tensor *tensor);
size_t cudnn_dtype_nbytes(int dtype);
/* Fills in the strides of a packed tensor: format 0 nchw, 1 nhwc. */
void cudnn_pack_strides(cudnn_tensor *tensor);

/* cudnnCreate...Descriptor and cudnnDestroy...Descriptor of a descriptor that is zeros at first. */
#define CUDNN_DESCRIPTOR(Name, type)                                                                                   \
    PH_EXPORT int cudnnCreate##Name##Descriptor(type **out) {                                                          \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        if (!out) return CUDNN_BAD_POINTER;                                                                            \
        return (*out = calloc(1, sizeof **out)) ? CUDNN_OK : CUDNN_NO_MEMORY;                                          \
    }                                                                                                                  \
    PH_EXPORT int cudnnDestroy##Name##Descriptor(type *it) {                                                           \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        free(it);                                                                                                      \
        return CUDNN_OK;                                                                                               \
    }

/* ---- cudnn_work.c: problems are gap-free structs; their bytes are their key
 * ------------------------------------------ */
typedef enum cudnn_direction { CONV_FORWARD, CONV_DGRAD, CONV_WGRAD } cudnn_direction;

typedef struct conv_problem {
    int32_t direction, dtype, nhwc, tf32;
    int64_t groups, nspatial;
    int64_t ndims;
    int64_t x[5], w[5], y[5], pad[3], stride[3], dilation[3];
} conv_problem;

typedef struct norm_problem {
    int32_t backward, mode, dtype, nhwc;
    int64_t ndims, x[CUDNN_MAX_DIMS];
} norm_problem;

typedef struct sdpa_problem {
    int32_t backward, dtype, causal, dropout;
    int64_t q[4], k[4], v[4];
} sdpa_problem;

void conv_problem_make(conv_problem *out, cudnn_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
                       const cudnn_tensor *y, int nspatial, const int64_t *pad, const int64_t *stride,
                       const int64_t *dilation, bool tf32);
size_t conv_workspace(const conv_problem *problem);
int conv_launch(void *stream, const conv_problem *problem);
int norm_launch(void *stream, const norm_problem *problem);
int sdpa_launch(void *stream, const sdpa_problem *problem);

#endif
