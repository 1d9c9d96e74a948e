/*
 * CUPTI: torch.profiler asks it for what ran on the GPU. There is none to ask, so profiles show the host's side only:
 * the calls are refused (calls/cupti.def), but the ones that answer with texts and numbers answer.
 */
#include "hook.h"
#include "versions.h"

enum { CUPTI_OK = 0, CUPTI_INVALID_PARAMETER = 1, CUPTI_NOT_SUPPORTED = 27 };

PH_EXPORT int cuptiGetResultString(int result, const char **text) {
    if (!text) return CUPTI_INVALID_PARAMETER;
    *text = result == CUPTI_OK              ? "CUPTI_SUCCESS"
            : result == CUPTI_NOT_SUPPORTED ? "CUPTI_ERROR_NOT_SUPPORTED (emulated GPU)"
                                            : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_OK;
}

PH_EXPORT int cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_INVALID_PARAMETER;
    *version = (uint32_t)ph_real_version_out("libcupti.so", "cuptiGetVersion", 130000);
    return CUPTI_OK;
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
