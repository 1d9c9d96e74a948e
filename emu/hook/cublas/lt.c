/*
 * cuBLASLt: descriptors and the matrix product.
 *
 * Attributes are stored by number, as bytes, and are returned as they were set. Only those that are part of the
 * signature are interpreted.
 */
#include "device/versions.h"
#include "core/config.h"
#include "threads/host.h"
#include "cublas/cublas.h"
#include "graphs/capture.h"

#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES = 64, ATTRIBUTE_NBYTES = 16 };
enum {
    DESC_COMPUTE_TYPE = 0,
    DESC_SCALE_TYPE = 1,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    DESC_EPILOGUE = 7,
    DESC_A_SCALE_MODE = 31, /* then that of B */
};
enum { LAYOUT_TYPE = 0, LAYOUT_ROWS = 2, LAYOUT_COLS = 3, LAYOUT_LD = 4, LAYOUT_BATCH_COUNT = 5, LAYOUT_STRIDE = 6 };
enum { PREFERENCE_MAX_WORKSPACE = 1 };

typedef struct descriptor {
    struct {
        unsigned char bytes[ATTRIBUTE_NBYTES];
        unsigned char nbytes;
    } of[ATTRIBUTES];
} descriptor;

typedef struct algorithm {
    uint64_t data[8];
} algorithm;

typedef struct heuristic_result {
    algorithm algo;
    size_t workspace_nbytes;
    int state;
    float waves;
    int reserved[4];
} heuristic_result;

static int set(descriptor *it, int attribute, const void *value, size_t nbytes) {
    if (!it || !value || attribute < 0 || attribute >= ATTRIBUTES || nbytes == 0 || nbytes > ATTRIBUTE_NBYTES)
        return CUBLAS_INVALID_VALUE;
    memset(it->of[attribute].bytes, 0, ATTRIBUTE_NBYTES);
    memcpy(it->of[attribute].bytes, value, nbytes);
    it->of[attribute].nbytes = (unsigned char)nbytes;
    return CUBLAS_OK;
}

/* cuBLASLt's convention: a size of 0 asks for the attribute's size. */
static int get(const descriptor *it, int attribute, void *value, size_t nbytes, size_t *written) {
    if (!it || attribute < 0 || attribute >= ATTRIBUTES || (!value && nbytes) || (!nbytes && !written))
        return CUBLAS_INVALID_VALUE;
    size_t has = it->of[attribute].nbytes ? it->of[attribute].nbytes : nbytes;
    if (written) *written = has;
    if (nbytes && nbytes < has) return CUBLAS_INVALID_VALUE;
    if (nbytes) memcpy(value, it->of[attribute].bytes, has < ATTRIBUTE_NBYTES ? has : ATTRIBUTE_NBYTES);
    return CUBLAS_OK;
}

static int64_t number(const descriptor *it, int attribute, int64_t otherwise) {
    int64_t value = 0;
    if (!it || !it->of[attribute].nbytes) return otherwise;
    if (it->of[attribute].nbytes == 4) {
        int32_t narrow;
        memcpy(&narrow, it->of[attribute].bytes, sizeof narrow);
        return narrow;
    }
    memcpy(&value, it->of[attribute].bytes, sizeof value);
    return value;
}

static int create(descriptor **out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? CUBLAS_OK : CUBLAS_INVALID_VALUE;
}

static int destroy(descriptor *it) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(it);
    return CUBLAS_OK;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */
PH_EXPORT int cublasLtMatmulDescCreate(descriptor **out, int compute_type, int scale_type) {
    int status = create(out);
    int none = 0, whole = 1;
    if (status != CUBLAS_OK) return status;
    set(*out, DESC_COMPUTE_TYPE, &compute_type, sizeof compute_type);
    set(*out, DESC_SCALE_TYPE, &scale_type, sizeof scale_type);
    set(*out, DESC_TRANSA, &none, sizeof none);
    set(*out, DESC_TRANSB, &none, sizeof none);
    return set(*out, DESC_EPILOGUE, &whole, sizeof whole);
}

