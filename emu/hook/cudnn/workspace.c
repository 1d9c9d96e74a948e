/*
 * cuDNN: the workspace that a convolution needs.
 *
 * Workspaces matter because PyTorch allocates them from its caching allocator. How much cuDNN needs follows from the
 * kernel that it chooses, and how it chooses is not documented. So the calls of workspaces.csv.gz were measured, and
 * what each needed is written as a form: copies of operands, partial sums, transforms. A call takes the form of the
 * measured ones that it is nearest to, in logarithms of its sizes: the weighted median of what the forms of NEAREST
 * calls come to. A measured call takes its own. `python -m laboratory.fits.workspaces` writes the list and tells how
 * far off calls are whose shapes are left out.
 */
#include "core/alloc.h"
#include "core/config.h"
#include "cudnn/cudnn.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A convolution as a product of matrices. */
typedef struct shape {
    double element, x_channel, y_channel, taps, groups, images; /* bytes per channel */
    double c, k, padded_c, padded_k; /* channels of x and y, also as tensor cores need them */
    bool half;
} shape;

static double product(const int64_t *dims, int64_t from, int64_t to) {
    double n = 1;
    for (int64_t i = from; i < to; i++) n *= (double)dims[i];
    return n;
}

static int64_t most(const int64_t *values, int64_t from, int64_t to) {
    int64_t found = values[from];
    for (int64_t i = from + 1; i < to; i++)
        if (values[i] > found) found = values[i];
    return found;
}

static double parts(double whole, double part) { return ceil(whole / part); }

static shape shape_of(const conv_problem *p) {
    shape s = {.half = p->dtype == CUDNN_DTYPE_F16 || p->dtype == CUDNN_DTYPE_BF16, .groups = (double)p->groups};
    double aligned = s.half ? 8 : 4;
    s.element = s.half ? 2 : 4;
    s.taps = product(p->w, 2, p->ndims);
    s.images = (double)p->x[0];
    s.x_channel = s.images * product(p->x, 2, p->ndims) * s.element;
    s.y_channel = s.images * product(p->y, 2, p->ndims) * s.element;
    s.c = (double)p->x[1];
    s.k = (double)p->w[0];
    s.padded_c = parts(s.c, aligned) * aligned;
    s.padded_k = parts(s.k, aligned) * aligned;
    return s;
}

static double filter_nbytes(const shape *s) { return s->k * (s->c / s->groups) * s->taps * s->element; }
static double padded_filter_nbytes(const shape *s) {
    double aligned = s->half ? 8 : 4;
    return s->padded_k * parts(s->c / s->groups, aligned) * aligned * s->taps * s->element;
}
static double sums_nbytes(const shape *s) { return s->k * (s->c / s->groups) * s->taps * 4; }

/* ---- transforms ----------------------------------------------------------------------------------------------------
 */
/* Winograd's: 6x6 values for each 4x4 of the output. */
static double winograd_nbytes(const conv_problem *p, const shape *s) {
    enum { OUTPUT = 4, TRANSFORMED = 6 * 6 };
    if (p->ndims != 4) return 0;
    double tiles = s->images * parts((double)p->y[2], OUTPUT) * parts((double)p->y[3], OUTPUT);
    return TRANSFORMED * 4 * (tiles * (s->c + s->k) + s->c * s->k);
}

static double spectrum_nbytes(double side) { return side * (floor(side / 2) + 1) * 8; }

/* Fourier's in tiles of 32 x 32, of which all but the filter's border are kept: spectra of each filter, and of each
 * channel of a place in all images, twice where there are several places. */
static double spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { TILE = 32 };
    if (p->ndims != 4) return 0;
    int64_t places = most(p->x, 2, 4) > TILE - most(p->w, 2, 4) + 1 ? 2 : 1;
    return spectrum_nbytes(TILE) * (s->c * s->k + s->images * (s->c + s->k) * (double)places);
}

/* A power of two that holds an image and the filter's border. */
static double padded_side(const conv_problem *p, double largest) {
    double side = 16, needs = 0;
    for (int64_t i = 2; i < p->ndims; i++) needs = fmax(needs, (double)(p->x[i] + p->w[i] - 1));
    while (side < needs && side < largest) side *= 2;
    return side;
}

/* Operands come twice, and the one that is turned round once more. */
static double turned_spectra_nbytes(const conv_problem *p, const shape *s, double side, bool output_too) {
    double x = s->images * s->c, y = s->images * s->k, w = s->c * s->k, in = x + w, out = y;
    if (p->direction == PH_CONV_DGRAD) in = y + w, out = x;
    if (p->direction == PH_CONV_WGRAD) in = x + y, out = w;
    double turned = p->direction == PH_CONV_WGRAD ? s->y_channel * s->k : filter_nbytes(s);
    return 2 * spectrum_nbytes(side) * (output_too ? fmax(in, out) : in) + turned;
}

