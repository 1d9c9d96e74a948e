/* cuSPARSE: handles, descriptors of matrices and vectors, names of errors. */
#include "threads/host.h"
#include "cusparse/cusparse.h"
#include "graphs/capture.h"
#include "streams/stream.h"

#include <stdlib.h>

enum { INDEX_16U = 1, INDEX_32I = 2, INDEX_64I = 3, ROW_MAJOR = 2 };

PH_EXPORT const char *cusparseGetErrorString(int status) {
    return status == SPARSE_OK              ? "success"
           : status == SPARSE_NOT_SUPPORTED ? "operation not supported by the emulation"
                                            : "cuSPARSE error";
}

PH_EXPORT const char *cusparseGetErrorName(int status) {
    return status == SPARSE_OK              ? "CUSPARSE_STATUS_SUCCESS"
           : status == SPARSE_NOT_SUPPORTED ? "CUSPARSE_STATUS_NOT_SUPPORTED"
                                            : "CUSPARSE_STATUS_INTERNAL_ERROR";
}

PH_EXPORT int cusparseCreate(sparse_handle **out) {
    ph_host_call(PH_CALL_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

PH_EXPORT int cusparseDestroy(sparse_handle *handle) {
    ph_host_call(PH_CALL_QUERY);
    free(handle);
    return SPARSE_OK;
}

PH_EXPORT int cusparseSetStream(sparse_handle *handle, void *stream) {
    ph_host_call(PH_CALL_QUERY);
    if (!handle) return SPARSE_NOT_INITIALIZED;
    handle->stream = stream;
    return SPARSE_OK;
}

PH_EXPORT int cusparseSetPointerMode(sparse_handle *handle, int mode) {
    (void)mode;
    ph_host_call(PH_CALL_QUERY);
    return handle ? SPARSE_OK : SPARSE_NOT_INITIALIZED;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int64_t index_nbytes(int type) { return type == INDEX_16U ? 2 : type == INDEX_64I ? 8 : 4; }

static int make(sparse_matrix **out, sparse_matrix it) {
    ph_host_call(PH_CALL_QUERY);
    if (!out || it.rows < 0 || it.cols < 0 || it.nnz < 0) return SPARSE_INVALID_VALUE;
    if (!(*out = malloc(sizeof **out))) return SPARSE_INTERNAL_ERROR;
    it.batch = 1;
    **out = it;
    return SPARSE_OK;
}

static int drop(sparse_matrix *it) {
    ph_host_call(PH_CALL_QUERY);
    free(it);
    return SPARSE_OK;
}

PH_EXPORT int cusparseCreateCsr(sparse_matrix **out, int64_t rows, int64_t cols, int64_t nnz, void *offsets,
                                void *columns, void *values, int offsets_type, int columns_type, int base, int dtype) {
    (void)base;
    return make(out, (sparse_matrix){.rows = rows,
                                     .cols = cols,
                                     .nnz = nnz,
                                     .dtype = dtype,
                                     .offsets_nbytes = (rows + 1) * index_nbytes(offsets_type),
                                     .index_nbytes = index_nbytes(columns_type),
                                     .offsets = offsets,
                                     .columns = columns,
                                     .values = values});
}

PH_EXPORT int cusparseCreateCoo(sparse_matrix **out, int64_t rows, int64_t cols, int64_t nnz, void *row_indices,
                                void *columns, void *values, int type, int base, int dtype) {
    (void)base;
    return make(out, (sparse_matrix){.rows = rows,
                                     .cols = cols,
                                     .nnz = nnz,
                                     .dtype = dtype,
                                     .offsets_nbytes = nnz * index_nbytes(type),
                                     .index_nbytes = index_nbytes(type),
                                     .offsets = row_indices,
                                     .columns = columns,
                                     .values = values});
}

PH_EXPORT int cusparseCreateDnMat(sparse_matrix **out, int64_t rows, int64_t cols, int64_t ld, void *values, int dtype,
                                  int order) {
    return make(
        out,
        (sparse_matrix){
            .rows = rows, .cols = cols, .ld = ld, .dtype = dtype, .values = values, .row_major = order == ROW_MAJOR});
}

PH_EXPORT int cusparseCreateDnVec(sparse_matrix **out, int64_t size, void *values, int dtype) {
    return make(out, (sparse_matrix){.rows = size, .cols = 1, .ld = size, .dtype = dtype, .values = values});
}

PH_EXPORT int cusparseDestroySpMat(sparse_matrix *it) { return drop(it); }
PH_EXPORT int cusparseDestroyDnMat(sparse_matrix *it) { return drop(it); }
PH_EXPORT int cusparseDestroyDnVec(sparse_matrix *it) { return drop(it); }

PH_EXPORT int cusparseCsrSetPointers(sparse_matrix *it, void *offsets, void *columns, void *values) {
    if (!it) return SPARSE_INVALID_VALUE;
    it->offsets = offsets;
    it->columns = columns;
    it->values = values;
    return SPARSE_OK;
}

PH_EXPORT int cusparseCsrSetStridedBatch(sparse_matrix *it, int batch, int64_t offsets_stride, int64_t values_stride) {
    (void)offsets_stride;
    if (!it || batch < 1) return SPARSE_INVALID_VALUE;
    it->batch = batch;
    it->batch_stride = values_stride;
    return SPARSE_OK;
}

PH_EXPORT int cusparseDnMatSetStridedBatch(sparse_matrix *it, int batch, int64_t stride) {
    if (!it || batch < 1) return SPARSE_INVALID_VALUE;
    it->batch = batch;
    it->batch_stride = stride;
    return SPARSE_OK;
}

PH_EXPORT int cusparseSpMatGetSize(const sparse_matrix *it, int64_t *rows, int64_t *cols, int64_t *nnz) {
    if (!it || !rows || !cols || !nnz) return SPARSE_INVALID_VALUE;
    *rows = it->rows;
    *cols = it->cols;
    *nnz = it->nnz;
    return SPARSE_OK;
}

/* Takes which triangle is used, and what its diagonal is, and ignores it, as nothing is computed. */
PH_EXPORT int cusparseSpMatSetAttribute(sparse_matrix *it, int attribute, const void *value, size_t nbytes) {
    (void)attribute, (void)value, (void)nbytes;
    return it ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

/* ---- for all calls ----------------------------------------------------------------------------------------------- */

static int64_t values_nbytes(const sparse_matrix *it, int64_t elements) {
    return (int64_t)ph_cuda_dtype_nbytes(it->dtype, (uint64_t)elements);
}

int64_t sparse_matrix_nbytes(const sparse_matrix *it) {
    return it->batch * (it->offsets_nbytes + it->nnz * it->index_nbytes + values_nbytes(it, it->nnz));
}

int64_t dense_matrix_nbytes(const sparse_matrix *it) { return it->batch * values_nbytes(it, it->rows * it->cols); }

int sparse_charge(const sparse_handle *handle, const char *name, int64_t nbytes) {
    if (!handle) return SPARSE_NOT_INITIALIZED;
    return ph_library_launch(handle->stream, name, (uint64_t)nbytes) ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

void sparse_overwrite_dense(const sparse_handle *handle, const sparse_matrix *it) {
    int64_t lines = it->row_major ? it->rows : it->cols, line = it->row_major ? it->cols : it->rows;
    if (!handle || lines < 1 || line < 1) return;
    int64_t elements = (it->batch - 1) * it->batch_stride + (lines - 1) * it->ld + line;
    ph_overwrite_on(ph_stream_of(handle->stream), it->values, (uint64_t)values_nbytes(it, elements));
}

void sparse_overwrite_values(const sparse_handle *handle, const sparse_matrix *it) {
    if (!handle || it->nnz < 1) return;
    int64_t elements = (it->batch - 1) * it->batch_stride + it->nnz;
    ph_overwrite_on(ph_stream_of(handle->stream), it->values, (uint64_t)values_nbytes(it, elements));
}

int sparse_no_workspace(size_t *nbytes) {
    ph_host_call(PH_CALL_QUERY);
    if (!nbytes) return SPARSE_INVALID_VALUE;
    *nbytes = 0;
    return SPARSE_OK;
}
