/*
 * The cost signatures in C, made from signature.def. Of each kind, here gemm:
 *
 *   ph_signature_gemm    a struct with the kind's fields in order
 *   ph_format_gemm       writes its text, without a zero at the end, and returns the text's length. What does not fit
 *                        is not written: format again with that capacity.
 *
 * Words are PH_ and their name (PH_CONV_DGRAD), dtypes PH_DTYPE_ and theirs (PH_DTYPE_BF16). CUDA_DTYPE_BF16 is the
 * number that cudaDataType_t has for it, CUDNN_DTYPE_BF16 that of cudnnDataType_t; -1: there is none.
 */
#ifndef PHANTORA_SIGNATURE_H
#define PHANTORA_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */
#define DTYPE(NAME, text, nbits, cuda, cudnn) PH_DTYPE_##NAME,
typedef enum ph_dtype {
#include "../../contract/signature.def"
} ph_dtype;

#define DTYPE(NAME, text, nbits, cuda, cudnn) CUDA_DTYPE_##NAME = cuda, CUDNN_DTYPE_##NAME = cudnn,
enum {
#include "../../contract/signature.def"
};

/* PH_DTYPE_OTHER for numbers that the definition does not have. */
ph_dtype ph_dtype_of_cuda(int number);
ph_dtype ph_dtype_of_cudnn(int number);
const char *ph_dtype_name(ph_dtype dtype);
/* Packed: two items of 4 bits in a byte. */
uint64_t ph_dtype_nbytes(ph_dtype dtype, uint64_t items);
static inline uint64_t ph_cuda_dtype_nbytes(int number, uint64_t items) {
    return ph_dtype_nbytes(ph_dtype_of_cuda(number), items);
}

/* ---- fields and kinds -------------------------------------------------------------------------------------------- */
typedef const char *ph_field_text, *ph_field_op, *ph_field_sizes; /* NULL: empty */
typedef uint64_t ph_field_u64;
typedef bool ph_field_bool;
typedef ph_dtype ph_field_dtype;
typedef struct ph_field_grid {
    uint32_t x, y, z;
} ph_field_grid;
typedef struct ph_field_dims {
    const int64_t *at;
    int64_t n;
} ph_field_dims;
typedef ph_field_dims ph_field_dims3, ph_field_dims4;

#define W(NAME, number, text) PH_##NAME = number,
#define WORDS(set, ...) typedef enum ph_field_##set{__VA_ARGS__} ph_field_##set;
#define OPEN_WORDS WORDS
#define FLAGS WORDS
#define FIELD(type, name) ph_field_##type name;
#define FAMILY FIELD
#define SIGNATURE(kind, about, ...)                                                                                    \
    typedef struct ph_signature_##kind {                                                                               \
        __VA_ARGS__                                                                                                    \
    } ph_signature_##kind;                                                                                             \
    size_t ph_format_##kind(const ph_signature_##kind *it, char *text, size_t capacity);
#include "../../contract/signature.def"

#endif