static double whole_spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { MOST_SIDE = 256 };
    double side = padded_side(p, 2 * MOST_SIDE);
    return p->ndims != 4 || side > MOST_SIDE ? 0 : turned_spectra_nbytes(p, s, side, true);
}

static double tiled_spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { MOST_TILE = 64 };
    return p->ndims != 4 ? 0 : turned_spectra_nbytes(p, s, padded_side(p, MOST_TILE), false);
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */
/* Besides copies, `amount` times: */
typedef enum {
    NOTHING,
    SUMS,     /* sums in f32 of the gradient of the weights */
    OUTPUTS,  /* the output in f32 */
    TILES,    /* 64 KiB: a tile of such sums that an SM did not finish */
    IMAGES,   /* the gradient of the weights, for each image */
    GROUPS,   /* x and y of the groups that are convolved at once */
    WINOGRAD, /* once, as the following */
    SPECTRA,
    WHOLE_SPECTRA,
    TILED_SPECTRA,
    ALONE /* as TILES, of a form that is not known: for these sizes only */
} form_kind;

/* x, y and w: channels first where the kernel wants them last, or padded, in all or each group to a power of two. */
enum { NOT_COPIED, COPIED, PADDED, PADDED_IN_GROUPS };

enum { HALF, TF32, F32, TYPES, LAYOUTS = 2, DIRECTIONS = 3, CLASSES = TYPES * LAYOUTS * DIRECTIONS };

enum { H100 = 1, H200 = 2, ANY = H100 | H200 };

/* A row of workspaces.csv.gz, as build.py packs it. */
typedef struct measured {
    int32_t images, c, k, taps, image, groups;
    int32_t amount, rest; /* rest: bytes that the form leaves open */
    int16_t stride, dilation;
    uint8_t class, flat, extents, bf16, x, y, w, kind, gpus;
} measured;
_Static_assert(sizeof(measured) == 48, "ROW of build.py has the layout");

/* The rows are data that the assembler copies into the library, sorted by class: a compiler took a second to parse them
 * as an initialiser. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "ph_measured_calls:\n"
        ".incbin \"workspaces.bin\"\n"
        "ph_measured_calls_end:\n"
        ".popsection\n");
extern const measured ph_measured_calls[], ph_measured_calls_end[];

enum { MEASURED_SMS = 132 };

static double power_of_two(double value) {
    double power = 8;
    while (power < value) power *= 2;
    return power;
}

static double nbytes_by(const measured *it, const conv_problem *p, const shape *s) {
    double c = s->groups > 1 ? power_of_two(s->c / s->groups) * s->groups : s->padded_c;
    double k = s->groups > 1 ? power_of_two(s->k / s->groups) * s->groups : s->padded_k;
    double filter = s->groups > 1 ? k * c / s->groups * s->taps * s->element : padded_filter_nbytes(s);
    const double x[] = {0, s->x_channel * s->c, s->x_channel * s->padded_c, s->x_channel * c};
    const double y[] = {0, s->y_channel * s->k, s->y_channel * s->padded_k, s->y_channel * k};
    const double w[] = {0, filter_nbytes(s), padded_filter_nbytes(s), filter};
    enum { TILE_NBYTES = 128 * 128 * 4, GROUPS_AT_ONCE = 8 };
    double nbytes = x[it->x] + y[it->y] + w[it->w] + it->rest, sums = sums_nbytes(s), amount = it->amount;
    if (ph_cfg.sm_count != MEASURED_SMS && amount > 1)
        amount = fmax(1, floor(amount * ph_cfg.sm_count / MEASURED_SMS)); /* each SM has its own */
    switch ((form_kind)it->kind) {
    case NOTHING:
        break;
    case SUMS:
        nbytes += amount * sums;
        break;
    case OUTPUTS:
        nbytes += amount * (p->direction == PH_CONV_DGRAD ? s->x_channel * s->c : s->y_channel * s->k) / s->element * 4;
        break;
    case ALONE:
        nbytes += it->amount * (double)TILE_NBYTES;
        break;
    case GROUPS:
        nbytes += (x[COPIED] + y[COPIED]) / s->groups * fmin(s->groups, GROUPS_AT_ONCE);
        break;
    case TILES:
        nbytes += amount * TILE_NBYTES;
        break;
    case IMAGES:
        nbytes += s->images * sums;
        break;
    case WINOGRAD:
        nbytes += winograd_nbytes(p, s);
        break;
    case SPECTRA:
        nbytes += spectra_nbytes(p, s);
        break;
    case WHOLE_SPECTRA:
        nbytes += whole_spectra_nbytes(p, s);
        break;
    case TILED_SPECTRA:
        nbytes += tiled_spectra_nbytes(p, s);
        break;
    }
    return fmax(nbytes, 0);
}

