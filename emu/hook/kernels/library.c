/* Signatures of matrix products and of calls known by name: see library.h and emu/contract/signature.def. */
#include "kernels/library.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "core/interned.h"
#include "core/lock.h"
#include "threads/host.h"
#include "costs/cost.h"
#include "data/data.h"
#include "nvtx/nvtx.h"
#include "streams/launch.h"

#include <stdlib.h>
#include <string.h>

enum { STATUS_SUCCESS = 0, STATUS_INVALID_VALUE = 7 };

/* Pedantic variants (the next number) compute in the same type. */
static ph_dtype compute_dtype(uint32_t compute) {
    switch (compute & ~1u) {
    case COMPUTE_16F:
        return PH_DTYPE_F16;
    case COMPUTE_64F:
        return PH_DTYPE_F64;
    case COMPUTE_32I:
        return PH_DTYPE_I32;
    case COMPUTE_32F:
        return PH_DTYPE_F32;
    }
    switch (compute) {
    case COMPUTE_32F_FAST_16F:
        return PH_DTYPE_F16;
    case COMPUTE_32F_FAST_16BF:
        return PH_DTYPE_BF16;
    case COMPUTE_32F_FAST_TF32:
        return PH_DTYPE_TF32;
    case COMPUTE_32F_EMULATED:
        return PH_DTYPE_F32;
    case COMPUTE_64F_EMULATED:
        return PH_DTYPE_F64;
    }
    return PH_DTYPE_OTHER;
}

typedef struct described {
    const gemm *problem;
    const ph_op *op;
} described;

static size_t describe_gemm(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const gemm *p = it->problem;
    ph_signature_gemm signature = {.call = p->call,
                                   .transa = p->transa,
                                   .transb = p->transb,
                                   .m = (uint64_t)p->m,
                                   .n = (uint64_t)p->n,
                                   .k = (uint64_t)p->k,
                                   .batch = (uint64_t)p->batch,
                                   .a = ph_dtype_of_cuda(p->a),
                                   .b = ph_dtype_of_cuda(p->b),
                                   .c = ph_dtype_of_cuda(p->c),
                                   .compute = compute_dtype(p->compute),
                                   .epilogue = p->epilogue,
                                   .op = it->op->name,
                                   .sizes = it->op->sizes};
    return ph_format_gemm(&signature, text, capacity);
}

/* Products for which cuBLAS has chosen a kernel in this process. It keeps its choices for those that tensor cores
 * compute; the others' are found as fast each time. */
static ph_number_set chosen;

static void choose_kernel(const gemm *problem) {
    ph_dtype dtype = compute_dtype(problem->compute);
    bool wide = ph_dtype_of_cuda(problem->a) == PH_DTYPE_F32 || ph_dtype_of_cuda(problem->a) == PH_DTYPE_F64;
    if (wide && (dtype == PH_DTYPE_F32 || dtype == PH_DTYPE_F64)) return;
    uint64_t key = ph_hash(0, problem, sizeof *problem);
    if (LIKELY(ph_number_set_has(&chosen, key))) return;
    ph_lock(PH_LOCK_PRODUCTS);
    bool is_new = ph_number_set_add(&chosen, key);
    ph_unlock(PH_LOCK_PRODUCTS);
    if (is_new) ph_host_work(PH_WORK_NEW_PRODUCT, 1);
}

int ph_gemm_launch(void *handle, const gemm *problem) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream || problem->m < 0 || problem->n < 0 || problem->k < 0 || problem->batch < 0)
        return STATUS_INVALID_VALUE;
    ph_host_call(PH_CALL_LIBRARY);
    if (problem->m == 0 || problem->n == 0 || problem->batch == 0) return STATUS_SUCCESS;
    choose_kernel(problem);
    described it = {problem, ph_current_op()};
    ph_launch_work(stream, ph_hash(it.op->key ^ 0x67656d6d, problem, sizeof *problem), describe_gemm, &it);
    return STATUS_SUCCESS;
}

typedef struct named {
    const char *name;
    uint64_t nbytes;
    const ph_op *op;
} named;

static size_t describe_named(const void *what, char *text, size_t capacity) {
    const named *it = what;
    ph_signature_library signature = {
        .call = it->name, .nbytes = it->nbytes, .op = it->op->name, .sizes = it->op->sizes};
    return ph_format_library(&signature, text, capacity);
}

bool ph_library_launch(void *handle, const char *name, uint64_t nbytes) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream) return false;
    ph_host_call(PH_CALL_LIBRARY);
    named it = {name, nbytes, ph_current_op()};
    ph_launch_work(stream, ph_hash(it.op->key ^ nbytes, name, strlen(name)), describe_named, &it);
    return true;
}

void ph_assume_zeros(void *start, size_t nbytes) {
    ph_data_set(start, 0, nbytes);
    if (!ph_data_pending(start, nbytes)) ph_data_mark_assumed(start, nbytes);
}

void ph_set_identity_pivots(int *pivots, int64_t n, int64_t batch) {
    if (!pivots || n <= 0 || batch <= 0) return;
    size_t count = (size_t)(n * batch);
    int *values = ph_allocate(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (int)(i % (size_t)n) + 1;
    ph_data_copy(pivots, values, count * sizeof *values);
    if (!ph_data_pending(pivots, count * sizeof *values)) ph_data_mark_assumed(pivots, count * sizeof *values);
    free(values);
}