PH_EXPORT int cublasLtMatrixLayoutCreate(descriptor **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    int status = create(out);
    int32_t batch = 1;
    int64_t stride = 0;
    if (status != CUBLAS_OK) return status;
    set(*out, LAYOUT_TYPE, &type, sizeof type);
    set(*out, LAYOUT_ROWS, &rows, sizeof rows);
    set(*out, LAYOUT_COLS, &cols, sizeof cols);
    set(*out, LAYOUT_LD, &ld, sizeof ld);
    set(*out, LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    return set(*out, LAYOUT_STRIDE, &stride, sizeof stride);
}

PH_EXPORT int cublasLtMatmulPreferenceCreate(descriptor **out) {
    uint64_t none = 0;
    int status = create(out);
    return status == CUBLAS_OK ? set(*out, PREFERENCE_MAX_WORKSPACE, &none, sizeof none) : status;
}

#define ACCESS(Kind)                                                                                                   \
    PH_EXPORT int cublasLt##Kind##Destroy(descriptor *it) { return destroy(it); }                                      \
    PH_EXPORT int cublasLt##Kind##SetAttribute(descriptor *it, int attribute, const void *value, size_t nbytes) {      \
        return set(it, attribute, value, nbytes);                                                                      \
    }                                                                                                                  \
    PH_EXPORT int cublasLt##Kind##GetAttribute(const descriptor *it, int attribute, void *value, size_t nbytes,        \
                                               size_t *written) {                                                      \
        return get(it, attribute, value, nbytes, written);                                                             \
    }
ACCESS(MatmulDesc)
ACCESS(MatrixLayout)
ACCESS(MatmulPreference)

/* ---- handle and versions ----------------------------------------------------------------------------------------- */
PH_EXPORT int cublasLtCreate(cublas_handle **handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    return handle && (*handle = calloc(1, sizeof **handle)) ? CUBLAS_OK : CUBLAS_INVALID_VALUE;
}

PH_EXPORT int cublasLtDestroy(cublas_handle *handle) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(handle);
    return CUBLAS_OK;
}

PH_EXPORT size_t cublasLtGetVersion(void) { return ph_real_version("libcublasLt.so", "cublasLtGetVersion", 130100); }

PH_EXPORT size_t cublasLtGetCudartVersion(void) {
    return ph_real_version("libcublasLt.so", "cublasLtGetCudartVersion", 13000);
}

/*
 * Is there a kernel for these operands and their scales? Of 8 bits since compute capability 8.9; with a scale for each
 * row or for blocks of 128 numbers on 9.0; with one for each 16 or 32 numbers, and of 4 bits, since 10.0.
 */
static bool has_kernels(const descriptor *operation, const descriptor *a, const descriptor *b) {
    enum { F8E4M3 = 28, F8E5M2 = 29, F4E2M1 = 33, VEC16 = 1, VEC32 = 2, OUTER = 3 };
    int capability = 10 * ph_cfg.cc_major + ph_cfg.cc_minor;
    const descriptor *operands[] = {a, b};
    for (int i = 0; i < 2; i++) {
        int64_t type = number(operands[i], LAYOUT_TYPE, 0), mode = number(operation, DESC_A_SCALE_MODE + i, 0);
        bool narrow = type == F8E4M3 || type == F8E5M2, narrowest = type == F4E2M1;
        if ((narrow && capability < 89) || (narrowest && capability < 100)) return false;
        if ((mode == VEC16 || mode == VEC32) && capability < 100) return false;
        if (mode >= OUTER && capability != 90) return false;
    }
    return true;
}

/* ---- algorithms: one, which fits every problem; its number says which it is -------------------------------------- */
static const algorithm only_algorithm = {{1, 0x7068616e746f7261, 0}};

PH_EXPORT int cublasLtMatmulAlgoGetHeuristic(cublas_handle *handle, const descriptor *operation, const descriptor *a,
                                             const descriptor *b, const descriptor *c, const descriptor *d,
                                             const descriptor *preference, int requested, heuristic_result *results,
                                             int *nreturned) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !operation || !a || !b || !c || !d || !preference || requested < 1 || !results || !nreturned)
        return CUBLAS_INVALID_VALUE;
    memset(results, 0, (size_t)requested * sizeof *results);
    *nreturned = 0;
    if (!has_kernels(operation, a, b)) return CUBLAS_NOT_SUPPORTED;
    for (int i = 1; i < requested; i++)
        results[i].state = 15; /* only one algorithm is offered: the others are not supported */
    results[0].algo = only_algorithm;
    results[0].workspace_nbytes = 0;
    results[0].waves = 1;
    *nreturned = 1;
    return CUBLAS_OK;
}

PH_EXPORT int cublasLtMatmulAlgoInit(cublas_handle *handle, int compute, int scale, int a, int b, int c, int d, int id,
                                     algorithm *out) {
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !out) return CUBLAS_INVALID_VALUE;
    *out = only_algorithm;
    out->data[0] = (uint64_t)id;
    return CUBLAS_OK;
}

