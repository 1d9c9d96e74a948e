/*
 * cuDNN: signatures of its work, and the workspace that it needs.
 *
 * Workspaces matter because PyTorch allocates them from its caching allocator. How much cuDNN needs depends on the
 * kernel that it chooses. The rules below are read off 1,383 calls on an H200 (cuDNN of PyTorch 2.11). What they leave
 * out: kernels that need a few hundred bytes, forward kernels that split their sum, and transforms in other directions
 * than Winograd's of weights' gradients and Fourier's of data gradients.
 */
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
    ph_launch_work(stream, ph_hash(it.op->key ^ seed, problem, nbytes), describe, &it);
    return CUDNN_OK;
}

typedef struct {
    int64_t inner, outer, channels, taps, least_stride, most_stride, groups;
    bool fits; /* a kernel that takes all groups as they are */
} in_groups;

enum { LONG_FILTER = 64, MOST_OF_GROUP = 128, ONE_GROUP_OF_HALF = 3 };

static bool is_power(int64_t value) { return !(value & (value - 1)); }

static bool tf32_one_by_one(const conv_problem *p, const in_groups *it) {
    enum { FEW_GROUPS = 4, FEW_UNFIT = 6, MOST_CHANNELS = 3328, STRIDED = 28, TURNED_GROUPS = 5, TURNED_FROM = 16 };
    enum { TURNED_BELOW = 64, FEWEST_IN_ALL = 64, WIDE_SIDE = 28, MANY_GROUPS = 16, BETWEEN = 44, UP_TO = 64 };
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
    if (!p->nhwc && it->inner >= TURNED_FROM && it->inner * it->groups < FEWEST_IN_ALL) return true;
    int64_t side = p->x[2] > p->x[3] ? p->x[2] : p->x[3];
    bool wide = side >= WIDE_SIDE && it->groups <= MANY_GROUPS;
    return wide && !it->fits && it->channels > BETWEEN && it->channels < UP_TO;
}

static bool half_one_by_one(const conv_problem *p, const in_groups *it) {
    enum { WIDE = 64, FEW_IMAGES = 4, PADDED = 32, MOST_PADDED = 256, NOT_PADDED_FROM = 48, NOT_PADDED_TO = 64 };
    enum { SUMMED_FROM = 3000, SUMMED_TO = 16000, SUMMED_ROWS_TO = 88000 };
    bool strided = p->direction == PH_CONV_DGRAD && it->least_stride > 1;
    if (it->fits && !(it->inner >= WIDE && (p->x[0] <= FEW_IMAGES || strided))) return false;
    if (p->ndims != 4 || it->channels <= PADDED) return false;
    if (is_power(it->channels) || it->channels > MOST_PADDED) return true;
    if (p->direction != PH_CONV_WGRAD)
        return strided || (it->channels > NOT_PADDED_FROM && it->channels <= NOT_PADDED_TO);
    int64_t pixels = p->y[0] * p->y[2] * p->y[3];
    int64_t most = p->nhwc && it->channels <= WIDE ? SUMMED_ROWS_TO : SUMMED_TO;
    return it->channels > MOST_OF_GROUP || (pixels > SUMMED_FROM && pixels <= most);
}

/* Kernels that the host launches, beyond the first one, where groups are convolved one after the other: which are is
 * not documented, the rules are those of profiles/models/products/group_ways.py. Operands of 16 bits are cut out and
 * put in. */
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
    else
        one_by_one = it.channels > (p->tf32 ? TF32_TOGETHER : 0);
    return one_by_one ? (uint64_t)((half ? ONE_GROUP_OF_HALF : 1) * p->groups) : 0;
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

/* ---- workspace --------------------------------------------------------------------------------------------------- */
/* A convolution as a product of matrices, in bytes per channel: of a pixel row of x, of y, and of a filter's taps. */
typedef struct shape {
    size_t element, x_channel, y_channel, taps, groups;
    size_t c, k, padded_c, padded_k; /* channels of x and y, also as tensor cores need them */
    bool half, narrow, stride1;
} shape;

static size_t product(const int64_t *dims, int64_t from, int64_t to) {
    size_t n = 1;
    for (int64_t i = from; i < to; i++) n *= (size_t)dims[i];
    return n;
}

static size_t parts(size_t whole, size_t part) { return (whole + part - 1) / part; }

static shape shape_of(const conv_problem *p) {
    shape s = {.half = p->dtype == CUDNN_DTYPE_F16 || p->dtype == CUDNN_DTYPE_BF16, .groups = (size_t)p->groups};
    size_t aligned = s.half ? 8 : 4;
    s.element = s.half ? 2 : 4;
    s.taps = product(p->w, 2, p->ndims);
    s.x_channel = (size_t)p->x[0] * product(p->x, 2, p->ndims) * s.element;
    s.y_channel = (size_t)p->y[0] * product(p->y, 2, p->ndims) * s.element;
    s.c = (size_t)p->x[1];
    s.k = (size_t)p->w[0];
    s.padded_c = parts(s.c, aligned) * aligned;
    s.padded_k = parts(s.k, aligned) * aligned;
    s.narrow = s.c < aligned;
    s.stride1 = true;
    for (int64_t i = 0; i < p->nspatial; i++) s.stride1 = s.stride1 && p->stride[i] == 1;
    return s;
}

