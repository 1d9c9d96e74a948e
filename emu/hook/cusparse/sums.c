/*
 * cuSPARSE: products and sums of two sparse matrices. How many entries the result has depends on where the entries of
 * the operands are, which is not looked at. As many are assumed as entries at random places give, and a warning says
 * so.
 */
#include "threads/host.h"
#include "op_stream/warn.h"
#include "cusparse/cusparse.h"
#include "data/data.h"
#include "graphs/capture.h"
#include "streams/stream.h"

#include <math.h>
#include <stdlib.h>

/* Terms are sorted and added up: 8 million took 1.2 ms on an H200 (laboratory/notes/libraries-h200.md), as long as so
 * many bytes of each. */
enum { TERM_NBYTES = 450 };

typedef struct product {
    int64_t nnz;
} product;

static void warn(const char *name, int64_t nnz) {
    ph_warn_once(name, "%s: the number of entries of the result is assumed (%lld, as for entries at random places)",
                 name, (long long)nnz);
}

/* Returns how many of `places` places get at least one of `terms` terms, each of which is at a random place. */
static int64_t distinct(double terms, double places) {
    return places > 0 ? (int64_t)(places * -expm1(-terms / places) + 0.5) : 0;
}

PH_EXPORT int cusparseSpGEMM_createDescr(product **out) {
    ph_host_call(PH_CALL_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

PH_EXPORT int cusparseSpGEMM_destroyDescr(product *it) {
    ph_host_call(PH_CALL_QUERY);
    free(it);
    return SPARSE_OK;
}

PH_EXPORT int cusparseSpGEMM_workEstimation(sparse_handle *h, int opa, int opb, const void *alpha,
                                            const sparse_matrix *a, const sparse_matrix *b, const void *beta,
                                            const sparse_matrix *c, int compute, int algorithm, product *how,
                                            size_t *nbytes, void *work) {
    (void)opa, (void)opb, (void)alpha, (void)beta, (void)c, (void)compute, (void)algorithm, (void)how;
    if (!a || !b || !nbytes) return SPARSE_INVALID_VALUE;
    if (!work) return sparse_no_workspace(nbytes);
    return sparse_charge(h, "cusparseSpGEMM_workEstimation", sparse_matrix_nbytes(a) + sparse_matrix_nbytes(b));
}

static double terms_of(const sparse_matrix *a, const sparse_matrix *b) {
    return b->rows > 0 ? (double)a->nnz * (double)b->nnz / (double)b->rows : 0;
}

/* Called twice: for the workspace's size, then for the product. */
PH_EXPORT int cusparseSpGEMM_compute(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                     const sparse_matrix *b, const void *beta, sparse_matrix *c, int compute,
                                     int algorithm, product *how, size_t *nbytes, void *work) {
    (void)opa, (void)opb, (void)alpha, (void)beta, (void)compute, (void)algorithm;
    if (!a || !b || !c || !how || !nbytes) return SPARSE_INVALID_VALUE;
    if (!work) {
        ph_host_call(PH_CALL_QUERY);
        *nbytes = 1; /* 0 would be no workspace, and the call asks for the size if it gets none */
        return SPARSE_OK;
    }
    double terms = terms_of(a, b);
    how->nnz = c->nnz = distinct(terms, (double)a->rows * (double)b->cols);
    warn("cusparseSpGEMM", c->nnz);
    return sparse_charge(h, "cusparseSpGEMM_compute", sparse_matrix_nbytes(a) + (int64_t)terms * TERM_NBYTES);
}

PH_EXPORT int cusparseSpGEMM_copy(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                  const sparse_matrix *b, const void *beta, sparse_matrix *c, int compute,
                                  int algorithm, product *how) {
    (void)opa, (void)opb, (void)alpha, (void)beta, (void)compute, (void)algorithm;
    if (!h || !a || !b || !c || !how) return SPARSE_INVALID_VALUE;
    c->nnz = how->nnz;
    sparse_overwrite_values(h, c);
    ph_stream *stream = ph_stream_of(h->stream);
    if (c->offsets) ph_overwrite_on(stream, c->offsets, (uint64_t)c->offsets_nbytes);
    if (c->columns) ph_overwrite_on(stream, c->columns, (uint64_t)(c->nnz * c->index_nbytes));
    return sparse_charge(h, "cusparseSpGEMM_copy", 2 * sparse_matrix_nbytes(c));
}

/* ---- sums of two CSR matrices ------------------------------------------------------------------------------------ */

PH_EXPORT int cusparseXcsrgeam2Nnz(sparse_handle *h, int m, int n, void *a, int a_nnz, const int *a_offsets,
                                   const int *a_columns, void *b, int b_nnz, const int *b_offsets, const int *b_columns,
                                   void *c, int *c_offsets, int *nnz, void *work) {
    (void)a, (void)a_offsets, (void)a_columns, (void)b, (void)b_offsets, (void)b_columns, (void)c, (void)work;
    if (!h || !nnz || m < 0) return SPARSE_INVALID_VALUE;
    *nnz = (int)distinct((double)a_nnz + b_nnz, (double)m * n);
    warn("cusparseXcsrgeam2Nnz", *nnz);
    ph_overwrite_on(ph_stream_of(h->stream), c_offsets, (uint64_t)(m + 1) * sizeof *c_offsets);
    return sparse_charge(h, "cusparseXcsrgeam2Nnz", ((int64_t)a_nnz + b_nnz + 3 * (int64_t)m) * 4);
}

#define TYPED(T, dtype)                                                                                                \
    PH_EXPORT int cusparse##T##csrgeam2_bufferSizeExt(                                                                 \
        sparse_handle *h, int m, int n, const void *alpha, void *a, int a_nnz, const void *a_values,                   \
        const int *a_offsets, const int *a_columns, const void *beta, void *b, int b_nnz, const void *b_values,        \
        const int *b_offsets, const int *b_columns, void *c, const void *c_values, const int *c_offsets,               \
        const int *c_columns, size_t *nbytes) {                                                                        \
        (void)h, (void)m, (void)n, (void)alpha, (void)a, (void)a_nnz, (void)a_values, (void)a_offsets;                 \
        (void)a_columns, (void)beta, (void)b, (void)b_nnz, (void)b_values, (void)b_offsets, (void)b_columns;           \
        (void)c, (void)c_values, (void)c_offsets, (void)c_columns;                                                     \
        return sparse_no_workspace(nbytes);                                                                            \
    }                                                                                                                  \
    PH_EXPORT int cusparse##T##csrgeam2(sparse_handle *h, int m, int n, const void *alpha, void *a, int a_nnz,         \
                                        const void *a_values, const int *a_offsets, const int *a_columns,              \
                                        const void *beta, void *b, int b_nnz, const void *b_values,                    \
                                        const int *b_offsets, const int *b_columns, void *c, void *c_values,           \
                                        int *c_offsets, int *c_columns, void *work) {                                  \
        (void)alpha, (void)a, (void)a_values, (void)a_offsets, (void)a_columns, (void)beta, (void)b, (void)b_values;   \
        (void)b_offsets, (void)b_columns, (void)c, (void)c_offsets, (void)work;                                        \
        if (!h) return SPARSE_NOT_INITIALIZED;                                                                         \
        int64_t nnz = distinct((double)a_nnz + b_nnz, (double)m * n), item = ph_cuda_dtype_nbytes(dtype, 1);           \
        ph_overwrite_on(ph_stream_of(h->stream), c_values, (uint64_t)(nnz * item));                                    \
        ph_overwrite_on(ph_stream_of(h->stream), c_columns, (uint64_t)nnz * sizeof *c_columns);                        \
        return sparse_charge(h, "cusparse" #T "csrgeam2", ((int64_t)a_nnz + b_nnz + nnz) * (4 + item));                \
    }
TYPED(S, CUDA_DTYPE_F32)
TYPED(D, CUDA_DTYPE_F64)
TYPED(C, CUDA_DTYPE_C64)
TYPED(Z, CUDA_DTYPE_C128)
