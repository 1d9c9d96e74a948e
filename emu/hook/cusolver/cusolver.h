/*
 * cusolver/: factorisations, solves and eigenvalues of dense matrices, as far as optimizers and initialisers of
 * training jobs use them (Cholesky, LU, QR, symmetric eigenvalues, singular values). Others are refused (calls.def).
 *
 *   handle.c    handles and parameters, and the functions below
 *   dense.c     calls with a type in their name: cusolverDnSpotrf
 *   jacobi.c    Jacobi's methods, which PyTorch takes for small matrices, and batched singular values
 *   typeless.c  calls that are told their types: cusolverDnXpotrf
 *   sizes.c     workspaces
 *   launches.c  kernels of a call, which take the host's time
 *
 * Comes in: calls. Goes out: library calls by name and bytes to costs/. Values are not computed, but programs read
 * status words and pivots: status words are set to "no error", pivots to "no row exchanged".
 */
#ifndef PHANTORA_CUSOLVER_H
#define PHANTORA_CUSOLVER_H

#include "core/base.h"
#include "kernels/library.h"

enum { SOLVER_OK = 0, SOLVER_NOT_INITIALIZED = 1, SOLVER_INVALID_VALUE = 3 };
enum { SOLVER_BLOCK = 64 }; /* columns that a blocked algorithm works on at once */

typedef struct solver {
    void *stream;
} solver;

typedef struct parameters {
    int unused;
} parameters;

/* The answers of ..._bufferSize calls: a number of elements; of bytes on the device and on the host. */
int solver_size(int *out, int64_t elements);
int solver_sizes(size_t *device, size_t *host, int64_t elements, int dtype);
/* The sizes of workspaces, in elements or bytes as the names say. */
enum { SOLVER_GESVDJ_BATCHED_ELEMENTS = 992 }; /* of matrices up to 32 x 32, however many */
int64_t solver_potrf_nbytes(int64_t n);
int64_t solver_getrf_elements(int64_t m, int dtype);
int64_t solver_geqrf_elements(int64_t n, int dtype);
int64_t solver_orgqr_elements(int64_t m, int64_t n);
int64_t solver_ormqr_elements(int64_t m, int64_t k);
int64_t solver_syevd_elements(int64_t n, int dtype);
int64_t solver_syev_batched_elements(int64_t n, int64_t batch);
int64_t solver_syevj_elements(int64_t n);
int64_t solver_gesvdj_elements(int64_t m, int64_t n);
int64_t solver_geev_elements(int64_t n);
/* How many kernels a call launches, by the rows or columns of its matrix. */
int64_t solver_geqrf_launches(int64_t n);
int64_t solver_orgqr_launches(int64_t n);
int64_t solver_getrf_launches(int64_t n);
int64_t solver_getrs_launches(int64_t n);
int64_t solver_potrs_launches(int64_t n);
/* The host's time for these launches, as far as a library's call does not contain it. */
void solver_launches(int64_t launches);
/* A call that moves that many elements; sets its ninfo status words to 0. */
int solver_charge(solver *handle, const char *name, int64_t elements, int dtype, int *info, int64_t ninfo);

#define MATRIX const void *a, int lda
#define DROP_MATRIX (void)a, (void)lda

#endif
