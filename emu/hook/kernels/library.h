/*
 * What the folders of NVIDIA's math libraries share: the launch of a matrix product, and of a library call that is
 * known by its name and its bytes alone.
 */
#ifndef PHANTORA_LIBRARY_H
#define PHANTORA_LIBRARY_H

#include "core/base.h"
#include "costs/signature.h"

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

/* A matrix product: everything that decides how long it takes. There are no gaps in the struct, because its bytes are
 * hashed. m, n and k are column-major, as the call has them. */
typedef struct gemm {
    int64_t m, n, k, batch;
    uint32_t call;          /* PH_GEMM_EX ... */
    uint32_t epilogue;      /* cublasLtEpilogue_t; 1 is the default */
    uint32_t compute;       /* cublasComputeType_t after the handle's math mode */
    uint8_t transa, transb; /* cublasOperation_t: 0 n, 1 t, 2 c */
    uint8_t a, b, c;        /* cudaDataType_t */
    uint8_t pad[7];
} gemm;

/* Puts the product on the stream, which is a handle of the program. Returns a cublasStatus_t. */
int ph_gemm_launch(void *stream, const gemm *problem);
/* Puts a library call on the stream. nbytes: what it reads and writes, 0 if unknown. False if there is no such stream.
 */
bool ph_library_launch(void *stream, const char *name, uint64_t nbytes);
/* Status words of a call that is not executed are assumed to be 0: no error. */
void ph_assume_zeros(void *start, size_t nbytes);
/* Assumes that the pivots of `batch` factorisations are 1 ... n: no row is exchanged. Nothing if there are no pivots.
 */
void ph_set_identity_pivots(int *pivots, int64_t n, int64_t batch);

#endif
