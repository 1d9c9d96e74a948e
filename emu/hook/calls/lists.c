/*
 * Every hooked call, by class, from the lists beside each API.
 *
 *   EMULATED(name)        defined in the folder of its API
 *   ACCEPTED(LIB, name)   has no effect on time or data; returns success
 *   REFUSED(LIB, name)    warns once, is counted, and returns LIB's documented "not supported"
 *   LEFT(name)            left to the real library: it works without a GPU, or reports that there is none
 *
 * Accepted and refused calls are defined here, without parameters. Callers may pass any: in the calling conventions of
 * x86-64 and AArch64 the caller removes its arguments.
 */
#include "calls/lists.h"
#include "threads/host.h"
#include "op_stream/warn.h"

enum {
    SUPPORTED_CUDART = 0,
    NOT_SUPPORTED_CUDART = 801, /* cudaErrorNotSupported */
    SUPPORTED_DRIVER = 0,
    NOT_SUPPORTED_DRIVER = 801, /* CUDA_ERROR_NOT_SUPPORTED */
    SUPPORTED_NVML = 0,
    NOT_SUPPORTED_NVML = 3, /* NVML_ERROR_NOT_SUPPORTED */
    SUPPORTED_CUBLAS = 0,
    NOT_SUPPORTED_CUBLAS = 15, /* CUBLAS_STATUS_NOT_SUPPORTED */
    SUPPORTED_CUDNN = 0,
    NOT_SUPPORTED_CUDNN = 3000, /* CUDNN_STATUS_NOT_SUPPORTED */
    SUPPORTED_NCCL = 0,
    NOT_SUPPORTED_NCCL = 5, /* ncclInvalidUsage */
    SUPPORTED_CUFFT = 0,
    NOT_SUPPORTED_CUFFT = 16, /* CUFFT_NOT_SUPPORTED */
    SUPPORTED_CUSPARSE = 0,
    NOT_SUPPORTED_CUSPARSE = 10, /* CUSPARSE_STATUS_NOT_SUPPORTED */
    SUPPORTED_CUSOLVER = 0,
    NOT_SUPPORTED_CUSOLVER = 9, /* CUSOLVER_STATUS_NOT_SUPPORTED */
    SUPPORTED_CURAND = 0,
    NOT_SUPPORTED_CURAND = 103, /* CURAND_STATUS_TYPE_ERROR; it has no "not supported" */
    SUPPORTED_CUPTI = 0,
    NOT_SUPPORTED_CUPTI = 27 /* CUPTI_ERROR_NOT_SUPPORTED */
};

#define EMULATED(name) extern int name(void);
#define ACCEPTED(LIB, name)                                                                                            \
    PH_EXPORT int name(void);                                                                                          \
    PH_EXPORT int name(void) {                                                                                         \
        ph_host_call(PH_CALL_QUERY);                                                                                   \
        return SUPPORTED_##LIB;                                                                                        \
    }
#define REFUSED(LIB, name)                                                                                             \
    PH_EXPORT int name(void);                                                                                          \
    PH_EXPORT int name(void) { return ph_refuse(#name, NOT_SUPPORTED_##LIB); }
#define LEFT(name)
#include "calls/all_calls.h"
#undef EMULATED
#undef ACCEPTED
#undef REFUSED
#undef LEFT

#define EMULATED(name) {#name, (void *)name, PH_CALL_EMULATED},
#define ACCEPTED(LIB, name) {#name, (void *)name, PH_CALL_ACCEPTED},
#define REFUSED(LIB, name) {#name, (void *)name, PH_CALL_REFUSED},
#define LEFT(name)
const ph_call ph_calls[] = {
#include "calls/all_calls.h"
};
const size_t ph_ncalls = sizeof ph_calls / sizeof *ph_calls;
