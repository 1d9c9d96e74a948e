/*
 * cuSPARSE's generic API. A product with a dense matrix reads a row of it for each entry of the sparse one; rows that
 * are read again come from the caches, which the cost model knows.
 */
#include "threads/host.h"
#include "cusparse/cusparse.h"

#include <stdlib.h>

/* The rows that the entries refer to: entries x columns, but never less than the matrix once. */
static int64_t gathered(const sparse_matrix *sparse, const sparse_matrix *dense, int64_t columns) {
    return sparse->batch * (int64_t)ph_cuda_dtype_nbytes(dense->dtype, (uint64_t)(sparse->nnz * columns));
}

PH_EXPORT int cusparseSpMM_bufferSize(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                      const sparse_matrix *b, const void *beta, const sparse_matrix *c, int compute,
                                      int algorithm, size_t *nbytes) {
    (void)h, (void)opa, (void)opb, (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)compute, (void)algorithm;
    return sparse_no_workspace(nbytes);
}

PH_EXPORT int cusparseSpMM(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                           const sparse_matrix *b, const void *beta, const sparse_matrix *c, int compute, int algorithm,
                           void *work) {
    (void)opa, (void)opb, (void)alpha, (void)beta, (void)compute, (void)algorithm, (void)work;
    if (!a || !b || !c) return SPARSE_INVALID_VALUE;
    sparse_overwrite_dense(h, c);
    return sparse_charge(h, "cusparseSpMM", sparse_matrix_nbytes(a) + gathered(a, b, c->cols) + dense_matrix_nbytes(c));
}

PH_EXPORT int cusparseSpMV_bufferSize(sparse_handle *h, int op, const void *alpha, const sparse_matrix *a,
                                      const sparse_matrix *x, const void *beta, const sparse_matrix *y, int compute,
                                      int algorithm, size_t *nbytes) {
    (void)h, (void)op, (void)alpha, (void)a, (void)x, (void)beta, (void)y, (void)compute, (void)algorithm;
    return sparse_no_workspace(nbytes);
}

PH_EXPORT int cusparseSpMV(sparse_handle *h, int op, const void *alpha, const sparse_matrix *a, const sparse_matrix *x,
                           const void *beta, const sparse_matrix *y, int compute, int algorithm, void *work) {
    (void)op, (void)alpha, (void)beta, (void)compute, (void)algorithm, (void)work;
    if (!a || !x || !y) return SPARSE_INVALID_VALUE;
    sparse_overwrite_dense(h, y);
    return sparse_charge(h, "cusparseSpMV", sparse_matrix_nbytes(a) + gathered(a, x, 1) + dense_matrix_nbytes(y));
}

PH_EXPORT int cusparseSDDMM_bufferSize(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                       const sparse_matrix *b, const void *beta, const sparse_matrix *c, int compute,
                                       int algorithm, size_t *nbytes) {
    (void)h, (void)opa, (void)opb, (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)compute, (void)algorithm;
    return sparse_no_workspace(nbytes);
}

PH_EXPORT int cusparseSDDMM_preprocess(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                       const sparse_matrix *b, const void *beta, const sparse_matrix *c, int compute,
                                       int algorithm, void *work) {
    (void)opa, (void)opb, (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)compute, (void)algorithm;
    (void)work;
    ph_host_call(PH_CALL_QUERY);
    return h ? SPARSE_OK : SPARSE_NOT_INITIALIZED;
}

PH_EXPORT int cusparseSDDMM(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                            const sparse_matrix *b, const void *beta, const sparse_matrix *c, int compute,
                            int algorithm, void *work) {
    (void)opb, (void)alpha, (void)beta, (void)compute, (void)algorithm, (void)work;
    if (!a || !b || !c) return SPARSE_INVALID_VALUE;
    int64_t inner = opa ? a->rows : a->cols;
    sparse_overwrite_values(h, c);
    return sparse_charge(h, "cusparseSDDMM", sparse_matrix_nbytes(c) + 2 * gathered(c, a, inner));
}

