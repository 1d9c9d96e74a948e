/* cusparse/: names of errors. All other calls are refused (calls.def). */
#include "core/base.h"

PH_EXPORT const char *cusparseGetErrorString(int status) {
    return status == 0 ? "success" : status == 10 ? "operation not supported by the emulation" : "cuSPARSE error";
}

PH_EXPORT const char *cusparseGetErrorName(int status) {
    return status == 0    ? "CUSPARSE_STATUS_SUCCESS"
           : status == 10 ? "CUSPARSE_STATUS_NOT_SUPPORTED"
                          : "CUSPARSE_STATUS_INTERNAL_ERROR";
}
