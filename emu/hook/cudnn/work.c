/* cuDNN: signatures of its work. */
#include "core/config.h"
#include "core/hash.h"
#include "costs/cost.h"
#include "cudnn/cudnn.h"
#include "nvtx/nvtx.h"
#include "streams/launch.h"

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

/* What the signatures of all of an attention have, with or without a window. */
#define OF_ATTENTION(it, p)                                                                                            \
    .direction = p->backward ? PH_BACKWARD : PH_FORWARD, .q = {p->q, 4}, .k = {p->k, 4}, .v = {p->v, 4},               \
    .dtype = ph_dtype_of_cudnn(p->dtype), .causal = p->causal, .dropout = p->dropout, .op = it->op->name,              \
    .sizes = it->op->sizes

static size_t describe_sdpa(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const sdpa_problem *p = it->problem;
    ph_signature_sdpa signature = {OF_ATTENTION(it, p)};
    return ph_format_sdpa(&signature, text, capacity);
}

static int launch(void *handle, uint64_t seed, ph_describe describe, const void *problem, size_t nbytes) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream) return CUDNN_BAD_PARAM;
    ph_host_call(PH_CALL_LIBRARY);
    described it = {problem, ph_current_op()};
    ph_launch_work(stream, ph_hash(it.op->key ^ seed, problem, nbytes), describe, &it);
    return CUDNN_OK;
}

typedef struct {
    int64_t inner, outer, channels, taps, least_stride, most_stride, groups;
    bool fits; /* a kernel that takes all groups as they are */
} in_groups;

enum { LONG_FILTER = 64, MOST_OF_GROUP = 128 };

static bool is_power(int64_t value) { return !(value & (value - 1)); }

static bool tf32_one_by_one(const conv_problem *p, const in_groups *it) {
    enum { FEW_GROUPS = 4, FEW_UNFIT = 6, MOST_CHANNELS = 3328, STRIDED = 28, TURNED_GROUPS = 5, TURNED_FROM = 16 };
    enum { TURNED_BELOW = 64, FEWEST_IN_ALL = 64, WIDE_SIDE = 28, MANY_GROUPS = 16, BETWEEN = 44, UP_TO = 64 };
    enum { FEWEST_STRIDED = 80, TURNED_WIDE = 40, TURNED_SIDE = 48, TURNED_SIDE_BELOW = 96, TURNED_PIXELS = 128000 };
    if (p->direction == PH_CONV_WGRAD) {
        int64_t padded = 8;
        while (padded < it->channels) padded *= 2;
        return it->groups <= (it->fits ? FEW_GROUPS : FEW_UNFIT) || (!it->fits && padded * it->groups > MOST_CHANNELS);
    }
    if (it->channels > MOST_OF_GROUP) return true;
    if (p->direction == PH_CONV_DGRAD) {
        bool turned = !p->nhwc && it->groups <= TURNED_GROUPS && it->most_stride == 1 && it->inner >= TURNED_FROM &&
                      it->inner < TURNED_BELOW;
        return turned || (it->least_stride > 1 && it->channels > STRIDED);
    }
    int64_t side = p->x[2] > p->x[3] ? p->x[2] : p->x[3], in_all = it->inner * it->groups;
    bool few = in_all < FEWEST_IN_ALL || (in_all < FEWEST_STRIDED && it->most_stride > 1);
    bool middle = side >= TURNED_SIDE && side < TURNED_SIDE_BELOW && p->x[0] * p->x[2] * p->x[3] <= TURNED_PIXELS;
    if (!p->nhwc && it->inner >= TURNED_FROM &&
        (few || (middle && it->inner >= TURNED_WIDE && it->inner < TURNED_BELOW)))
        return true;
    bool wide = side >= WIDE_SIDE && it->groups <= MANY_GROUPS;
    return wide && !it->fits && it->channels > BETWEEN && it->channels < UP_TO;
}

