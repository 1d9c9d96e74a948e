/*
 * cuSOLVER: factorisations, solves and eigenvalues of dense matrices, as far as optimizers and initialisers of training
 * jobs use them (Cholesky, LU, QR, symmetric eigenvalues, singular values). Others are refused (calls.def).
 *
 * The values stay uncomputed; the status words say "no error" and pivots say "no exchange", since programs read them.
 * Time is that of a library call by its bytes. Workspaces are sized as LAPACK's blocked algorithms would.
 */
#include "core/host.h"
#include "core/warn.h"
#include "costs/library.h"
#include "data/data.h"

#include <stdlib.h>

enum { SOLVER_OK = 0, SOLVER_NOT_INITIALIZED = 1, SOLVER_INVALID_VALUE = 3, BLOCK = 64 };

typedef struct solver {
    void *stream;
} solver;
typedef struct parameters {
    int unused;
} parameters;

PH_EXPORT int cusolverDnCreate(solver **out) {
    ph_host_call(PH_CALL_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnDestroy(solver *handle) {
    ph_host_call(PH_CALL_QUERY);
    free(handle);
    return SOLVER_OK;
}

PH_EXPORT int cusolverDnSetStream(solver *handle, void *stream) {
    ph_host_call(PH_CALL_QUERY);
    if (!handle) return SOLVER_NOT_INITIALIZED;
    handle->stream = stream;
    return SOLVER_OK;
}

#define PARAMETERS(Name)                                                                                               \
    PH_EXPORT int cusolverDnCreate##Name(parameters **out) {                                                           \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        return out && (*out = calloc(1, sizeof **out)) ? SOLVER_OK : SOLVER_INVALID_VALUE;                             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDnDestroy##Name(parameters *it) {                                                            \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        free(it);                                                                                                      \
        return SOLVER_OK;                                                                                              \
    }
PARAMETERS(Params)
PARAMETERS(GesvdjInfo)
PARAMETERS(SyevjInfo)

/* How exact an iteration gets does not matter to what is not computed. */
PH_EXPORT int cusolverDnXgesvdjSetTolerance(parameters *it, double tolerance) {
    (void)tolerance;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnXgesvdjSetMaxSweeps(parameters *it, int sweeps) {
    (void)sweeps;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnXgesvdjSetSortEig(parameters *it, int sort) {
    (void)sort;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

static int size(int *out, int64_t elements) {
    ph_host_call(PH_CALL_QUERY);
    if (!out || elements < 0 || elements > INT32_MAX) return SOLVER_INVALID_VALUE;
    *out = (int)(elements > 1 ? elements : 1);
    return SOLVER_OK;
}

static int sizes(size_t *device, size_t *host, int64_t elements, int dtype) {
    ph_host_call(PH_CALL_QUERY);
    if (!device || !host || elements < 0) return SOLVER_INVALID_VALUE;
    *device = (size_t)elements * ph_dtype_nbytes(dtype);
    *host = 0;
    return SOLVER_OK;
}

static int charge(solver *handle, const char *name, int64_t elements, int dtype, int *info, int64_t ninfo) {
    if (!handle) return SOLVER_NOT_INITIALIZED;
    if (elements < 0 || ninfo < 0) return SOLVER_INVALID_VALUE;
    if (info) ph_data_set(info, 0, (size_t)ninfo * sizeof *info);
    uint64_t nbytes = (uint64_t)elements * ph_dtype_nbytes(dtype);
    return ph_library_launch(handle->stream, name, nbytes) ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

static void no_pivoting(int *pivots, int64_t n) {
    if (!pivots || n <= 0) return;
    int *values = malloc((size_t)n * sizeof *values);
    if (!values) ph_die("out of host memory for %lld pivots", (long long)n);
    for (int64_t i = 0; i < n; i++) values[i] = (int)i + 1;
    ph_data_copy(pivots, values, (size_t)n * sizeof *values);
    free(values);
}

#define MATRIX const void *a, int lda
#define DROP_MATRIX (void)a, (void)lda

#define TYPED(T, dtype, orgqr, ormqr, syevd)                                                                           \
    PH_EXPORT int cusolverDn##T##potrf_bufferSize(solver *h, int uplo, int n, MATRIX, int *out) {                      \
        (void)h, (void)uplo, DROP_MATRIX;                                                                              \
        return size(out, (int64_t)n * BLOCK);                                                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrf(solver *h, int uplo, int n, MATRIX, void *work, int nwork, int *info) {         \
        (void)uplo, DROP_MATRIX, (void)work, (void)nwork;                                                              \
        return charge(h, "cusolverDn" #T "potrf", 2 * (int64_t)n * n, dtype, info, 1);                                 \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrs(solver *h, int uplo, int n, int nrhs, MATRIX, void *b, int ldb, int *info) {    \
        (void)uplo, DROP_MATRIX, (void)b, (void)ldb;                                                                   \
        return charge(h, "cusolverDn" #T "potrs", (int64_t)n * n + 2 * (int64_t)n * nrhs, dtype, info, 1);             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrfBatched(solver *h, int uplo, int n, void *a[], int lda, int *info, int batch) {  \
        (void)uplo, DROP_MATRIX;                                                                                       \
        return charge(h, "cusolverDn" #T "potrfBatched", 2 * (int64_t)batch * n * n, dtype, info, batch);              \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrsBatched(solver *h, int uplo, int n, int nrhs, void *a[], int lda, void *b[],     \
                                              int ldb, int *info, int batch) {                                         \
        (void)uplo, DROP_MATRIX, (void)b, (void)ldb;                                                                   \
        int64_t elements = (int64_t)batch * ((int64_t)n * n + 2 * (int64_t)n * nrhs);                                  \
        return charge(h, "cusolverDn" #T "potrsBatched", elements, dtype, info, 1);                                    \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrf_bufferSize(solver *h, int m, int n, MATRIX, int *out) {                         \
        (void)h, (void)n, DROP_MATRIX;                                                                                 \
        return size(out, (int64_t)m * BLOCK);                                                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrf(solver *h, int m, int n, MATRIX, void *work, int *pivots, int *info) {          \
        DROP_MATRIX, (void)work;                                                                                       \
        no_pivoting(pivots, m < n ? m : n);                                                                            \
        return charge(h, "cusolverDn" #T "getrf", 2 * (int64_t)m * n, dtype, info, 1);                                 \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrs(solver *h, int trans, int n, int nrhs, MATRIX, const int *pivots, void *b,      \
                                       int ldb, int *info) {                                                           \
        (void)trans, DROP_MATRIX, (void)pivots, (void)b, (void)ldb;                                                    \
        return charge(h, "cusolverDn" #T "getrs", (int64_t)n * n + 2 * (int64_t)n * nrhs, dtype, info, 1);             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##geqrf_bufferSize(solver *h, int m, int n, MATRIX, int *out) {                         \
        (void)h, (void)m, DROP_MATRIX;                                                                                 \
        return size(out, (int64_t)n * BLOCK);                                                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##geqrf(solver *h, int m, int n, MATRIX, void *tau, void *work, int nwork, int *info) { \
        DROP_MATRIX, (void)tau, (void)work, (void)nwork;                                                               \
        return charge(h, "cusolverDn" #T "geqrf", 2 * (int64_t)m * n, dtype, info, 1);                                 \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##orgqr##_bufferSize(solver *h, int m, int n, int k, MATRIX, const void *tau,           \
                                                    int *out) {                                                        \
        (void)h, (void)m, (void)k, DROP_MATRIX, (void)tau;                                                             \
        return size(out, (int64_t)n * BLOCK);                                                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##orgqr(solver *h, int m, int n, int k, MATRIX, const void *tau, void *work, int nwork, \
                                       int *info) {                                                                    \
        (void)k, DROP_MATRIX, (void)tau, (void)work, (void)nwork;                                                      \
        return charge(h, "cusolverDn" #T #orgqr, 2 * (int64_t)m * n, dtype, info, 1);                                  \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##ormqr##_bufferSize(solver *h, int side, int trans, int m, int n, int k, MATRIX,       \
                                                    const void *tau, const void *c, int ldc, int *out) {               \
        (void)h, (void)trans, (void)k, DROP_MATRIX, (void)tau, (void)c, (void)ldc;                                     \
        return size(out, (int64_t)(side == 0 ? n : m) * BLOCK);                                                        \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##ormqr(solver *h, int side, int trans, int m, int n, int k, MATRIX, const void *tau,   \
                                       void *c, int ldc, void *work, int nwork, int *info) {                           \
        (void)side, (void)trans, DROP_MATRIX, (void)tau, (void)c, (void)ldc, (void)work, (void)nwork;                  \
        return charge(h, "cusolverDn" #T #ormqr, 2 * (int64_t)m * n + (int64_t)m * k, dtype, info, 1);                 \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevd##_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w,        \
                                                    int *out) {                                                        \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w;                                                          \
        return size(out, 1 + 6 * (int64_t)n + 2 * (int64_t)n * n);                                                     \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevd(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work, int nwork,    \
                                       int *info) {                                                                    \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork;                                          \
        return charge(h, "cusolverDn" #T #syevd, 4 * (int64_t)n * n, dtype, info, 1);                                  \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvd_bufferSize(solver *h, int m, int n, int *out) {                                 \
        (void)h;                                                                                                       \
        return size(out, ((int64_t)m + n) * BLOCK);                                                                    \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvd(solver *h, signed char jobu, signed char jobvt, int m, int n, MATRIX, void *s,  \
                                       void *u, int ldu, void *vt, int ldvt, void *work, int nwork, void *rwork,       \
                                       int *info) {                                                                    \
        (void)jobu, (void)jobvt, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)vt, (void)ldvt, (void)work;           \
        (void)nwork, (void)rwork;                                                                                      \
        return charge(h, "cusolverDn" #T "gesvd", 4 * (int64_t)m * n, dtype, info, 1);                                 \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdj_bufferSize(solver *h, int job, int economic, int m, int n, MATRIX,             \
                                                   const void *s, const void *u, int ldu, const void *v, int ldv,      \
                                                   int *out, parameters *how) {                                        \
        (void)h, (void)job, (void)economic, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)how;   \
        return size(out, 2 * (int64_t)m * n + ((int64_t)m + n) * BLOCK);                                               \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdj(solver *h, int job, int economic, int m, int n, MATRIX, void *s, void *u,      \
                                        int ldu, void *v, int ldv, void *work, int nwork, int *info,                   \
                                        parameters *how) {                                                             \
        (void)job, (void)economic, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)work;           \
        (void)nwork, (void)how;                                                                                        \
        return charge(h, "cusolverDn" #T "gesvdj", 4 * (int64_t)m * n, dtype, info, 1);                                \
    }
TYPED(S, DTYPE_F32, orgqr, ormqr, syevd)
TYPED(D, DTYPE_F64, orgqr, ormqr, syevd)
TYPED(C, DTYPE_C64, ungqr, unmqr, heevd)
TYPED(Z, DTYPE_C128, ungqr, unmqr, heevd)

/* Jacobi's methods, which PyTorch takes for small matrices, and the batched singular values. */
#define JACOBI(T, dtype, syevj)                                                                                        \
    PH_EXPORT int cusolverDn##T##syevj##_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w,        \
                                                    int *out, parameters *how) {                                       \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)how;                                               \
        return size(out, (int64_t)n * (n + BLOCK));                                                                    \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work, int nwork,    \
                                       int *info, parameters *how) {                                                   \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork, (void)how;                               \
        return charge(h, "cusolverDn" #T #syevj, 4 * (int64_t)n * n, dtype, info, 1);                                  \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj##Batched_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w, \
                                                           int *out, parameters *how, int batch) {                     \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)how;                                               \
        return size(out, (int64_t)batch * n * (n + BLOCK));                                                            \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj##Batched(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work,      \
                                                int nwork, int *info, parameters *how, int batch) {                    \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork, (void)how;                               \
        return charge(h, "cusolverDn" #T #syevj "Batched", 4 * (int64_t)batch * n * n, dtype, info, batch);            \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdjBatched_bufferSize(solver *h, int job, int m, int n, MATRIX, const void *s,     \
                                                          const void *u, int ldu, const void *v, int ldv, int *out,    \
                                                          parameters *how, int batch) {                                \
        (void)h, (void)job, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)how;                   \
        return size(out, (int64_t)batch * (2 * (int64_t)m * n + m + n));                                               \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdjBatched(solver *h, int job, int m, int n, MATRIX, void *s, void *u, int ldu,    \
                                               void *v, int ldv, void *work, int nwork, int *info, parameters *how,    \
                                               int batch) {                                                            \
        (void)job, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)work, (void)nwork, (void)how;   \
        return charge(h, "cusolverDn" #T "gesvdjBatched", 4 * (int64_t)batch * m * n, dtype, info, batch);             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdaStridedBatched_bufferSize(                                                      \
        solver *h, int job, int rank, int m, int n, MATRIX, long long a_stride, const void *s, long long s_stride,     \
        const void *u, int ldu, long long u_stride, const void *v, int ldv, long long v_stride, int *out, int batch) { \
        (void)h, (void)job, (void)rank, DROP_MATRIX, (void)a_stride, (void)s, (void)s_stride, (void)u, (void)ldu;      \
        (void)u_stride, (void)v, (void)ldv, (void)v_stride;                                                            \
        return size(out, (int64_t)batch * (2 * (int64_t)m * n + m + n));                                               \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdaStridedBatched(                                                                 \
        solver *h, int job, int rank, int m, int n, MATRIX, long long a_stride, void *s, long long s_stride, void *u,  \
        int ldu, long long u_stride, void *v, int ldv, long long v_stride, void *work, int nwork, int *info,           \
        double *residuals, int batch) {                                                                                \
        (void)job, (void)rank, DROP_MATRIX, (void)a_stride, (void)s, (void)s_stride, (void)u, (void)ldu;               \
        (void)u_stride, (void)v, (void)ldv, (void)v_stride, (void)work, (void)nwork;                                   \
        for (int i = 0; residuals && i < batch; i++) residuals[i] = 0; /* on the host */                               \
        return charge(h, "cusolverDn" #T "gesvdaStridedBatched", 4 * (int64_t)batch * m * n, dtype, info, batch);      \
    }
JACOBI(S, DTYPE_F32, syevj)
JACOBI(D, DTYPE_F64, syevj)
JACOBI(C, DTYPE_C64, heevj)
JACOBI(Z, DTYPE_C128, heevj)

/* ---- the typeless calls
 * ---------------------------------------------------------------------------------------------- */
PH_EXPORT int cusolverDnXpotrf_bufferSize(solver *h, parameters *how, int uplo, int64_t n, int at, const void *a,
                                          int64_t lda, int compute, size_t *device, size_t *host) {
    (void)h, (void)how, (void)uplo, DROP_MATRIX, (void)compute;
    return sizes(device, host, n * BLOCK, at);
}

PH_EXPORT int cusolverDnXpotrf(solver *h, parameters *how, int uplo, int64_t n, int at, void *a, int64_t lda,
                               int compute, void *device, size_t device_nbytes, void *host, size_t host_nbytes,
                               int *info) {
    (void)how, (void)uplo, DROP_MATRIX, (void)compute, (void)device, (void)device_nbytes, (void)host, (void)host_nbytes;
    return charge(h, "cusolverDnXpotrf", 2 * n * n, at, info, 1);
}

PH_EXPORT int cusolverDnXpotrs(solver *h, parameters *how, int uplo, int64_t n, int64_t nrhs, int at, const void *a,
                               int64_t lda, int bt, void *b, int64_t ldb, int *info) {
    (void)how, (void)uplo, DROP_MATRIX, (void)bt, (void)b, (void)ldb;
    return charge(h, "cusolverDnXpotrs", n * n + 2 * n * nrhs, at, info, 1);
}

PH_EXPORT int cusolverDnXgeqrf_bufferSize(solver *h, parameters *how, int64_t m, int64_t n, int at, const void *a,
                                          int64_t lda, int tau_type, const void *tau, int compute, size_t *device,
                                          size_t *host) {
    (void)h, (void)how, (void)m, DROP_MATRIX, (void)tau_type, (void)tau, (void)compute;
    return sizes(device, host, n * BLOCK, at);
}

PH_EXPORT int cusolverDnXgeqrf(solver *h, parameters *how, int64_t m, int64_t n, int at, void *a, int64_t lda,
                               int tau_type, void *tau, int compute, void *device, size_t device_nbytes, void *host,
                               size_t host_nbytes, int *info) {
    (void)how, DROP_MATRIX, (void)tau_type, (void)tau, (void)compute, (void)device, (void)device_nbytes, (void)host;
    (void)host_nbytes;
    return charge(h, "cusolverDnXgeqrf", 2 * m * n, at, info, 1);
}

PH_EXPORT int cusolverDnXsyevd_bufferSize(solver *h, parameters *how, int job, int uplo, int64_t n, int at,
                                          const void *a, int64_t lda, int wt, const void *w, int compute,
                                          size_t *device, size_t *host) {
    (void)h, (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute;
    return sizes(device, host, 1 + 6 * n + 2 * n * n, at);
}

PH_EXPORT int cusolverDnXsyevd(solver *h, parameters *how, int job, int uplo, int64_t n, int at, void *a, int64_t lda,
                               int wt, void *w, int compute, void *device, size_t device_nbytes, void *host,
                               size_t host_nbytes, int *info) {
    (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute, (void)device, (void)device_nbytes;
    (void)host, (void)host_nbytes;
    return charge(h, "cusolverDnXsyevd", 4 * n * n, at, info, 1);
}

PH_EXPORT int cusolverDnXsyevBatched_bufferSize(solver *h, parameters *how, int job, int uplo, int64_t n, int at,
                                                const void *a, int64_t lda, int wt, const void *w, int compute,
                                                size_t *device, size_t *host, int64_t batch) {
    (void)h, (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute;
    return sizes(device, host, batch * (1 + 6 * n + 2 * n * n), at);
}

PH_EXPORT int cusolverDnXsyevBatched(solver *h, parameters *how, int job, int uplo, int64_t n, int at, void *a,
                                     int64_t lda, int wt, void *w, int compute, void *device, size_t device_nbytes,
                                     void *host, size_t host_nbytes, int *info, int64_t batch) {
    (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute, (void)device, (void)device_nbytes;
    (void)host, (void)host_nbytes;
    return charge(h, "cusolverDnXsyevBatched", 4 * batch * n * n, at, info, batch);
}