/* ---- nearest calls ----------------------------------------------------------------------------------------------- */
enum { FEATURES = 17, MOST_NEAREST = 8 };

/* Measured weights by direction, in the order of PH_CONV_FORWARD, PH_CONV_DGRAD, PH_CONV_WGRAD. */
static const struct {
    float weights[FEATURES];
    int nearest;
    float half_at; /* the squared distance at which a call counts half */
} METRICS[DIRECTIONS] = {
#define METRIC(direction, nearest, half_at, ...) {{__VA_ARGS__}, nearest, half_at},
#include "cudnn/metrics.def"
};

static float aligned(int64_t n) { return n % 8 == 0 ? 3 : n % 4 == 0 ? 2 : n % 2 == 0 ? 1 : 0; }

static void features_of(const measured *it, float out[FEATURES]) {
    float images = log2f((float)it->images), c = log2f((float)it->c), k = log2f((float)it->k);
    float image = log2f((float)it->image), taps = log2f((float)it->taps);
    const float features[FEATURES] = {images,
                                      c,
                                      k,
                                      taps,
                                      image,
                                      images + image,
                                      log2f((float)it->stride),
                                      log2f((float)it->dilation),
                                      log2f((float)it->groups),
                                      aligned(it->c),
                                      aligned(it->k),
                                      it->extents,
                                      aligned(it->image),
                                      fminf(c, k),
                                      it->flat,
                                      it->taps == 1,
                                      it->bf16};
    memcpy(out, features, sizeof features);
}

static struct {
    pthread_once_t once;
    uint8_t gpu; /* whose calls count where they differ */
    size_t first[CLASSES + 1];
    float (*features)[FEATURES];
} known = {.once = PTHREAD_ONCE_INIT};

/* Returns the GPU whose measurements hold for this one. For what cuDNN chooses, an H100 and an H200 differ by their
 * memory only. Other GPUs are taken to be as the one whose memory's bandwidth is nearer. */
static uint8_t measured_gpu(void) {
    enum { MEMORY_CLOCK = 36, BUS_WIDTH = 37 }; /* of cudaDeviceAttr */
    const double h100 = 2619000.0 * 5120, h200 = 3201000.0 * 6016;
    int khz, bits;
    if (!ph_device_attribute(MEMORY_CLOCK, &khz) || !ph_device_attribute(BUS_WIDTH, &bits)) return H100;
    return (double)khz * bits < sqrt(h100 * h200) ? H100 : H200;
}

static void learn(void) {
    known.gpu = measured_gpu();
    size_t n = (size_t)(ph_measured_calls_end - ph_measured_calls), at = 0;
    known.features = ph_allocate(n * sizeof *known.features);
    for (size_t class = 0; class <= CLASSES; class++) {
        while (at < n && ph_measured_calls[at].class < class) at++;
        known.first[class] = at;
    }
    for (size_t i = 0; i < n; i++) {
        features_of(&ph_measured_calls[i], known.features[i]);
        for (int f = 0; f < FEATURES; f++)
            known.features[i][f] *= METRICS[ph_measured_calls[i].class % DIRECTIONS].weights[f];
    }
}

static measured call_of(const conv_problem *p, const shape *s) {
    int32_t type = s->half ? HALF : p->tf32 ? TF32 : F32;
    measured it = {.images = (int32_t)p->x[0],
                   .c = (int32_t)p->x[1],
                   .k = (int32_t)p->w[0],
                   .taps = (int32_t)s->taps,
                   .image = (int32_t)product(p->y, 2, p->ndims),
                   .groups = (int32_t)p->groups,
                   .stride = (int16_t)most(p->stride, 0, p->nspatial),
                   .dilation = (int16_t)most(p->dilation, 0, p->nspatial),
                   .class = (uint8_t)((type * LAYOUTS + (p->nhwc ? PH_NHWC : PH_NCHW)) * DIRECTIONS + p->direction),
                   .bf16 = p->dtype == CUDNN_DTYPE_BF16};
    for (int64_t i = 2; i < p->ndims; i++) {
        it.extents += p->x[i] > 1;
        it.flat |= p->w[i] == 1 && s->taps > 1;
    }
    return it;
}

typedef struct neighbour {
    const measured *call;
    float distance;
    double nbytes;
} neighbour;