/* Though a kernel takes all groups as they are. */
static bool half_apart(const conv_problem *p, const in_groups *it, int64_t pixels) {
    enum { WIDE = 64, FEW_IMAGES = 4, GROUPS = 6, IMAGES = 32, SIDE = 14, PIXELS = 10000, ROWS = 100000 };
    bool few = p->x[0] <= FEW_IMAGES;
    if (it->inner < WIDE) return false;
    if (p->direction == PH_CONV_WGRAD)
        return it->inner > WIDE && (few || pixels <= PIXELS || (p->nhwc && pixels > ROWS));
    if (few || (p->direction == PH_CONV_DGRAD && it->least_stride > 1)) return true;
    if (p->direction == PH_CONV_DGRAD) return it->inner == WIDE && it->groups <= GROUPS;
    return it->inner == WIDE && p->x[0] <= IMAGES && p->x[2] <= SIDE && p->x[3] <= SIDE;
}

static bool half_one_by_one(const conv_problem *p, const in_groups *it) {
    enum { WIDE = 64, PADDED = 32, MOST_PADDED = 256, NOT_PADDED_FROM = 48, NOT_PADDED_TO = 64 };
    enum { SUMMED_FROM = 3000, SUMMED_TO = 16000, SUMMED_ROWS_TO = 88000 };
    bool strided = p->direction == PH_CONV_DGRAD && it->least_stride > 1;
    int64_t pixels = p->y[0] * p->y[2] * p->y[3];
    if (it->fits && !half_apart(p, it, pixels)) return false;
    if (p->ndims != 4 || it->channels <= PADDED) return false;
    if (is_power(it->channels) || it->channels > MOST_PADDED) return true;
    if (p->direction != PH_CONV_WGRAD)
        return strided || (it->channels > NOT_PADDED_FROM && it->channels <= NOT_PADDED_TO);
    int64_t most = p->nhwc && it->channels <= WIDE ? SUMMED_ROWS_TO : SUMMED_TO;
    return it->channels > MOST_OF_GROUP || (pixels > SUMMED_FROM && pixels <= most);
}

/* Tells whether a generator's convolution, in which each image has weights of its own, runs one group after the
 * other. */
static bool few_images_one_by_one(const conv_problem *p, const in_groups *it) {
    enum { MOST_FORWARD = 256, WIDE = 64 };
    bool wide_rows = p->nhwc && it->outer != it->inner && it->channels >= MOST_OF_GROUP;
    if (wide_rows && p->direction != PH_CONV_DGRAD) return true;
    if (p->direction == PH_CONV_FORWARD)
        return it->channels > MOST_FORWARD || (it->outer < it->inner && it->inner == MOST_OF_GROUP);
    bool wide = p->direction == PH_CONV_DGRAD ? it->outer >= MOST_OF_GROUP : it->inner >= WIDE;
    return it->channels > MOST_OF_GROUP || (it->outer > it->inner && wide);
}

/* Kernels and fills that the host launches for a group, where they are convolved one after the other: operands are cut
 * out or turned round, a result is put in, a sum begins with a fill. */
static uint64_t launches_of_group(const conv_problem *p, bool half) {
    if (!half && !p->tf32) return p->direction == PH_CONV_FORWARD ? 1 : 2;
    return half && p->nhwc && p->direction != PH_CONV_WGRAD ? 3 : 4;
}

/* Returns how many launches the groups need beyond the first one. Which groups are convolved one after the other is
 * not documented: the rules are those of profiles/models/products/group_ways.py. */
