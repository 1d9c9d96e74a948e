/*
 * cuDNN: signatures of its work (docs/architecture.md) and the workspace it asks for.
 *
 * Workspaces matter because PyTorch takes them from its caching allocator. What the real library needs depends on the
 * kernel it chooses. Known from profiles of an H200: 16-bit channels-last convolutions whose channels are no multiple
 * of 8 copy input and filter into padded buffers in the workspace. Other needs are small or unknown and counted as
 * none.
 */
#include "core/config.h"
#include "core/hash.h"
#include "costs/cost.h"
#include "cudnn/cudnn.h"
#include "nvtx/nvtx.h"
#include "streams/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *dtype_name(int dtype) {
    static const char *const names[] = {"f32", "f64", "f16",  "i8",  "i32", "i8",     "u8",
                                        "u8",  "i8",  "bf16", "i64", "b8",  "f8e4m3", "f8e5m2"};
    return dtype >= 0 && (size_t)dtype < sizeof names / sizeof *names ? names[dtype] : "other";
}

typedef struct line {
    char *text;
    size_t used, capacity;
} line;

/* `used` counts on where the text no longer fits: describing again with that capacity will do. */
static void __attribute__((format(printf, 2, 3))) add(line *to, const char *format, ...) {
    va_list arguments;
    bool room = to->used < to->capacity;
    va_start(arguments, format);
    int n = vsnprintf(room ? to->text + to->used : NULL, room ? to->capacity - to->used : 0, format, arguments);
    va_end(arguments);
    to->used += n > 0 ? (size_t)n : 0;
}

/* "64x128x28x28;" */
static void add_dims(line *to, const int64_t *dims, int64_t n) {
    for (int64_t i = 0; i < n; i++) add(to, "%s%lld", i ? "x" : "", (long long)dims[i]);
    add(to, ";");
}

typedef struct described {
    const void *problem;
    const ph_op *op;
} described;

static size_t describe_conv(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const conv_problem *p = it->problem;
    static const char *const directions[] = {"fwd", "dgrad", "wgrad"};
    line out = {text, 0, capacity};
    add(&out, "conv;%s;", directions[p->direction]);
    add_dims(&out, p->x, p->ndims);
    add_dims(&out, p->w, p->ndims);
    add_dims(&out, p->y, p->ndims);
    add_dims(&out, p->pad, p->nspatial);
    add_dims(&out, p->stride, p->nspatial);
    add_dims(&out, p->dilation, p->nspatial);
    add(&out, "%lld;%s;%s;%s;%s", (long long)p->groups, p->tf32 ? "tf32" : dtype_name(p->dtype),
        p->nhwc ? "nhwc" : "nchw", it->op->name, it->op->sizes);
    return out.used;
}

static size_t describe_norm(const void *what, char *text, size_t capacity) {
    static const char *const modes[] = {"per_activation", "spatial", "spatial_persistent", "layer", "instance", "batch",
                                        "group",          "rms",     "ada_layer"};
    const described *it = what;
    const norm_problem *p = it->problem;
    line out = {text, 0, capacity};
    add(&out, "norm;%s;%s;", p->backward ? "bwd" : "fwd", p->mode >= 0 && p->mode < 9 ? modes[p->mode] : "other");
    add_dims(&out, p->x, p->ndims);
    add(&out, "%s;%s;%s;%s", dtype_name(p->dtype), p->nhwc ? "nhwc" : "nchw", it->op->name, it->op->sizes);
    return out.used;
}

static size_t describe_sdpa(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const sdpa_problem *p = it->problem;
    line out = {text, 0, capacity};
    add(&out, "sdpa;%s;", p->backward ? "bwd" : "fwd");
    add_dims(&out, p->q, 4);
    add_dims(&out, p->k, 4);
    add_dims(&out, p->v, 4);
    add(&out, "%s;%d;%d;%s;%s", dtype_name(p->dtype), p->causal, p->dropout, it->op->name, it->op->sizes);
    return out.used;
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

void conv_problem_make(conv_problem *out, cudnn_direction direction, const cudnn_tensor *x, const cudnn_tensor *w,
                       const cudnn_tensor *y, int nspatial, const int64_t *pad, const int64_t *stride,
                       const int64_t *dilation, bool tf32) {
    memset(out, 0, sizeof *out);
    out->direction = direction;
    out->dtype = x->dtype;
    out->nhwc = x->ndims > 2 && x->strides[1] == 1 && x->strides[x->ndims - 1] != 1;
    out->tf32 = tf32 && x->dtype == CUDNN_FLOAT;
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

/* One f32 tile of partial sums for each SM, where the reduction over the batch is split because the weights are small.
 */
static size_t split_nbytes(const conv_problem *p) {
    int64_t kernel = 1;
    for (int64_t i = 2; i < p->ndims; i++) kernel *= p->w[i];
    if (p->direction != CONV_WGRAD || kernel != 1 || ph_cfg.cc_major < 8) return 0;
    int64_t tiles = (p->w[0] + 127) / 128 * ((p->w[1] + 127) / 128), splits = tiles > 0 ? ph_cfg.sm_count / tiles : 0;
    return splits < 2 ? 0 : (size_t)(tiles * splits * 128 * 128 * 4);
}

size_t conv_workspace(const conv_problem *p) {
    bool half = p->dtype == CUDNN_HALF || p->dtype == CUDNN_BFLOAT16;
    if (!half || !p->nhwc || p->groups != 1) return 0;
    if (p->x[1] % 8 != 0) return padded_nbytes(p->x, p->ndims, 2) + padded_nbytes(p->w, p->ndims, 2);
    return split_nbytes(p);
}
