/* cuSOLVER: calls with a type in their name. */
#include "cusolver/cusolver.h"

#define TYPED(T, dtype, orgqr, ormqr, syevd)                                                                           \
    PH_EXPORT int cusolverDn##T##sytrf_bufferSize(solver *h, int n, MATRIX, int *out) {                                \
        (void)h, DROP_MATRIX;                                                                                          \
        return solver_size(out, (int64_t)n * SOLVER_BLOCK);                                                            \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##sytrf(solver *h, int uplo, int n, MATRIX, int *pivots, void *work, int nwork,         \
                                       int *info) {                                                                    \
        (void)uplo, DROP_MATRIX, (void)work, (void)nwork;                                                              \
        ph_set_identity_pivots(pivots, n, 1);                                                                          \
        return solver_charge(h, "cusolverDn" #T "sytrf", 2 * (int64_t)n * n, dtype, info, 1);                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrf_bufferSize(solver *h, int uplo, int n, MATRIX, int *out) {                      \
        (void)h, (void)uplo, DROP_MATRIX;                                                                              \
        return solver_size(out, (int64_t)n * SOLVER_BLOCK);                                                            \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrf(solver *h, int uplo, int n, MATRIX, void *work, int nwork, int *info) {         \
        (void)uplo, DROP_MATRIX, (void)work, (void)nwork;                                                              \
        return solver_charge(h, "cusolverDn" #T "potrf", 2 * (int64_t)n * n, dtype, info, 1);                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrs(solver *h, int uplo, int n, int nrhs, MATRIX, void *b, int ldb, int *info) {    \
        (void)uplo, DROP_MATRIX, (void)b, (void)ldb;                                                                   \
        solver_launches(solver_potrs_launches(n));                                                                     \
        return solver_charge(h, "cusolverDn" #T "potrs", (int64_t)n * n + 2 * (int64_t)n * nrhs, dtype, info, 1);      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrfBatched(solver *h, int uplo, int n, void *a[], int lda, int *info, int batch) {  \
        (void)uplo, DROP_MATRIX;                                                                                       \
        return solver_charge(h, "cusolverDn" #T "potrfBatched", 2 * (int64_t)batch * n * n, dtype, info, batch);       \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##potrsBatched(solver *h, int uplo, int n, int nrhs, void *a[], int lda, void *b[],     \
                                              int ldb, int *info, int batch) {                                         \
        (void)uplo, DROP_MATRIX, (void)b, (void)ldb;                                                                   \
        int64_t elements = (int64_t)batch * ((int64_t)n * n + 2 * (int64_t)n * nrhs);                                  \
        return solver_charge(h, "cusolverDn" #T "potrsBatched", elements, dtype, info, 1);                             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrf_bufferSize(solver *h, int m, int n, MATRIX, int *out) {                         \
        (void)h, (void)n, DROP_MATRIX;                                                                                 \
        return solver_size(out, solver_getrf_elements(m, dtype));                                                      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrf(solver *h, int m, int n, MATRIX, void *work, int *pivots, int *info) {          \
        DROP_MATRIX, (void)work;                                                                                       \
        ph_set_identity_pivots(pivots, m < n ? m : n, 1);                                                              \
        solver_launches(solver_getrf_launches(m < n ? m : n));                                                         \
        return solver_charge(h, "cusolverDn" #T "getrf", 2 * (int64_t)m * n, dtype, info, 1);                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##getrs(solver *h, int trans, int n, int nrhs, MATRIX, const int *pivots, void *b,      \
                                       int ldb, int *info) {                                                           \
        (void)trans, DROP_MATRIX, (void)pivots, (void)b, (void)ldb;                                                    \
        solver_launches(solver_getrs_launches(n));                                                                     \
        return solver_charge(h, "cusolverDn" #T "getrs", (int64_t)n * n + 2 * (int64_t)n * nrhs, dtype, info, 1);      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##geqrf_bufferSize(solver *h, int m, int n, MATRIX, int *out) {                         \
        (void)h, (void)m, DROP_MATRIX;                                                                                 \
        return solver_size(out, solver_geqrf_elements(n, dtype));                                                      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##geqrf(solver *h, int m, int n, MATRIX, void *tau, void *work, int nwork, int *info) { \
        DROP_MATRIX, (void)tau, (void)work, (void)nwork;                                                               \
        solver_launches(solver_geqrf_launches(m < n ? m : n));                                                         \
        return solver_charge(h, "cusolverDn" #T "geqrf", 2 * (int64_t)m * n, dtype, info, 1);                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##orgqr##_bufferSize(solver *h, int m, int n, int k, MATRIX, const void *tau,           \
                                                    int *out) {                                                        \
        (void)h, (void)k, DROP_MATRIX, (void)tau;                                                                      \
        return solver_size(out, solver_orgqr_elements(m, n));                                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##orgqr(solver *h, int m, int n, int k, MATRIX, const void *tau, void *work, int nwork, \
                                       int *info) {                                                                    \
        (void)k, DROP_MATRIX, (void)tau, (void)work, (void)nwork;                                                      \
        solver_launches(solver_orgqr_launches(n));                                                                     \
        return solver_charge(h, "cusolverDn" #T #orgqr, 2 * (int64_t)m * n, dtype, info, 1);                           \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##ormqr##_bufferSize(solver *h, int side, int trans, int m, int n, int k, MATRIX,       \
                                                    const void *tau, const void *c, int ldc, int *out) {               \
        (void)h, (void)trans, DROP_MATRIX, (void)tau, (void)c, (void)ldc;                                              \
        return solver_size(out, solver_ormqr_elements(side == 0 ? m : n, k));                                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##ormqr(solver *h, int side, int trans, int m, int n, int k, MATRIX, const void *tau,   \
                                       void *c, int ldc, void *work, int nwork, int *info) {                           \
        (void)side, (void)trans, DROP_MATRIX, (void)tau, (void)c, (void)ldc, (void)work, (void)nwork;                  \
        solver_launches(solver_orgqr_launches(k));                                                                     \
        return solver_charge(h, "cusolverDn" #T #ormqr, 2 * (int64_t)m * n + (int64_t)m * k, dtype, info, 1);          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevd##_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w,        \
                                                    int *out) {                                                        \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w;                                                          \
        return solver_size(out, solver_syevd_elements(n, dtype));                                                      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevd(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work, int nwork,    \
                                       int *info) {                                                                    \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork;                                          \
        return solver_charge(h, "cusolverDn" #T #syevd, 4 * (int64_t)n * n, dtype, info, 1);                           \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvd_bufferSize(solver *h, int m, int n, int *out) {                                 \
        (void)h;                                                                                                       \
        return solver_size(out, ((int64_t)m + n) * SOLVER_BLOCK);                                                      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvd(solver *h, signed char jobu, signed char jobvt, int m, int n, MATRIX, void *s,  \
                                       void *u, int ldu, void *vt, int ldvt, void *work, int nwork, void *rwork,       \
                                       int *info) {                                                                    \
        (void)jobu, (void)jobvt, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)vt, (void)ldvt, (void)work;           \
        (void)nwork, (void)rwork;                                                                                      \
        return solver_charge(h, "cusolverDn" #T "gesvd", 4 * (int64_t)m * n, dtype, info, 1);                          \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdj_bufferSize(solver *h, int job, int economic, int m, int n, MATRIX,             \
                                                   const void *s, const void *u, int ldu, const void *v, int ldv,      \
                                                   int *out, parameters *how) {                                        \
        (void)h, (void)job, (void)economic, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)how;   \
        return solver_size(out, solver_gesvdj_elements(m, n));                                                         \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdj(solver *h, int job, int economic, int m, int n, MATRIX, void *s, void *u,      \
                                        int ldu, void *v, int ldv, void *work, int nwork, int *info,                   \
                                        parameters *how) {                                                             \
        (void)job, (void)economic, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)work;           \
        (void)nwork, (void)how;                                                                                        \
        return solver_charge(h, "cusolverDn" #T "gesvdj", 4 * (int64_t)m * n, dtype, info, 1);                         \
    }
TYPED(S, CUDA_DTYPE_F32, orgqr, ormqr, syevd)
TYPED(D, CUDA_DTYPE_F64, orgqr, ormqr, syevd)
TYPED(C, CUDA_DTYPE_C64, ungqr, unmqr, heevd)
TYPED(Z, CUDA_DTYPE_C128, ungqr, unmqr, heevd)