static size_t filter_nbytes(const shape *s, size_t c, size_t k) { return k * (c / s->groups) * s->taps * s->element; }
static size_t tensors_nbytes(const shape *s, size_t c, size_t k) { return s->x_channel * c + s->y_channel * k; }

/* Gradients of weights sum over all pixels. If the weights are too few tiles for the GPU's SMs the sum is split, and
 * each part has its own f32 sums. TF32 uses tiles of half the size. */
static size_t partial_sums_nbytes(const conv_problem *p, const shape *s) {
    enum { TILE = 128, TILE_NBYTES = TILE * TILE * 4, MAX_PARTS = 13 };
    size_t sms = (size_t)ph_cfg.sm_count, sums = s->k * s->c * s->taps * 4;
    if (p->direction != PH_CONV_WGRAD || s->groups != 1 || !sms) return 0;
    if (s->narrow) {
        size_t n = sms * 11 / 12 / (parts(s->padded_k, TILE) * parts(s->padded_c * s->taps, 2 * TILE));
        return (n ? n : 1) * s->padded_k * s->padded_c * s->taps * 4;
    }
    if (s->taps == 1) {
        size_t n = sms / (parts(s->k, TILE) * parts(s->c, TILE));
        return n < 2 ? 0 : n * (s->half ? 1 : 2) * sums;
    }
    size_t tiles = parts(s->k, TILE) * parts(s->c * s->taps, s->half ? TILE : TILE / 2), n = 2 * sms / tiles;
    if (tiles <= 2 * sms / (s->half ? 7 : 3)) return (n < MAX_PARTS ? n : MAX_PARTS) * sums;
    if (!s->half) return sms * TILE_NBYTES; /* one part of a tile for each SM */
    return tiles < sms ? (sms - tiles) * TILE_NBYTES : 0;
}

/* Without tensor cores 3x3 weight gradients go through Winograd's transform: 6x6 values for each 4x4 of the output. */
static size_t winograd_nbytes(const conv_problem *p, const shape *s) {
    enum { OUTPUT = 4, TRANSFORMED = 6 * 6, MIN_CHANNELS = 16 };
    if (p->direction != PH_CONV_WGRAD || p->nhwc || p->nspatial != 2 || p->w[2] != 3 || p->w[3] != 3 || !s->stride1 ||
        p->dilation[0] != 1 || s->groups != 1 || s->c < MIN_CHANNELS)
        return 0;
    size_t tiles = (size_t)p->x[0] * parts((size_t)p->y[2], OUTPUT) * parts((size_t)p->y[3], OUTPUT);
    return TRANSFORMED * 4 * (tiles * (s->c + s->k) + s->c * s->k);
}

/* Fourier's transform in tiles of 32 x 32, of which all but the filter's border are kept. */
static size_t spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { TILE = 32, SPECTRUM = TILE * (TILE / 2 + 1) * 8 };
    int64_t side = p->x[2] > p->x[3] ? p->x[2] : p->x[3], taps = p->w[2] > p->w[3] ? p->w[2] : p->w[3];
    size_t places = side > TILE - taps + 1 ? 2 : 1;
    return SPECTRUM * (s->c * s->k + (size_t)p->x[0] * (s->c + s->k) * places);
}

/* Some 3x3 data gradients go through Fourier's transform: 32 x 17 complex values of each filter, and of each channel of
 * a place in all images, twice where there are several places. Which do is not documented: the rule is in_fourier_space
 * of profiles/models/products/transforms.py. */
static size_t fourier_nbytes(const conv_problem *p, const shape *s) {
    enum { FEW_SPECTRA = 23552, LEAST_PIXELS = 12672, FEWER_PIXELS = 7296 };
    enum { MANY_PIXELS = 139264, LEAST_SIDE = 21, MOST_SIDE = 84, DEEP = 80, SEVERAL_IMAGES = 16, MIN_CHANNELS = 16 };
    if (p->direction != PH_CONV_DGRAD || p->nhwc || p->nspatial != 2 || p->w[2] != 3 || p->w[3] != 3 || !s->stride1 ||
        p->dilation[0] != 1 || s->groups != 1 || s->c < MIN_CHANNELS || s->k < MIN_CHANNELS)
        return 0;
    size_t images = (size_t)p->x[0], side = (size_t)(p->x[2] > p->x[3] ? p->x[2] : p->x[3]);
    size_t pixels = images * (size_t)p->x[2] * (size_t)p->x[3];
    bool chosen =
        s->k > s->c ? pixels > MANY_PIXELS && images >= SEVERAL_IMAGES : pixels > LEAST_PIXELS && side <= MOST_SIDE;
    if (s->k * s->c <= FEW_SPECTRA)
        chosen = (pixels > LEAST_PIXELS && side > LEAST_SIDE) || (pixels > FEWER_PIXELS && s->c > DEEP && s->k <= s->c);
    return chosen ? spectra_nbytes(p, s) : 0;
}