static uint64_t launches_of_groups(const conv_problem *p) {
    enum { TF32_TOGETHER = 48, SHORT_FILTER = 25, FEW_IMAGES = 4, FEWEST = 4, THREE_BY_THREE = 9 };
    if (p->groups <= 1 || p->w[1] <= 1) return 0;
    in_groups it = {.inner = p->w[1], .outer = p->w[0] / p->groups, .taps = 1, .groups = p->groups};
    it.channels = it.inner > it.outer ? it.inner : it.outer;
    it.least_stride = it.most_stride = p->stride[0];
    for (int i = 2; i < p->ndims; i++) it.taps *= p->w[i];
    for (int i = 1; i < p->nspatial; i++) {
        if (p->stride[i] < it.least_stride) it.least_stride = p->stride[i];
        if (p->stride[i] > it.most_stride) it.most_stride = p->stride[i];
    }
    it.fits = it.outer == it.inner && is_power(it.inner) && it.inner >= FEWEST && it.inner <= MOST_OF_GROUP &&
              it.taps == THREE_BY_THREE;
    bool half = p->dtype == CUDNN_DTYPE_F16 || p->dtype == CUDNN_DTYPE_BF16, one_by_one;
    if (it.taps >= LONG_FILTER)
        one_by_one = !half || p->direction != PH_CONV_WGRAD;
    else if (half)
        one_by_one = half_one_by_one(p, &it);
    else if (p->tf32 && p->ndims == 4 && it.taps <= SHORT_FILTER && p->x[0] > FEW_IMAGES)
        one_by_one = tf32_one_by_one(p, &it);
    else if (p->tf32 && p->ndims == 4 && it.taps >= THREE_BY_THREE && it.taps <= SHORT_FILTER)
        one_by_one = few_images_one_by_one(p, &it);
    else
        one_by_one = it.channels > (p->tf32 ? TF32_TOGETHER : 0);
    return one_by_one ? launches_of_group(p, half) * (uint64_t)p->groups : 0;
}

int conv_launch(void *stream, const conv_problem *problem) {
    ph_host_work(PH_WORK_CONVOLUTION, 1);
    int status = launch(stream, 0x636f6e76, describe_conv, problem, sizeof *problem);
    uint64_t launches = status == CUDNN_OK ? launches_of_groups(problem) : 0;
    if (launches) ph_host_work(PH_CALL_LAUNCH, launches); /* the GPU begins with the first one */
    return status;
}

int norm_launch(void *stream, const norm_problem *problem) {
    return launch(stream, 0x6e6f726d, describe_norm, problem, sizeof *problem);
}

static size_t describe_windowed(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const sdpa_problem *p = it->problem;
    ph_signature_windowed signature = {OF_ATTENTION(it, p), .left = (uint64_t)p->left, .right = (uint64_t)p->right};
    return ph_format_windowed(&signature, text, capacity);
}

typedef struct {
    sdpa_problem problem;
    ph_sequences sequences;
} packed_problem;

static size_t describe_packed(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const packed_problem *packed = it->problem;
    const sdpa_problem *p = &packed->problem;
    const ph_sequences *s = &packed->sequences;
    ph_signature_packed signature = {OF_ATTENTION(it, p),   .window = p->left > 0, .sequences = s->sequences,
                                     .queries = s->queries, .keys = s->keys,       .rows = s->rows,
                                     .columns = s->columns, .tiles = s->tiles,     .longest = s->longest,
                                     .pairs = s->pairs};
    return ph_format_packed(&signature, text, capacity);
}

int sdpa_launch(void *stream, const sdpa_problem *problem) {
    const ph_sequences *sequences = &ph_self()->sequences;
    if (sequences->sequences) {
        packed_problem packed = {*problem, *sequences};
        return launch(stream, 0x7061636b, describe_packed, &packed, sizeof packed);
    }
    /* A bound beyond which no key lies is none. */
    bool before = problem->left > 0 && problem->left < problem->q[2],
         after = problem->causal && problem->right > 0 && problem->right < problem->k[2] - 1;
    sdpa_problem it = *problem;
    if (before || after) {
        if (!before) it.left = it.q[2];
        if (!it.causal) it.right = it.k[2];
        return launch(stream, 0x77696e64, describe_windowed, &it, sizeof it);
    }
    it.left = it.right = 0;
    return launch(stream, 0x73647061, describe_sdpa, &it, sizeof it);
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
