/* cuSPARSE: block matrices, conversions and sorts of indices. */
#include "threads/host.h"
#include "cusparse/cusparse.h"
#include "graphs/capture.h"
#include "streams/stream.h"

#include <stdlib.h>

typedef struct description {
    int unused;
} description;

PH_EXPORT int cusparseCreateMatDescr(description **out) {
    ph_host_call(PH_CALL_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

PH_EXPORT int cusparseDestroyMatDescr(description *it) {
    ph_host_call(PH_CALL_QUERY);
    free(it);
    return SPARSE_OK;
}

/* Setters of a matrix's kind, which have no effect, as nothing is computed. */
#define SETTER(Name)                                                                                                   \
    PH_EXPORT int cusparseSetMat##Name(description *it, int value) {                                                   \
        (void)value;                                                                                                   \
        return it ? SPARSE_OK : SPARSE_INVALID_VALUE;                                                                  \
    }
SETTER(DiagType)
SETTER(FillMode)
SETTER(IndexBase)
SETTER(Type)

/* ---- indices ----------------------------------------------------------------------------------------------------- */

static void overwrite(const sparse_handle *h, void *at, int64_t n, size_t item) {
    if (h && at && n > 0) ph_overwrite_on(ph_stream_of(h->stream), at, (uint64_t)n * item);
}

PH_EXPORT int cusparseCreateIdentityPermutation(sparse_handle *h, int n, int *p) {
    overwrite(h, p, n, sizeof *p);
    return sparse_charge(h, "cusparseCreateIdentityPermutation", (int64_t)n * 4);
}

PH_EXPORT int cusparseXcoo2csr(sparse_handle *h, const int *rows, int nnz, int m, int *offsets, int base) {
    (void)rows, (void)base;
    overwrite(h, offsets, (int64_t)m + 1, sizeof *offsets);
    return sparse_charge(h, "cusparseXcoo2csr", 4 * ((int64_t)nnz + m));
}

/* A radix sort of keys of 32 bits passes over keys and permutation four times. */
enum { SORT_PASSES = 4 };

PH_EXPORT int cusparseXcoosort_bufferSizeExt(sparse_handle *h, int m, int n, int nnz, const int *rows,
                                             const int *columns, size_t *nbytes) {
    (void)h, (void)m, (void)n, (void)rows, (void)columns;
    ph_host_call(PH_CALL_QUERY);
    *nbytes = 12 * (size_t)(nnz > 0 ? nnz : 1);
    return SPARSE_OK;
}

PH_EXPORT int cusparseXcoosortByRow(sparse_handle *h, int m, int n, int nnz, int *rows, int *columns, int *p,
                                    void *work) {
    (void)m, (void)n, (void)work;
    overwrite(h, rows, nnz, sizeof *rows);
    overwrite(h, columns, nnz, sizeof *columns);
    overwrite(h, p, nnz, sizeof *p);
    return sparse_charge(h, "cusparseXcoosortByRow", SORT_PASSES * 2 * 12 * (int64_t)nnz);
}

PH_EXPORT int cusparseXcsrsort_bufferSizeExt(sparse_handle *h, int m, int n, int nnz, const int *offsets,
                                             const int *columns, size_t *nbytes) {
    (void)h, (void)m, (void)n, (void)offsets, (void)columns;
    ph_host_call(PH_CALL_QUERY);
    *nbytes = 8 * (size_t)(nnz > 0 ? nnz : 1);
    return SPARSE_OK;
}

PH_EXPORT int cusparseXcsrsort(sparse_handle *h, int m, int n, int nnz, void *a, const int *offsets, int *columns,
                               int *p, void *work) {
    (void)m, (void)n, (void)a, (void)offsets, (void)work;
    overwrite(h, columns, nnz, sizeof *columns);
    overwrite(h, p, nnz, sizeof *p);
    return sparse_charge(h, "cusparseXcsrsort", SORT_PASSES * 2 * 8 * (int64_t)nnz);
}

/* ---- block matrices: products with dense matrices and vectors ---------------------------------------------------- */
#define TYPED(T, dtype)                                                                                                \
    PH_EXPORT int cusparse##T##bsrmm(sparse_handle *h, int direction, int opa, int opb, int mb, int n, int kb,         \
                                     int blocks, const void *alpha, description *a, const void *values,                \
                                     const int *offsets, const int *columns, int block, const void *b, int ldb,        \
                                     const void *beta, void *c, int ldc) {                                             \
        (void)direction, (void)opa, (void)opb, (void)kb, (void)alpha, (void)a, (void)values, (void)offsets;            \
        (void)columns, (void)b, (void)ldb, (void)beta;                                                                 \
        int64_t item = (int64_t)ph_cuda_dtype_nbytes(dtype, 1), stored = (int64_t)blocks * block * block,              \
                read = (int64_t)blocks * block * n, written = (int64_t)mb * block * n;                                 \
        if (n > 0) overwrite(h, c, (int64_t)(n - 1) * ldc + (int64_t)mb * block, (size_t)item);                        \
        return sparse_charge(h, "cusparse" #T "bsrmm", 4 * (int64_t)(blocks + mb) + item * (stored + read + written)); \
    }                                                                                                                  \
    PH_EXPORT int cusparse##T##bsrmv(sparse_handle *h, int direction, int op, int mb, int nb, int blocks,              \
                                     const void *alpha, description *a, const void *values, const int *offsets,        \
                                     const int *columns, int block, const void *x, const void *beta, void *y) {        \
        (void)direction, (void)op, (void)alpha, (void)a, (void)values, (void)offsets, (void)columns, (void)x;          \
        (void)beta;                                                                                                    \
        int64_t item = (int64_t)ph_cuda_dtype_nbytes(dtype, 1), stored = (int64_t)blocks * block * block;              \
        overwrite(h, y, (int64_t)mb * block, (size_t)item);                                                            \
        return sparse_charge(h, "cusparse" #T "bsrmv",                                                                 \
                             4 * (int64_t)(blocks + mb) + item * (stored + (int64_t)(nb + mb) * block));               \
    }
TYPED(S, CUDA_DTYPE_F32)
TYPED(D, CUDA_DTYPE_F64)
TYPED(C, CUDA_DTYPE_C64)
TYPED(Z, CUDA_DTYPE_C128)
