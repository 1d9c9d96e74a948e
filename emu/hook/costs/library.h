/*
 * What the cuBLAS, cuBLASLt, cuDNN and solver modules share: the launch of a matrix product, and of a library call that
 * is known by name and bytes alone.
 */
#ifndef PHANTORA_GEMM_H
#define PHANTORA_GEMM_H

#include "core/base.h"

/* cudaDataType_t numbers that appear in signatures */
enum {
    DTYPE_F32 = 0,
    DTYPE_F64 = 1,
    DTYPE_F16 = 2,
    DTYPE_I8 = 3,
    DTYPE_C64 = 4,
    DTYPE_C128 = 5,
    DTYPE_U8 = 8,
    DTYPE_I32 = 10,
    DTYPE_BF16 = 14,
    DTYPE_F8E4M3 = 28,
    DTYPE_F8E5M2 = 29
};
/* cublasComputeType_t */
enum {
    COMPUTE_16F = 64,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32I = 72,
    COMPUTE_32F_FAST_16F = 74,
    COMPUTE_32F_FAST_16BF = 75,
    COMPUTE_32F_FAST_TF32 = 77,
    COMPUTE_32F_EMULATED = 78,
    COMPUTE_64F_EMULATED = 79
};

typedef enum gemm_call {
    GEMM_EX,
    GEMM_BATCHED_EX,
    GEMM_STRIDED_BATCHED_EX,
    SGEMM_EX,
    SGEMM,
    DGEMM,
    CGEMM,
    ZGEMM,
    SGEMM_BATCHED,
    DGEMM_BATCHED,
    CGEMM_BATCHED,
    ZGEMM_BATCHED,
    SGEMM_STRIDED,
    DGEMM_STRIDED,
    CGEMM_STRIDED,
    ZGEMM_STRIDED,
    LT_MATMUL
} gemm_call;

/* Everything that decides how long it takes, without gaps: the bytes are the key. Column-major m, n, k as the call has
 * them. */
typedef struct gemm {
    int64_t m, n, k, batch;
    uint32_t call, epilogue; /* cublasLtEpilogue_t; 1 is the default */
    uint32_t compute;        /* cublasComputeType_t after the handle's math mode */
    uint8_t transa, transb;  /* cublasOperation_t: 0 n, 1 t, 2 c */
    uint8_t a, b, c;         /* cudaDataType_t */
    uint8_t pad[7];
} gemm;

/* Charges the launch to the stream (a handle as the program has it). cublasStatus_t. */
int ph_gemm_launch(void *stream, const gemm *problem);
/* A call known by its name; nbytes it reads and writes, 0 if unknown. False if the stream is unknown. */
bool ph_library_launch(void *stream, const char *name, uint64_t nbytes);

size_t ph_dtype_nbytes(int cuda_dtype);
const char *ph_dtype_name(int cuda_dtype);

#endif
