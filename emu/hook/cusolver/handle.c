/* cuSOLVER: handles and parameters. */
#include "threads/host.h"
#include "cusolver/cusolver.h"
#include "data/data.h"

#include <stdlib.h>

PH_EXPORT int cusolverDnCreate(solver **out) {
    ph_host_call(PH_CALL_QUERY);
    return out && (*out = calloc(1, sizeof **out)) ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnDestroy(solver *handle) {
    ph_host_call(PH_CALL_QUERY);
    free(handle);
    return SOLVER_OK;
}

PH_EXPORT int cusolverDnSetStream(solver *handle, void *stream) {
    ph_host_call(PH_CALL_QUERY);
    if (!handle) return SOLVER_NOT_INITIALIZED;
    handle->stream = stream;
    return SOLVER_OK;
}

#define PARAMETERS(Name)                                                                                               \
    PH_EXPORT int cusolverDnCreate##Name(parameters **out) {                                                           \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        return out && (*out = calloc(1, sizeof **out)) ? SOLVER_OK : SOLVER_INVALID_VALUE;                             \
    }                                                                                                                  \
    PH_EXPORT int cusolverDnDestroy##Name(parameters *it) {                                                            \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        free(it);                                                                                                      \
        return SOLVER_OK;                                                                                              \
    }
PARAMETERS(Params)
PARAMETERS(GesvdjInfo)
PARAMETERS(SyevjInfo)

/* The accuracy of an iteration: nothing is computed. */
PH_EXPORT int cusolverDnXgesvdjSetTolerance(parameters *it, double tolerance) {
    (void)tolerance;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnXgesvdjSetMaxSweeps(parameters *it, int sweeps) {
    (void)sweeps;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

PH_EXPORT int cusolverDnXgesvdjSetSortEig(parameters *it, int sort) {
    (void)sort;
    return it ? SOLVER_OK : SOLVER_INVALID_VALUE;
}

/* ---- for all calls ----------------------------------------------------------------------------------------------- */

int solver_size(int *out, int64_t elements) {
    ph_host_call(PH_CALL_QUERY);
    if (!out || elements < 0 || elements > INT32_MAX) return SOLVER_INVALID_VALUE;
    *out = (int)(elements > 1 ? elements : 1);
    return SOLVER_OK;
}

int solver_sizes(size_t *device, size_t *host, int64_t elements, int dtype) {
    ph_host_call(PH_CALL_QUERY);
    if (!device || !host || elements < 0) return SOLVER_INVALID_VALUE;
    *device = ph_cuda_dtype_nbytes(dtype, (uint64_t)elements);
    *host = 0;
    return SOLVER_OK;
}

int solver_charge(solver *handle, const char *name, int64_t elements, int dtype, int *info, int64_t ninfo) {
    if (!handle) return SOLVER_NOT_INITIALIZED;
    if (elements < 0 || ninfo < 0) return SOLVER_INVALID_VALUE;
    if (info) ph_assume_zeros(info, (size_t)ninfo * sizeof *info);
    uint64_t nbytes = ph_cuda_dtype_nbytes(dtype, (uint64_t)elements);
    return ph_library_launch(handle->stream, name, nbytes) ? SOLVER_OK : SOLVER_INVALID_VALUE;
}