PH_EXPORT int cublasLtMatmulAlgoCheck(cublas_handle *handle, const descriptor *operation, const descriptor *a,
                                      const descriptor *b, const descriptor *c, const descriptor *d,
                                      const algorithm *algo, heuristic_result *result) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !operation || !a || !b || !c || !d || !algo || !result) return CUBLAS_INVALID_VALUE;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->waves = 1;
    return CUBLAS_OK;
}

/* Configuration attributes (tile, stages, split-k ...) have 2 or 4 bytes each; an algorithm stores those below
 * number 16.
 */
PH_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(algorithm *algo, int attribute, const void *value, size_t nbytes) {
    uint32_t word = 0;
    if (!algo || !value || attribute < 0 || attribute >= 10 || nbytes == 0 || nbytes > sizeof word)
        return CUBLAS_INVALID_VALUE;
    memcpy(&word, value, nbytes);
    memcpy((unsigned char *)&algo->data[2] + 4 * attribute, &word, sizeof word);
    return CUBLAS_OK;
}

PH_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const algorithm *algo, int attribute, void *value, size_t nbytes,
                                                   size_t *written) {
    size_t has = attribute == 7 || attribute == 8 ? 2 : 4; /* inner shape and cluster shape */
    if (!algo || attribute < 0 || attribute >= 10 || (nbytes && (!value || nbytes < has)) || (!nbytes && !written))
        return CUBLAS_INVALID_VALUE;
    if (written) *written = has;
    if (nbytes) memcpy(value, (const unsigned char *)&algo->data[2] + 4 * attribute, has);
    return CUBLAS_OK;
}

/* Scales of many small blocks are multiplied in as the product is summed up, which takes time. */
static uint32_t scales_of(const descriptor *operation) {
    enum { VEC128 = 4, BLK128 = 5 };
    static const uint32_t flags[2][2] = {{PH_SCALES_A_VEC128, PH_SCALES_A_BLK128},
                                         {PH_SCALES_B_VEC128, PH_SCALES_B_BLK128}};
    uint32_t found = 0;
    for (int i = 0; i < 2; i++) {
        int64_t mode = number(operation, DESC_A_SCALE_MODE + i, 0);
        if (mode == VEC128 || mode == BLK128) found |= flags[i][mode - VEC128];
    }
    return found;
}

/* ---- the product ------------------------------------------------------------------------------------------------- */
PH_EXPORT int cublasLtMatmul(cublas_handle *handle, const descriptor *operation, const void *alpha, const void *a,
                             const descriptor *a_layout, const void *b, const descriptor *b_layout, const void *beta,
                             const void *c, const descriptor *c_layout, void *d, const descriptor *d_layout,
                             const algorithm *algo, void *workspace, size_t workspace_nbytes, void *stream) {
    (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)algo, (void)workspace, (void)workspace_nbytes;
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    if (!operation || !a_layout || !b_layout || !c_layout || !d_layout) return CUBLAS_INVALID_VALUE;
    int64_t transa = number(operation, DESC_TRANSA, 0), transb = number(operation, DESC_TRANSB, 0);
    int64_t rows = number(d_layout, LAYOUT_ROWS, 0), cols = number(d_layout, LAYOUT_COLS, 0),
            batch = number(d_layout, LAYOUT_BATCH_COUNT, 1);
    gemm problem = {.m = rows,
                    .n = cols,
                    .k = number(a_layout, transa ? LAYOUT_ROWS : LAYOUT_COLS, 0),
                    .batch = batch,
                    .call = PH_LT_MATMUL,
                    .epilogue = (uint32_t)number(operation, DESC_EPILOGUE, 1) | scales_of(operation),
                    .compute = (uint32_t)number(operation, DESC_COMPUTE_TYPE, COMPUTE_32F),
                    .transa = (uint8_t)transa,
                    .transb = (uint8_t)transb,
                    .a = (uint8_t)number(a_layout, LAYOUT_TYPE, 0),
                    .b = (uint8_t)number(b_layout, LAYOUT_TYPE, 0),
                    .c = (uint8_t)number(d_layout, LAYOUT_TYPE, 0)};
    if (transa < 0 || transa > 2 || transb < 0 || transb > 2) return CUBLAS_INVALID_VALUE;
    if (rows > 0 && cols > 0 && batch > 0)
        ph_overwrite_on(
            ph_stream_of(stream), d,
            ph_cuda_dtype_nbytes(problem.c, (uint64_t)((batch - 1) * number(d_layout, LAYOUT_STRIDE, 0) +
                                                       (cols - 1) * number(d_layout, LAYOUT_LD, rows) + rows)));
    return ph_gemm_launch(stream, &problem);
}
