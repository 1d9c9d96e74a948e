/*
 * cuBLAS: matrix-vector products, dot products, triangular solves and batched factorisations, as far as PyTorch calls
 * them. Their time is that of the bytes that they move. Floats are not computed, but status words and pivots, which
 * programs read, are written.
 */
#include "threads/host.h"
#include "op_stream/warn.h"
#include "cublas/cublas.h"
#include "data/data.h"
#include "streams/wait.h"

#include <stdlib.h>

static int charge(cublas_handle *handle, const char *name, int64_t elements, int dtype) {
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    uint64_t nbytes = elements > 0 ? ph_cuda_dtype_nbytes(dtype, (uint64_t)elements) : 0;
    return ph_library_launch(handle->stream, name, nbytes) ? CUBLAS_OK : CUBLAS_INVALID_VALUE;
}

/* If the result is in host memory the host waits for it, and the program reads a number that was not computed. */
static int reduce(cublas_handle *handle, const char *name, int64_t n, int dtype, void *result, size_t result_nbytes) {
    int status = charge(handle, name, 2 * n, dtype);
    if (status != CUBLAS_OK) return status;
    if (!result) return CUBLAS_INVALID_VALUE;
    if (handle->pointer_mode == CUBLAS_POINTER_DEVICE) {
        ph_data_overwrite(result, result_nbytes);
        return CUBLAS_OK;
    }
    ph_warn_once(name, "%s returned 0 to the host: floating-point kernels are not executed", name);
    for (size_t i = 0; i < result_nbytes; i++) ((unsigned char *)result)[i] = 0;
    ph_host_call(PH_CALL_SYNC);
    return ph_stream_synchronize(ph_stream_of(handle->stream)) == 0 ? CUBLAS_OK : CUBLAS_INVALID_VALUE;
}

PH_EXPORT int cublasDotEx(cublas_handle *handle, int n, const void *x, int xt, int incx, const void *y, int yt,
                          int incy, void *result, int rt, int et) {
    (void)x, (void)incx, (void)y, (void)yt, (void)incy, (void)et;
    return reduce(handle, "cublasDotEx", n, xt, result, ph_cuda_dtype_nbytes(rt, 1));
}

#define DOT(Name, dtype)                                                                                               \
    PH_EXPORT int cublas##Name##_v2(cublas_handle *handle, int n, const void *x, int incx, const void *y, int incy,    \
                                    void *result) {                                                                    \
        (void)x, (void)incx, (void)y, (void)incy;                                                                      \
        return reduce(handle, "cublas" #Name, n, dtype, result, ph_cuda_dtype_nbytes(dtype, 1));                       \
    }
DOT(Sdot, CUDA_DTYPE_F32)
DOT(Ddot, CUDA_DTYPE_F64)
DOT(Cdotu, CUDA_DTYPE_C64)
DOT(Cdotc, CUDA_DTYPE_C64)
DOT(Zdotu, CUDA_DTYPE_C128)
DOT(Zdotc, CUDA_DTYPE_C128)

#define TYPED(T, dtype)                                                                                                \
    PH_EXPORT int cublas##T##gemv_v2(cublas_handle *handle, int trans, int m, int n, const void *alpha, const void *a, \
                                     int lda, const void *x, int incx, const void *beta, void *y, int incy) {          \
        (void)trans, (void)alpha, (void)a, (void)lda, (void)x, (void)incx, (void)beta, (void)y, (void)incy;            \
        return charge(handle, "cublas" #T "gemv", (int64_t)m * n + m + n, dtype);                                      \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##trsm_v2(cublas_handle *handle, int side, int uplo, int trans, int diag, int m, int n,     \
                                     const void *alpha, const void *a, int lda, void *b, int ldb) {                    \
        (void)uplo, (void)trans, (void)diag, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb;                      \
        int64_t order = side == 0 ? m : n;                                                                             \
        return charge(handle, "cublas" #T "trsm", order * order / 2 + 2 * (int64_t)m * n, dtype);                      \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##trsmBatched(cublas_handle *handle, int side, int uplo, int trans, int diag, int m, int n, \
                                         const void *alpha, const void *const a[], int lda, void *const b[], int ldb,  \
                                         int batch) {                                                                  \
        (void)uplo, (void)trans, (void)diag, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb;                      \
        int64_t order = side == 0 ? m : n;                                                                             \
        return charge(handle, "cublas" #T "trsmBatched", batch * (order * order / 2 + 2 * (int64_t)m * n), dtype);     \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##getrfBatched(cublas_handle *handle, int n, void *const a[], int lda, int *pivots,         \
                                          int *info, int batch) {                                                      \
        (void)a, (void)lda;                                                                                            \
        ph_set_identity_pivots(pivots, n, batch);                                                                      \
        ph_assume_zeros(info, (size_t)(batch > 0 ? batch : 0) * sizeof(int));                                          \
        return charge(handle, "cublas" #T "getrfBatched", 2 * (int64_t)batch * n * n, dtype);                          \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##getrsBatched(cublas_handle *handle, int trans, int n, int nrhs, const void *const a[],    \
                                          int lda, const int *pivots, void *const b[], int ldb, int *info,             \
                                          int batch) {                                                                 \
        (void)trans, (void)a, (void)lda, (void)pivots, (void)b, (void)ldb;                                             \
        if (info) *info = 0;                                                                                           \
        return charge(handle, "cublas" #T "getrsBatched", (int64_t)batch * (n * (int64_t)n + 2 * (int64_t)n * nrhs),   \
                      dtype);                                                                                          \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##geqrfBatched(cublas_handle *handle, int m, int n, void *const a[], int lda,               \
                                          void *const tau[], int *info, int batch) {                                   \
        (void)a, (void)lda, (void)tau;                                                                                 \
        if (info) *info = 0;                                                                                           \
        return charge(handle, "cublas" #T "geqrfBatched", 2 * (int64_t)batch * m * n, dtype);                          \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##gelsBatched(cublas_handle *handle, int trans, int m, int n, int nrhs, void *const a[],    \
                                         int lda, void *const c[], int ldc, int *info, int *device_info, int batch) {  \
        (void)trans, (void)a, (void)lda, (void)c, (void)ldc;                                                           \
        if (info) *info = 0;                                                                                           \
        if (device_info) ph_assume_zeros(device_info, (size_t)(batch > 0 ? batch : 0) * sizeof(int));                  \
        return charge(handle, "cublas" #T "gelsBatched", 2 * (int64_t)batch * (m * (int64_t)n + m * (int64_t)nrhs),    \
                      dtype);                                                                                          \
    }
TYPED(S, CUDA_DTYPE_F32)
TYPED(D, CUDA_DTYPE_F64)
TYPED(C, CUDA_DTYPE_C64)
TYPED(Z, CUDA_DTYPE_C128)
