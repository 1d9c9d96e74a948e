/*
 * cupti/: torch.profiler asks CUPTI what ran on the GPU. The emulation does not support that: the calls are refused
 * (calls.def), and profiles show the host only. Here are the calls whose results profilers use even then. The real
 * library is never called, because it reads the real driver's memory.
 */
#include "core/base.h"
#include "core/warn.h"

enum { CUPTI_OK = 0, CUPTI_INVALID_PARAMETER = 1, CUPTI_NOT_SUPPORTED = 27 };

PH_EXPORT int cuptiGetResultString(int result, const char **text) {
    if (!text) return CUPTI_INVALID_PARAMETER;
    *text = result == CUPTI_OK              ? "CUPTI_SUCCESS"
            : result == CUPTI_NOT_SUPPORTED ? "CUPTI_ERROR_NOT_SUPPORTED (emulated GPU)"
                                            : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_OK;
}

/* Newer profilers call this first, to find out whether CUPTI works. */
PH_EXPORT int cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_INVALID_PARAMETER;
    *version = 0;
    return ph_refuse("cuptiGetVersion", CUPTI_NOT_SUPPORTED);
}

PH_EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    (void)domain, (void)id;
    if (!name) return CUPTI_INVALID_PARAMETER;
    *name = "unknown";
    return CUPTI_INVALID_PARAMETER;
}

/* No activity is ever recorded, so none was lost. */
PH_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    if (!dropped) return CUPTI_INVALID_PARAMETER;
    *dropped = 0;
    return CUPTI_OK;
}
