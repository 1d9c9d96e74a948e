/*
 * cuDNN: signatures of its work, and the workspace that it needs.
 *
 * Workspaces matter because PyTorch allocates them from its caching allocator. How much cuDNN needs depends on the
 * kernel that it chooses. Profiles of an H200 showed that 16-bit channels-last convolutions whose number of channels is
 * not a multiple of 8 copy input and filter into padded buffers in the workspace. Other workspaces are small or unknown
 * and counted as 0 bytes, but for the one below.
 */
#include "core/config.h"
#include "core/hash.h"
#include "costs/cost.h"
#include "cudnn/cudnn.h"
#include "nvtx/nvtx.h"
#include "streams/segment.h"

#include <string.h>

typedef struct described {
    const void *problem;
    const ph_op *op;
} described;

static size_t describe_conv(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const conv_problem *p = it->problem;
    ph_signature_conv signature = {.direction = p->direction,
                                   .x = {p->x, p->ndims},
                                   .w = {p->w, p->ndims},
                                   .y = {p->y, p->ndims},
                                   .padding = {p->pad, p->nspatial},
                                   .stride = {p->stride, p->nspatial},
                                   .dilation = {p->dilation, p->nspatial},
                                   .groups = (uint64_t)p->groups,
                                   .dtype = p->tf32 ? PH_DTYPE_TF32 : ph_dtype_of_cudnn(p->dtype),
                                   .layout = p->nhwc ? PH_NHWC : PH_NCHW,
                                   .op = it->op->name,
                                   .sizes = it->op->sizes};
    return ph_format_conv(&signature, text, capacity);
}

static size_t describe_norm(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const norm_problem *p = it->problem;
    ph_signature_norm signature = {.direction = p->backward ? PH_BACKWARD : PH_FORWARD,
                                   .mode = p->mode,
                                   .x = {p->x, p->ndims},
                                   .dtype = ph_dtype_of_cudnn(p->dtype),
                                   .layout = p->nhwc ? PH_NHWC : PH_NCHW,
                                   .op = it->op->name,
                                   .sizes = it->op->sizes};
    return ph_format_norm(&signature, text, capacity);
}

static size_t describe_sdpa(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const sdpa_problem *p = it->problem;
    ph_signature_sdpa signature = {.direction = p->backward ? PH_BACKWARD : PH_FORWARD,
                                   .q = {p->q, 4},
                                   .k = {p->k, 4},
                                   .v = {p->v, 4},
                                   .dtype = ph_dtype_of_cudnn(p->dtype),
                                   .causal = p->causal,
                                   .dropout = p->dropout,
                                   .op = it->op->name,
                                   .sizes = it->op->sizes};
    return ph_format_sdpa(&signature, text, capacity);
}

static int launch(void *handle, uint64_t seed, ph_describe describe, const void *problem, size_t nbytes) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream) return CUDNN_BAD_PARAM;
    ph_host_call(PH_CALL_LIBRARY);
    described it = {problem, ph_current_op()};
    ph_launch(stream, ph_cost_of(ph_hash(it.op->key ^ seed, problem, nbytes), describe, &it));
    return CUDNN_OK;
}

int conv_launch(void *stream, const conv_problem *problem) {
    return launch(stream, 0x636f6e76, describe_conv, problem, sizeof *problem);
}

int norm_launch(void *stream, const norm_problem *problem) {
    return launch(stream, 0x6e6f726d, describe_norm, problem, sizeof *problem);
}

int sdpa_launch(void *stream, const sdpa_problem *problem) {
    return launch(stream, 0x73647061, describe_sdpa, problem, sizeof *problem);
}

void conv_problem_make(conv_problem *out, ph_field_conv_direction direction, const cudnn_tensor *x,
                       const cudnn_tensor *w, const cudnn_tensor *y, int nspatial, const int64_t *pad,
                       const int64_t *stride, const int64_t *dilation, bool tf32) {
    memset(out, 0, sizeof *out);
    out->direction = direction;
    out->dtype = x->dtype;
    out->nhwc = x->ndims > 2 && x->strides[1] == 1 && x->strides[x->ndims - 1] != 1;
    out->tf32 = tf32 && x->dtype == CUDNN_DTYPE_F32;
    out->ndims = x->ndims < 5 ? x->ndims : 5;
    out->nspatial = nspatial < 3 ? nspatial : 3;
    out->groups = w->dims[1] > 0 ? x->dims[1] / w->dims[1] : 1;
    for (int i = 0; i < out->ndims; i++) {
        out->x[i] = x->dims[i];
        out->w[i] = w->dims[i];
        out->y[i] = y->dims[i];
    }
    for (int i = 0; i < out->nspatial; i++) {
        out->pad[i] = pad[i];
        out->stride[i] = stride[i];
        out->dilation[i] = dilation[i];
    }
}

static size_t padded_nbytes(const int64_t *dims, int64_t ndims, size_t element) {
    size_t nbytes = element;
    for (int64_t i = 0; i < ndims; i++) nbytes *= (size_t)(i == 1 ? (dims[i] + 7) / 8 * 8 : dims[i]);
    return (nbytes + 255) & ~(size_t)255;
}

/* If the weights are small the sum over the batch is split: each SM has an f32 tile of partial sums in the workspace.
 */
static size_t split_nbytes(const conv_problem *p) {
    int64_t kernel = 1;
    for (int64_t i = 2; i < p->ndims; i++) kernel *= p->w[i];
    if (p->direction != PH_CONV_WGRAD || kernel != 1 || ph_cfg.cc_major < 8) return 0;
    int64_t tiles = (p->w[0] + 127) / 128 * ((p->w[1] + 127) / 128), splits = tiles > 0 ? ph_cfg.sm_count / tiles : 0;
    return splits < 2 ? 0 : (size_t)(tiles * splits * 128 * 128 * 4);
}

size_t conv_workspace(const conv_problem *p) {
    bool half = p->dtype == CUDNN_DTYPE_F16 || p->dtype == CUDNN_DTYPE_BF16;
    if (!half || !p->nhwc || p->groups != 1) return 0;
    if (p->x[1] % 8 != 0) return padded_nbytes(p->x, p->ndims, 2) + padded_nbytes(p->w, p->ndims, 2);
    return split_nbytes(p);
}