/* Tensor cores want channels last, in groups of 16 bytes. What comes otherwise is copied into the workspace. */
static size_t channels_last_nbytes(const conv_problem *p, const shape *s) {
    bool wgrad = p->direction == PH_CONV_WGRAD;
    size_t tensors = tensors_nbytes(s, s->c, s->k), filter = filter_nbytes(s, s->c, s->k);
    if (s->narrow && !s->half) {
        if (p->direction == PH_CONV_FORWARD) return s->x_channel * s->c + filter;
        if (s->taps <= 9 && wgrad) return 0; /* a kernel of its own */
        if (s->taps > 9 && !wgrad) return tensors + filter;
    }
    size_t nbytes = partial_sums_nbytes(p, s);
    bool pads_c = s->padded_c != s->c, pads_k = s->padded_k != s->k, all = !s->half && wgrad;
    if (pads_c || pads_k)
        nbytes += (pads_c || all ? s->x_channel * s->padded_c : 0) + (pads_k || all ? s->y_channel * s->padded_k : 0) +
                  filter_nbytes(s, s->padded_c, s->padded_k);
    return nbytes;
}

static size_t channels_first_nbytes(const conv_problem *p, const shape *s) {
    enum { LARGE_IMAGE = 28 * 28 };
    bool wgrad = p->direction == PH_CONV_WGRAD;
    size_t pixels = product(p->y, 2, p->ndims), tensors = tensors_nbytes(s, s->c, s->k);
    if (s->taps == 1 && s->stride1 && s->groups == 1 && pixels % 4 == 0) { /* one product for each image */
        if (!wgrad) return 0;
        if (pixels >= LARGE_IMAGE) return (size_t)p->x[0] * s->k * s->c * 4;
        return tensors + partial_sums_nbytes(p, s);
    }
    if (s->narrow && p->direction == PH_CONV_DGRAD && !s->half) return 0;
    if (s->narrow && p->direction == PH_CONV_FORWARD && (s->half ? s->taps <= 25 : s->stride1)) return 0;
    if (s->narrow && (s->half || wgrad))
        return tensors_nbytes(s, s->padded_c, s->padded_k) + filter_nbytes(s, s->padded_c, s->padded_k) +
               partial_sums_nbytes(p, s);
    return tensors + (s->taps > 1 ? filter_nbytes(s, s->c, s->k) : 0) + partial_sums_nbytes(p, s);
}

size_t conv_workspace(const conv_problem *p) {
    shape s = shape_of(p);
    bool depthwise = s.groups > 1 && s.groups == s.c;
    if (ph_cfg.cc_major < 8 || depthwise || (!s.half && p->dtype != CUDNN_DTYPE_F32)) return 0;
    if (!s.half && !p->tf32) return winograd_nbytes(p, &s) + fourier_nbytes(p, &s); /* of one direction each */
    return p->nhwc ? channels_last_nbytes(p, &s) : channels_first_nbytes(p, &s);
}

/* Fourier's transform of whole images for gradients of weights: two buffers of spectra, of all images or all filters.
 */
static size_t whole_spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { LEAST_SIDE = 16, MOST_SIDE = 256, COMPLEX_NBYTES = 8 };
    int64_t high = p->x[2] + p->w[2] - 1, wide = p->x[3] + p->w[3] - 1, needs = high > wide ? high : wide;
    size_t side = LEAST_SIDE, images = (size_t)p->x[0] * (s->c + s->k), filters = s->c * s->k;
    while (side < (size_t)needs) side *= 2;
    if (side > MOST_SIDE) return 0;
    return 2 * side * (side / 2 + 1) * COMPLEX_NBYTES * (images > filters ? images : filters) + s->y_channel * s->k;
}

/* What torch.backends.cudnn.benchmark asks for when it tries a gradient's kernels
 * (docs/data/convolutions-h100.jsonl.gz: the second sizes in `trials`). Channels last, those that want channels first
 * come with copies of all tensors. Not known: forward passes, and what data gradients with a stride and the splits of
 * 16 bits need beyond that. */
size_t conv_largest_workspace(const conv_problem *p) {
    shape s = shape_of(p);
    bool wgrad = p->direction == PH_CONV_WGRAD;
    bool transforms = p->dtype == CUDNN_DTYPE_F32 && s.stride1 && p->dilation[0] == 1;
    if (ph_cfg.cc_major < 8 || s.groups != 1 || p->nspatial != 2 || p->direction == PH_CONV_FORWARD) return 0;
    if (!s.half && p->dtype != CUDNN_DTYPE_F32) return 0;
    size_t copies = tensors_nbytes(&s, s.c, s.k) + (s.taps > 1 ? filter_nbytes(&s, s.c, s.k) : 0);
    size_t nbytes = 0;
    if (transforms && wgrad) nbytes = whole_spectra_nbytes(p, &s);
    if (transforms && !wgrad && s.taps > 1) nbytes = spectra_nbytes(p, &s);
    if (wgrad ? p->nhwc && nbytes : p->nhwc || s.half) nbytes += copies;
    return nbytes;
}
