/* cuSOLVER: calls that are told their types. */
#include "cusolver/cusolver.h"

PH_EXPORT int cusolverDnXpotrf_bufferSize(solver *h, parameters *how, int uplo, int64_t n, int at, const void *a,
                                          int64_t lda, int compute, size_t *device, size_t *host) {
    (void)h, (void)how, (void)uplo, DROP_MATRIX, (void)compute, (void)at;
    return solver_sizes(device, host, solver_potrf_nbytes(n) / 4, CUDA_DTYPE_F32);
}

PH_EXPORT int cusolverDnXpotrf(solver *h, parameters *how, int uplo, int64_t n, int at, void *a, int64_t lda,
                               int compute, void *device, size_t device_nbytes, void *host, size_t host_nbytes,
                               int *info) {
    (void)how, (void)uplo, DROP_MATRIX, (void)compute, (void)device, (void)device_nbytes, (void)host, (void)host_nbytes;
    return solver_charge(h, "cusolverDnXpotrf", 2 * n * n, at, info, 1);
}

PH_EXPORT int cusolverDnXpotrs(solver *h, parameters *how, int uplo, int64_t n, int64_t nrhs, int at, const void *a,
                               int64_t lda, int bt, void *b, int64_t ldb, int *info) {
    (void)how, (void)uplo, DROP_MATRIX, (void)bt, (void)b, (void)ldb;
    solver_launches(solver_potrs_launches(n));
    return solver_charge(h, "cusolverDnXpotrs", n * n + 2 * n * nrhs, at, info, 1);
}

PH_EXPORT int cusolverDnXgeqrf_bufferSize(solver *h, parameters *how, int64_t m, int64_t n, int at, const void *a,
                                          int64_t lda, int tau_type, const void *tau, int compute, size_t *device,
                                          size_t *host) {
    (void)h, (void)how, (void)m, DROP_MATRIX, (void)tau_type, (void)tau, (void)compute;
    return solver_sizes(device, host, solver_geqrf_elements(n, at), at);
}

PH_EXPORT int cusolverDnXgeqrf(solver *h, parameters *how, int64_t m, int64_t n, int at, void *a, int64_t lda,
                               int tau_type, void *tau, int compute, void *device, size_t device_nbytes, void *host,
                               size_t host_nbytes, int *info) {
    (void)how, DROP_MATRIX, (void)tau_type, (void)tau, (void)compute, (void)device, (void)device_nbytes, (void)host;
    (void)host_nbytes;
    solver_launches(solver_geqrf_launches(m < n ? m : n));
    return solver_charge(h, "cusolverDnXgeqrf", 2 * m * n, at, info, 1);
}

PH_EXPORT int cusolverDnXsyevd_bufferSize(solver *h, parameters *how, int job, int uplo, int64_t n, int at,
                                          const void *a, int64_t lda, int wt, const void *w, int compute,
                                          size_t *device, size_t *host) {
    (void)h, (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute;
    return solver_sizes(device, host, solver_syevd_elements(n, at), at);
}

PH_EXPORT int cusolverDnXsyevd(solver *h, parameters *how, int job, int uplo, int64_t n, int at, void *a, int64_t lda,
                               int wt, void *w, int compute, void *device, size_t device_nbytes, void *host,
                               size_t host_nbytes, int *info) {
    (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute, (void)device, (void)device_nbytes;
    (void)host, (void)host_nbytes;
    return solver_charge(h, "cusolverDnXsyevd", 4 * n * n, at, info, 1);
}

PH_EXPORT int cusolverDnXsyevBatched_bufferSize(solver *h, parameters *how, int job, int uplo, int64_t n, int at,
                                                const void *a, int64_t lda, int wt, const void *w, int compute,
                                                size_t *device, size_t *host, int64_t batch) {
    (void)h, (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute;
    return solver_sizes(device, host, solver_syev_batched_elements(n, batch), at);
}

PH_EXPORT int cusolverDnXsyevBatched(solver *h, parameters *how, int job, int uplo, int64_t n, int at, void *a,
                                     int64_t lda, int wt, void *w, int compute, void *device, size_t device_nbytes,
                                     void *host, size_t host_nbytes, int *info, int64_t batch) {
    (void)how, (void)job, (void)uplo, DROP_MATRIX, (void)wt, (void)w, (void)compute, (void)device, (void)device_nbytes;
    (void)host, (void)host_nbytes;
    return solver_charge(h, "cusolverDnXsyevBatched", 4 * batch * n * n, at, info, batch);
}

/* Eigenvalues of a matrix that is not symmetric: the reduction to Hessenberg form is done on the device, much of the
 * rest on the host. */
PH_EXPORT int cusolverDnXgeev_bufferSize(solver *h, parameters *how, int left, int right, int64_t n, int at,
                                         const void *a, int64_t lda, int wt, const void *w, int vlt, const void *vl,
                                         int64_t ldvl, int vrt, const void *vr, int64_t ldvr, int compute,
                                         size_t *device, size_t *host) {
    (void)h, (void)how, (void)left, (void)right, DROP_MATRIX, (void)wt, (void)w, (void)vlt, (void)vl, (void)ldvl;
    (void)vrt, (void)vr, (void)ldvr, (void)compute;
    return solver_sizes(device, host, solver_geev_elements(n), at);
}

PH_EXPORT int cusolverDnXgeev(solver *h, parameters *how, int left, int right, int64_t n, int at, void *a, int64_t lda,
                              int wt, void *w, int vlt, void *vl, int64_t ldvl, int vrt, void *vr, int64_t ldvr,
                              int compute, void *device, size_t device_nbytes, void *host, size_t host_nbytes,
                              int *info) {
    (void)how, (void)left, (void)right, DROP_MATRIX, (void)wt, (void)w, (void)vlt, (void)vl, (void)ldvl, (void)vrt;
    (void)vr, (void)ldvr, (void)compute, (void)device, (void)device_nbytes, (void)host, (void)host_nbytes;
    return solver_charge(h, "cusolverDnXgeev", 4 * n * n, at, info, 1);
}

PH_EXPORT int cusolverDnXsytrs_bufferSize(solver *h, int uplo, int64_t n, int64_t nrhs, int at, const void *a,
                                          int64_t lda, const int64_t *pivots, int bt, const void *b, int64_t ldb,
                                          size_t *device, size_t *host) {
    (void)h, (void)uplo, (void)nrhs, DROP_MATRIX, (void)pivots, (void)bt, (void)b, (void)ldb;
    return solver_sizes(device, host, n * SOLVER_BLOCK, at);
}

PH_EXPORT int cusolverDnXsytrs(solver *h, int uplo, int64_t n, int64_t nrhs, int at, const void *a, int64_t lda,
                               const int64_t *pivots, int bt, void *b, int64_t ldb, void *device, size_t device_nbytes,
                               void *host, size_t host_nbytes, int *info) {
    (void)uplo, DROP_MATRIX, (void)pivots, (void)bt, (void)b, (void)ldb, (void)device, (void)device_nbytes, (void)host;
    (void)host_nbytes;
    return solver_charge(h, "cusolverDnXsytrs", n * n + 2 * n * nrhs, at, info, 1);
}
