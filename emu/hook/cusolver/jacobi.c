/* cuSOLVER: Jacobi's methods and batched singular values. */
#include "cusolver/cusolver.h"

#define JACOBI(T, dtype, syevj)                                                                                        \
    PH_EXPORT int cusolverDn##T##syevj##_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w,        \
                                                    int *out, parameters *how) {                                       \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)how;                                               \
        return solver_size(out, solver_syevj_elements(n));                                                             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work, int nwork,    \
                                       int *info, parameters *how) {                                                   \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork, (void)how;                               \
        return solver_charge(h, "cusolverDn" #T #syevj, 4 * (int64_t)n * n, dtype, info, 1);                           \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj##Batched_bufferSize(solver *h, int job, int uplo, int n, MATRIX, const void *w, \
                                                           int *out, parameters *how, int batch) {                     \
        (void)h, (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)how;                                               \
        return solver_size(out, (int64_t)batch * n * (n + SOLVER_BLOCK));                                              \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##syevj##Batched(solver *h, int job, int uplo, int n, MATRIX, void *w, void *work,      \
                                                int nwork, int *info, parameters *how, int batch) {                    \
        (void)job, (void)uplo, DROP_MATRIX, (void)w, (void)work, (void)nwork, (void)how;                               \
        return solver_charge(h, "cusolverDn" #T #syevj "Batched", 4 * (int64_t)batch * n * n, dtype, info, batch);     \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdjBatched_bufferSize(solver *h, int job, int m, int n, MATRIX, const void *s,     \
                                                          const void *u, int ldu, const void *v, int ldv, int *out,    \
                                                          parameters *how, int batch) {                                \
        (void)h, (void)job, (void)m, (void)n, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)how, \
            (void)batch;                                                                                               \
        return solver_size(out, SOLVER_GESVDJ_BATCHED_ELEMENTS);                                                       \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdjBatched(solver *h, int job, int m, int n, MATRIX, void *s, void *u, int ldu,    \
                                               void *v, int ldv, void *work, int nwork, int *info, parameters *how,    \
                                               int batch) {                                                            \
        (void)job, DROP_MATRIX, (void)s, (void)u, (void)ldu, (void)v, (void)ldv, (void)work, (void)nwork, (void)how;   \
        return solver_charge(h, "cusolverDn" #T "gesvdjBatched", 4 * (int64_t)batch * m * n, dtype, info, batch);      \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdaStridedBatched_bufferSize(                                                      \
        solver *h, int job, int rank, int m, int n, MATRIX, long long a_stride, const void *s, long long s_stride,     \
        const void *u, int ldu, long long u_stride, const void *v, int ldv, long long v_stride, int *out, int batch) { \
        (void)h, (void)job, (void)rank, DROP_MATRIX, (void)a_stride, (void)s, (void)s_stride, (void)u, (void)ldu;      \
        (void)u_stride, (void)v, (void)ldv, (void)v_stride;                                                            \
        return solver_size(out, (int64_t)batch * (2 * (int64_t)m * n + m + n));                                        \
    }                                                                                                                  \
    PH_EXPORT int cusolverDn##T##gesvdaStridedBatched(                                                                 \
        solver *h, int job, int rank, int m, int n, MATRIX, long long a_stride, void *s, long long s_stride, void *u,  \
        int ldu, long long u_stride, void *v, int ldv, long long v_stride, void *work, int nwork, int *info,           \
        double *residuals, int batch) {                                                                                \
        (void)job, (void)rank, DROP_MATRIX, (void)a_stride, (void)s, (void)s_stride, (void)u, (void)ldu;               \
        (void)u_stride, (void)v, (void)ldv, (void)v_stride, (void)work, (void)nwork;                                   \
        for (int i = 0; residuals && i < batch; i++) residuals[i] = 0; /* on the host */                               \
        return solver_charge(h, "cusolverDn" #T "gesvdaStridedBatched", 4 * (int64_t)batch * m * n, dtype, info,       \
                             batch);                                                                                   \
    }
JACOBI(S, CUDA_DTYPE_F32, syevj)
JACOBI(D, CUDA_DTYPE_F64, syevj)
JACOBI(C, CUDA_DTYPE_C64, heevj)
JACOBI(Z, CUDA_DTYPE_C128, heevj)
