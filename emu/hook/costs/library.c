/* Signatures of matrix products and of calls known by name: see gemm.h and docs/architecture.md. */
#include "costs/library.h"
#include "core/hash.h"
#include "core/host.h"
#include "costs/cost.h"
#include "nvtx/nvtx.h"
#include "streams/stream.h"

#include <stdio.h>
#include <string.h>

enum { STATUS_SUCCESS = 0, STATUS_INVALID_VALUE = 7 };

const char *ph_dtype_name(int dtype) {
    static const char *const names[] = {[0] = "f32",     [1] = "f64",     [2] = "f16",     [3] = "i8",     [4] = "c64",
                                        [5] = "c128",    [8] = "u8",      [10] = "i32",    [14] = "bf16",  [24] = "i64",
                                        [28] = "f8e4m3", [29] = "f8e5m2", [30] = "f8e8m0", [33] = "f4e2m1"};
    return dtype >= 0 && (size_t)dtype < sizeof names / sizeof *names && names[dtype] ? names[dtype] : "other";
}

size_t ph_dtype_nbytes(int dtype) {
    static const unsigned char nbytes[] = {[0] = 4,  [1] = 8,  [2] = 2,  [3] = 1,  [4] = 8,  [5] = 16,
                                           [6] = 4,  [8] = 1,  [10] = 4, [14] = 2, [15] = 4, [24] = 8,
                                           [28] = 1, [29] = 1, [30] = 1, [33] = 1};
    return dtype >= 0 && (size_t)dtype < sizeof nbytes && nbytes[dtype] ? nbytes[dtype] : 4;
}

static const char *call_name(uint32_t call) {
    static const char *const names[] = {"cublasGemmEx",
                                        "cublasGemmBatchedEx",
                                        "cublasGemmStridedBatchedEx",
                                        "cublasSgemmEx",
                                        "cublasSgemm",
                                        "cublasDgemm",
                                        "cublasCgemm",
                                        "cublasZgemm",
                                        "cublasSgemmBatched",
                                        "cublasDgemmBatched",
                                        "cublasCgemmBatched",
                                        "cublasZgemmBatched",
                                        "cublasSgemmStridedBatched",
                                        "cublasDgemmStridedBatched",
                                        "cublasCgemmStridedBatched",
                                        "cublasZgemmStridedBatched",
                                        "cublasLtMatmul"};
    return names[call];
}

/* Pedantic variants (the next number) compute in the same type. */
static const char *compute_name(uint32_t compute) {
    switch (compute & ~1u) {
    case COMPUTE_16F:
        return "f16";
    case COMPUTE_64F:
        return "f64";
    case COMPUTE_32I:
        return "i32";
    }
    switch (compute) {
    case COMPUTE_32F_FAST_16F:
        return "f16";
    case COMPUTE_32F_FAST_16BF:
        return "bf16";
    case COMPUTE_32F_FAST_TF32:
        return "tf32";
    case COMPUTE_64F_EMULATED:
        return "f64";
    default:
        return "f32";
    }
}

static const char *epilogue_name(uint32_t epilogue, char *text, size_t capacity) {
    static const struct {
        uint32_t bit;
        const char *name;
    } parts[] = {{2, "relu"}, {8, "drelu"},  {32, "gelu"},    {64, "dgelu"},  {128, "aux"},
                 {4, "bias"}, {16, "bgrad"}, {256, "bgrada"}, {512, "bgradb"}};
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && used + 10 < capacity; i++)
        if (epilogue & parts[i].bit)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? "_" : "", parts[i].name);
    return used ? text : "default";
}

typedef struct described {
    const gemm *problem;
    const ph_op *op;
} described;

static size_t describe_gemm(const void *what, char *text, size_t capacity) {
    const described *it = what;
    const gemm *p = it->problem;
    static const char letters[] = "ntc";
    char epilogue[64];
    int n = snprintf(text, capacity, "gemm;%s;%c;%c;%lld;%lld;%lld;%lld;%s;%s;%s;%s;%s;%s;%s", call_name(p->call),
                     letters[p->transa % 3], letters[p->transb % 3], (long long)p->m, (long long)p->n, (long long)p->k,
                     (long long)p->batch, ph_dtype_name(p->a), ph_dtype_name(p->b), ph_dtype_name(p->c),
                     compute_name(p->compute), epilogue_name(p->epilogue, epilogue, sizeof epilogue), it->op->name,
                     it->op->sizes);
    return n < 0 ? 0 : (size_t)n; /* as much as it needs, even if it does not fit */
}

int ph_gemm_launch(void *handle, const gemm *problem) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream || problem->m < 0 || problem->n < 0 || problem->k < 0 || problem->batch < 0)
        return STATUS_INVALID_VALUE;
    ph_host_call(PH_CALL_LIBRARY);
    if (problem->m == 0 || problem->n == 0 || problem->batch == 0) return STATUS_SUCCESS;
    described it = {problem, ph_current_op()};
    ph_launch(stream, ph_cost_of(ph_hash(it.op->key ^ 0x67656d6d, problem, sizeof *problem), describe_gemm, &it));
    return STATUS_SUCCESS;
}

typedef struct named {
    const char *name;
    uint64_t nbytes;
    const ph_op *op;
} named;

static size_t describe_named(const void *what, char *text, size_t capacity) {
    const named *it = what;
    int n = snprintf(text, capacity, "library;%s;%llu;%s;%s", it->name, (unsigned long long)it->nbytes, it->op->name,
                     it->op->sizes);
    return n < 0 ? 0 : (size_t)n; /* as much as it needs, even if it does not fit */
}

bool ph_library_launch(void *handle, const char *name, uint64_t nbytes) {
    ph_stream *stream = ph_stream_of(handle);
    if (!stream) return false;
    ph_host_call(PH_CALL_LIBRARY);
    named it = {name, nbytes, ph_current_op()};
    uint64_t key = ph_hash(it.op->key ^ nbytes, name, strlen(name));
    ph_launch(stream, ph_cost_of(key, describe_named, &it));
    return true;
}