/* The nearest first; returns how many. */
static int nearest(const measured *call, neighbour found[MOST_NEAREST]) {
    int direction = call->class % DIRECTIONS, n = 0;
    float own[FEATURES];
    features_of(call, own);
    for (int f = 0; f < FEATURES; f++) own[f] *= METRICS[direction].weights[f];
    for (size_t i = known.first[call->class]; i < known.first[call->class + 1]; i++) {
        if (!(ph_measured_calls[i].gpus & known.gpu)) continue;
        float distance = 0;
        for (int f = 0; f < FEATURES; f++) {
            float apart = known.features[i][f] - own[f];
            distance += apart * apart;
        }
        if (ph_measured_calls[i].kind == ALONE && distance > 0) continue;
        if (n == METRICS[direction].nearest && distance >= found[n - 1].distance) continue;
        int place = n < METRICS[direction].nearest ? n++ : n - 1;
        for (; place > 0 && found[place - 1].distance > distance; place--) found[place] = found[place - 1];
        found[place] = (neighbour){.call = &ph_measured_calls[i], .distance = distance};
    }
    return n;
}

/* Returns how much a neighbour counts. Neighbours at no distance were measured with these very sizes: the others do
 * not count then. */
static float weight_of(const neighbour found[], int i, float half_at) {
    if (found[0].distance == 0) return found[i].distance == 0;
    return 1 / (found[i].distance + half_at);
}

static int by_nbytes(const void *a, const void *b) {
    double one = ((const neighbour *)a)->nbytes, other = ((const neighbour *)b)->nbytes;
    return (one > other) - (one < other);
}

size_t conv_workspace(const conv_problem *p) {
    shape s = shape_of(p);
    if (ph_cfg.cc_major < 8 || (!s.half && p->dtype != CUDNN_DTYPE_F32)) return 0;
    pthread_once(&known.once, learn);
    measured call = call_of(p, &s);
    neighbour found[MOST_NEAREST];
    int n = nearest(&call, found);
    float all = 0, passed = 0;
    for (int i = n - 1; i >= 0; i--) {
        found[i].nbytes = nbytes_by(found[i].call, p, &s);
        found[i].distance = weight_of(found, i, METRICS[p->direction].half_at); /* in the place of its distance */
        all += found[i].distance;
    }
    qsort(found, (size_t)n, sizeof *found, by_nbytes);
    for (int i = 0; i < n; i++)
        if ((passed += found[i].distance) >= all / 2) return (size_t)found[i].nbytes;
    return 0;
}

/* ---- the kernel that needs most ---------------------------------------------------------------------------------- */
/* Fourier's transform of whole images for gradients of weights: two buffers of spectra, of all images or all filters.
 */
static double most_spectra_nbytes(const conv_problem *p, const shape *s) {
    enum { LEAST_SIDE = 16, MOST_SIDE = 256 };
    double side = padded_side(p, 2 * MOST_SIDE), images = s->images * (s->c + s->k), filters = s->c * s->k;
    if (side > MOST_SIDE) return 0;
    return 2 * spectrum_nbytes(side) * fmax(images, filters) + s->y_channel * s->k;
}

/* Returns the workspace that torch.backends.cudnn.benchmark asks for when it tries a convolution's kernels
 * (laboratory/rows/convolutions-h100.jsonl.gz: the second sizes in `trials`). With channels last, kernels that want
 * channels first come with copies of all tensors. Not known: what kernels with a stride, and the splits of 16 bits,
 * need beyond that. */
size_t conv_largest_workspace(const conv_problem *p) {
    enum { MORE = 16 };
    shape s = shape_of(p);
    bool wgrad = p->direction == PH_CONV_WGRAD, forward = p->direction == PH_CONV_FORWARD;
    bool transforms = p->dtype == CUDNN_DTYPE_F32 && most(p->stride, 0, p->nspatial) == 1 && p->dilation[0] == 1;
    if (ph_cfg.cc_major < 8 || p->groups != 1 || p->nspatial != 2) return 0;
    if (!s.half && p->dtype != CUDNN_DTYPE_F32) return 0;
    double copies = s.x_channel * s.c + s.y_channel * s.k + (s.taps > 1 ? filter_nbytes(&s) : 0) + MORE;
    double nbytes = 0;
    if (transforms && forward) nbytes = whole_spectra_nbytes(p, &s);
    if (transforms && wgrad) nbytes = most_spectra_nbytes(p, &s);
    if (transforms && p->direction == PH_CONV_DGRAD && s.taps > 1) nbytes = spectra_nbytes(p, &s);
    if (wgrad ? p->nhwc && nbytes > 0 : p->nhwc || (s.half && !forward)) nbytes += copies;
    return (size_t)nbytes;
}
