/*
 * cusparse/: products and solves with sparse matrices. Products of matrices of which two of four numbers are zero
 * (cuSPARSELt) are refused.
 *
 *   handle.c      handles, descriptors of matrices and vectors, names of errors
 *   generic.c     the generic API: products with dense matrices and vectors, sampled products, triangular solves
 *   sums.c        products and sums of sparse matrices, whose result has a number of entries that must be assumed
 *   legacy.c      block matrices, conversions and sorts
 *
 * Comes in: calls. Goes out: library calls by name and bytes to costs/. Nothing is computed: what a call writes is
 * unknown afterwards.
 */
#ifndef PHANTORA_CUSPARSE_H
#define PHANTORA_CUSPARSE_H

#include "core/base.h"
#include "kernels/library.h"

enum {
    SPARSE_OK = 0,
    SPARSE_NOT_INITIALIZED = 1,
    SPARSE_INVALID_VALUE = 3,
    SPARSE_INTERNAL_ERROR = 7,
    SPARSE_NOT_SUPPORTED = 10
};

typedef struct sparse_handle {
    void *stream;
} sparse_handle;

/* A sparse or dense matrix, or a vector (cols 1). Only what decides time and which bytes are written is kept. */
typedef struct sparse_matrix {
    int64_t rows, cols, nnz, ld, batch, batch_stride;
    int dtype;              /* cudaDataType_t of the values */
    int64_t offsets_nbytes; /* of all row offsets, or of all row indices */
    int64_t index_nbytes;   /* of one column index */
    void *values, *offsets, *columns;
    bool row_major;
} sparse_matrix;

/* Returns the bytes that one pass over a sparse matrix reads. */
int64_t sparse_matrix_nbytes(const sparse_matrix *it);
/* Returns the bytes that one pass over a dense matrix reads. */
int64_t dense_matrix_nbytes(const sparse_matrix *it);
/* A call that moves so many bytes. */
int sparse_charge(const sparse_handle *handle, const char *name, int64_t nbytes);
/* A call writes to the values of a dense matrix or vector, or of a sparse matrix. */
void sparse_overwrite_dense(const sparse_handle *handle, const sparse_matrix *it);
void sparse_overwrite_values(const sparse_handle *handle, const sparse_matrix *it);
/* A call of the size queries: no workspace is used, but programs allocate what they are told. */
int sparse_no_workspace(size_t *nbytes);

#endif
