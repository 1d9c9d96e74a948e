/* cuBLAS: matrix products. */
#include "cublas/cublas.h"
#include "graphs/capture.h"

/* Returns how f32 products are computed: by the handle's math mode, if the call leaves it open. */
static uint32_t effective(const cublas_handle *handle, int a, uint32_t compute) {
    return compute == COMPUTE_32F && a == CUDA_DTYPE_F32 && (handle->math_mode & 0xf) == CUBLAS_TF32_MATH
               ? COMPUTE_32F_FAST_TF32
               : compute;
}

static int launch(cublas_handle *handle, ph_field_gemm_call call, int transa, int transb, int64_t m, int64_t n,
                  int64_t k, int64_t batch, int a, int b, int c, uint32_t compute) {
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    if (transa < 0 || transa > 2 || transb < 0 || transb > 2) return CUBLAS_INVALID_VALUE;
    gemm problem = {.m = m,
                    .n = n,
                    .k = k,
                    .batch = batch,
                    .call = call,
                    .epilogue = 1,
                    .compute = effective(handle, a, compute),
                    .transa = (uint8_t)transa,
                    .transb = (uint8_t)transb,
                    .a = (uint8_t)a,
                    .b = (uint8_t)b,
                    .c = (uint8_t)c};
    return ph_gemm_launch(handle->stream, &problem);
}

static uint32_t natural(int dtype) {
    return dtype == CUDA_DTYPE_F64 || dtype == CUDA_DTYPE_C128 ? COMPUTE_64F : COMPUTE_32F;
}

/* The result is not computed: its bytes become unknown. `ld` and strides are in elements. */
static void overwritten(const cublas_handle *handle, void *c, int64_t m, int64_t n, int64_t ld, int64_t batch,
                        int64_t stride, int dtype) {
    if (handle && m > 0 && n > 0 && batch > 0)
        ph_overwrite_on(ph_stream_of(handle->stream), c,
                        ph_cuda_dtype_nbytes(dtype, (uint64_t)((batch - 1) * stride + (n - 1) * ld + m)));
}

#define HEAD cublas_handle *handle, int transa, int transb, int m, int n, int k, const void *alpha
#define UNUSED_OPERANDS (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta

PH_EXPORT int cublasGemmEx(HEAD, const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta,
                           void *c, int ct, int ldc, int compute, int algo) {
    UNUSED_OPERANDS, (void)algo;
    overwritten(handle, c, m, n, ldc, 1, 0, ct);
    return launch(handle, PH_GEMM_EX, transa, transb, m, n, k, 1, at, bt, ct, (uint32_t)compute);
}

PH_EXPORT int cublasSgemmEx(HEAD, const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta,
                            void *c, int ct, int ldc) {
    UNUSED_OPERANDS;
    overwritten(handle, c, m, n, ldc, 1, 0, ct);
    return launch(handle, PH_SGEMM_EX, transa, transb, m, n, k, 1, at, bt, ct, COMPUTE_32F);
}

PH_EXPORT int cublasGemmBatchedEx(HEAD, const void *const a[], int at, int lda, const void *const b[], int bt, int ldb,
                                  const void *beta, void *const c[], int ct, int ldc, int batch, int compute,
                                  int algo) {
    UNUSED_OPERANDS, (void)c, (void)ldc, (void)algo;
    return launch(handle, PH_GEMM_BATCHED_EX, transa, transb, m, n, k, batch, at, bt, ct, (uint32_t)compute);
}

PH_EXPORT int cublasGemmStridedBatchedEx(HEAD, const void *a, int at, int lda, long long stride_a, const void *b,
                                         int bt, int ldb, long long stride_b, const void *beta, void *c, int ct,
                                         int ldc, long long stride_c, int batch, int compute, int algo) {
    UNUSED_OPERANDS, (void)stride_a, (void)stride_b, (void)algo;
    overwritten(handle, c, m, n, ldc, batch, stride_c, ct);
    return launch(handle, PH_GEMM_STRIDED_BATCHED_EX, transa, transb, m, n, k, batch, at, bt, ct, (uint32_t)compute);
}

#define TYPED(T, dtype)                                                                                                \
    PH_EXPORT int cublas##T##gemm_v2(HEAD, const void *a, int lda, const void *b, int ldb, const void *beta, void *c,  \
                                     int ldc) {                                                                        \
        UNUSED_OPERANDS;                                                                                               \
        overwritten(handle, c, m, n, ldc, 1, 0, dtype);                                                                \
        return launch(handle, PH_##T##GEMM, transa, transb, m, n, k, 1, dtype, dtype, dtype, natural(dtype));          \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##gemmBatched(HEAD, const void *const a[], int lda, const void *const b[], int ldb,         \
                                         const void *beta, void *const c[], int ldc, int batch) {                      \
        UNUSED_OPERANDS, (void)c, (void)ldc;                                                                           \
        return launch(handle, PH_##T##GEMM_BATCHED, transa, transb, m, n, k, batch, dtype, dtype, dtype,               \
                      natural(dtype));                                                                                 \
    }                                                                                                                  \
    PH_EXPORT int cublas##T##gemmStridedBatched(HEAD, const void *a, int lda, long long stride_a, const void *b,       \
                                                int ldb, long long stride_b, const void *beta, void *c, int ldc,       \
                                                long long stride_c, int batch) {                                       \
        UNUSED_OPERANDS, (void)stride_a, (void)stride_b;                                                               \
        overwritten(handle, c, m, n, ldc, batch, stride_c, dtype);                                                     \
        return launch(handle, PH_##T##GEMM_STRIDED, transa, transb, m, n, k, batch, dtype, dtype, dtype,               \
                      natural(dtype));                                                                                 \
    }
TYPED(S, CUDA_DTYPE_F32)
TYPED(D, CUDA_DTYPE_F64)
TYPED(C, CUDA_DTYPE_C64)
TYPED(Z, CUDA_DTYPE_C128)