/* ---- triangular solves: one pass over the matrix for the analysis, one for the solve ----------------------------- */
#define DESCRIPTOR(Kind)                                                                                               \
    PH_EXPORT int cusparse##Kind##_createDescr(void **out) {                                                           \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        return out && (*out = malloc(1)) ? SPARSE_OK : SPARSE_INVALID_VALUE;                                           \
    }                                                                                                                  \
    PH_EXPORT int cusparse##Kind##_destroyDescr(void *it) {                                                            \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        free(it);                                                                                                      \
        return SPARSE_OK;                                                                                              \
    }
DESCRIPTOR(SpSM)
DESCRIPTOR(SpSV)

PH_EXPORT int cusparseSpSM_bufferSize(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                      const sparse_matrix *b, const sparse_matrix *c, int compute, int algorithm,
                                      void *how, size_t *nbytes) {
    (void)h, (void)opa, (void)opb, (void)alpha, (void)a, (void)b, (void)c, (void)compute, (void)algorithm, (void)how;
    return sparse_no_workspace(nbytes);
}

PH_EXPORT int cusparseSpSM_analysis(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                    const sparse_matrix *b, const sparse_matrix *c, int compute, int algorithm,
                                    void *how, void *work) {
    (void)opa, (void)opb, (void)alpha, (void)b, (void)c, (void)compute, (void)algorithm, (void)how, (void)work;
    return a ? sparse_charge(h, "cusparseSpSM_analysis", sparse_matrix_nbytes(a)) : SPARSE_INVALID_VALUE;
}

PH_EXPORT int cusparseSpSM_solve(sparse_handle *h, int opa, int opb, const void *alpha, const sparse_matrix *a,
                                 const sparse_matrix *b, const sparse_matrix *c, int compute, int algorithm,
                                 void *how) {
    (void)opa, (void)opb, (void)alpha, (void)compute, (void)algorithm, (void)how;
    if (!a || !b || !c) return SPARSE_INVALID_VALUE;
    sparse_overwrite_dense(h, c);
    return sparse_charge(h, "cusparseSpSM_solve",
                         sparse_matrix_nbytes(a) + gathered(a, b, c->cols) + dense_matrix_nbytes(c));
}

PH_EXPORT int cusparseSpSV_bufferSize(sparse_handle *h, int op, const void *alpha, const sparse_matrix *a,
                                      const sparse_matrix *x, const sparse_matrix *y, int compute, int algorithm,
                                      void *how, size_t *nbytes) {
    (void)h, (void)op, (void)alpha, (void)a, (void)x, (void)y, (void)compute, (void)algorithm, (void)how;
    return sparse_no_workspace(nbytes);
}

PH_EXPORT int cusparseSpSV_analysis(sparse_handle *h, int op, const void *alpha, const sparse_matrix *a,
                                    const sparse_matrix *x, const sparse_matrix *y, int compute, int algorithm,
                                    void *how, void *work) {
    (void)op, (void)alpha, (void)x, (void)y, (void)compute, (void)algorithm, (void)how, (void)work;
    return a ? sparse_charge(h, "cusparseSpSV_analysis", sparse_matrix_nbytes(a)) : SPARSE_INVALID_VALUE;
}

PH_EXPORT int cusparseSpSV_solve(sparse_handle *h, int op, const void *alpha, const sparse_matrix *a,
                                 const sparse_matrix *x, const sparse_matrix *y, int compute, int algorithm,
                                 void *how) {
    (void)op, (void)alpha, (void)compute, (void)algorithm, (void)how;
    if (!a || !x || !y) return SPARSE_INVALID_VALUE;
    sparse_overwrite_dense(h, y);
    return sparse_charge(h, "cusparseSpSV_solve", sparse_matrix_nbytes(a) + gathered(a, x, 1) + dense_matrix_nbytes(y));
}
