/*
 * cublas/: cuBLAS and cuBLASLt.
 *
 *   handle.c  the handle and its settings
 *   gemm.c    matrix products
 *   other.c   what else PyTorch calls
 *   lt.c      cuBLASLt
 *
 * Comes in: calls. Goes out: matrix products and library calls to costs/. Operands are never read.
 *
 * This header: the handle. PyTorch passes a cuBLAS handle where cuBLASLt expects its own, so one type serves both.
 */
#ifndef PHANTORA_CUBLAS_H
#define PHANTORA_CUBLAS_H

#include "kernels/library.h"

enum {
    CUBLAS_OK = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_ALLOC_FAILED = 3,
    CUBLAS_INVALID_VALUE = 7,
    CUBLAS_NOT_SUPPORTED = 15
};
enum { CUBLAS_POINTER_DEVICE = 1 }; /* CUBLAS_POINTER_HOST is 0 */
enum { CUBLAS_TF32_MATH = 3 };

typedef struct cublas_handle {
    void *stream, *workspace;
    size_t workspace_nbytes;
    int pointer_mode, math_mode, atomics_mode, sm_target, device;
    uint64_t taken; /* bytes of the GPU */
} cublas_handle;

#endif
