/* NCCL: memory, registration, reduction operators, versions, texts of errors. */
#include "device/versions.h"
#include "core/lock.h"
#include "threads/host.h"
#include "data/data.h"
#include "memory/memory.h"
#include "nccl/nccl.h"
#include "threads/thread.h"

#include <stdlib.h>
#include <string.h>

size_t nccl_dtype_nbytes(int dtype) {
    static const unsigned char nbytes[NCCL_DTYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return dtype >= 0 && dtype < NCCL_DTYPES ? nbytes[dtype] : 0;
}

bool nccl_dtype_is_float(int dtype) { return dtype >= 6; } /* ncclFloat16 and all types after it */

/* ---- reduction operators made by ncclRedOpCreatePreMulSum: numbers from NCCL_BUILTIN_REDOPS on ------------------- */
#define MADE 1024
static struct {
    bool used;
    double scale;
} made[MADE];

static double half_to_double(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023, value;
    if (exponent == 31)
        value = fraction ? 0.0 / 0.0 : 1e308 * 10;
    else
        value = exponent ? (1024 + fraction) * (exponent >= 25 ? (double)(1u << (exponent - 25))
                                                               : 1.0 / (double)(1u << (25 - exponent)))
                         : fraction / (double)(1u << 24);
    return bits >> 15 ? -value : value;
}

static double scalar_value(const void *scalar, int dtype) {
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        uint16_t bits;
        float f32;
        double f64;
    } it = {0};
    memcpy(&it, scalar, nccl_dtype_nbytes(dtype));
    switch (dtype) {
    case 0:
        return it.i8;
    case 1:
        return it.u8;
    case 2:
        return it.i32;
    case 3:
        return it.u32;
    case 4:
        return (double)it.i64;
    case 5:
        return (double)it.u64;
    case 6:
        return half_to_double(it.bits);
    case 7:
        return it.f32;
    case 8:
        return it.f64;
    case 9:
        it.u32 = (uint32_t)it.bits << 16;
        return it.f32;
    default:
        return 1; /* PyTorch makes no such operators of 8-bit floats */
    }
}

PH_EXPORT int ncclRedOpCreatePreMulSum(int *redop, void *scalar, int dtype, int residence, nccl_comm *comm) {
    ph_host_call(PH_CALL_NCCL);
    if (!redop || !scalar || !comm || !nccl_dtype_nbytes(dtype)) return NCCL_ERROR_ARGUMENT;
    /* The real library reads a scalar in device memory when the collective runs. Here it is only known if the program
     * copied it there. */
    if (residence == 0) ph_data_wait(scalar, nccl_dtype_nbytes(dtype));
    ph_lock(PH_LOCK_REDUCTIONS);
    int slot = 0;
    while (slot < MADE && made[slot].used) slot++;
    if (slot < MADE) {
        made[slot].used = true;
        made[slot].scale = scalar_value(scalar, dtype);
        *redop = NCCL_BUILTIN_REDOPS + slot;
    }
    ph_unlock(PH_LOCK_REDUCTIONS);
    return slot < MADE ? NCCL_OK : NCCL_ERROR_SYSTEM;
}

static bool valid_made(int redop) {
    return redop >= NCCL_BUILTIN_REDOPS && redop < NCCL_BUILTIN_REDOPS + MADE && made[redop - NCCL_BUILTIN_REDOPS].used;
}

PH_EXPORT int ncclRedOpDestroy(int redop, nccl_comm *comm) {
    if (!comm || !valid_made(redop)) return NCCL_ERROR_ARGUMENT;
    ph_lock(PH_LOCK_REDUCTIONS);
    made[redop - NCCL_BUILTIN_REDOPS].used = false;
    ph_unlock(PH_LOCK_REDUCTIONS);
    return NCCL_OK;
}

bool nccl_redop(int redop, uint32_t *wire, double *scale) {
    bool builtin = redop >= 0 && redop < NCCL_BUILTIN_REDOPS;
    if (!builtin && !valid_made(redop)) return false;
    *wire = builtin ? (uint32_t)redop : PH_REDOP_PREMULSUM;
    *scale = builtin ? 1 : made[redop - NCCL_BUILTIN_REDOPS].scale;
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
PH_EXPORT int ncclMemAlloc(void **p, size_t nbytes) {
    ph_host_call(PH_CALL_ALLOC);
    if (!p) return NCCL_ERROR_ARGUMENT;
    return ph_device_alloc(ph_self()->device, nbytes, p) == 0 ? NCCL_OK : NCCL_ERROR_CUDA;
}

PH_EXPORT int ncclMemFree(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return !p || ph_device_free(p) == 0 ? NCCL_OK : NCCL_ERROR_CUDA;
}

/* Registration makes the real library faster; the model does not know it. Handles must differ from NULL, because
 * programs deregister by them. */
PH_EXPORT int ncclCommRegister(const nccl_comm *comm, void *buffer, size_t nbytes, void **handle) {
    ph_host_call(PH_CALL_NCCL);
    if (!comm || !handle || !nbytes) return NCCL_ERROR_ARGUMENT;
    *handle = buffer;
    return NCCL_OK;
}

PH_EXPORT int ncclCommDeregister(const nccl_comm *comm, void *handle) {
    (void)handle;
    ph_host_call(PH_CALL_NCCL);
    return comm ? NCCL_OK : NCCL_ERROR_ARGUMENT;
}

typedef struct nccl_window {
    void *buffer;
    size_t nbytes;
} nccl_window;

PH_EXPORT int ncclCommWindowRegister(nccl_comm *comm, void *buffer, size_t nbytes, nccl_window **window, int flags) {
    (void)flags;
    ph_host_call(PH_CALL_NCCL);
    if (!comm || !window || !(*window = malloc(sizeof **window))) return NCCL_ERROR_ARGUMENT;
    **window = (nccl_window){buffer, nbytes};
    return NCCL_OK;
}

PH_EXPORT int ncclCommWindowDeregister(nccl_comm *comm, nccl_window *window) {
    ph_host_call(PH_CALL_NCCL);
    free(window);
    return comm ? NCCL_OK : NCCL_ERROR_ARGUMENT;
}

PH_EXPORT int ncclWinGetUserPtr(nccl_comm *comm, nccl_window *window, void **buffer) {
    if (!comm || !window || !buffer) return NCCL_ERROR_ARGUMENT;
    *buffer = window->buffer;
    return NCCL_OK;
}

/* ---- versions and texts ------------------------------------------------------------------------------------------ */
PH_EXPORT int ncclGetVersion(int *version) {
    if (!version) return NCCL_ERROR_ARGUMENT;
    *version = ph_real_version_out("libnccl.so", "ncclGetVersion", 22809);
    return NCCL_OK;
}

PH_EXPORT const char *ncclGetErrorString(int status) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return status >= 0 && (size_t)status < sizeof texts / sizeof *texts ? texts[status] : "unknown result code";
}

PH_EXPORT const char *ncclGetLastError(nccl_comm *comm) {
    (void)comm;
    return nccl_last_error();
}
