/* All lists of hooked calls; included several times by lists.c under different meanings of its macros. */
#if __has_include("cudart.def")
#include "cudart.def"
#endif
#if __has_include("driver.def")
#include "driver.def"
#endif
#if __has_include("nvml.def")
#include "nvml.def"
#endif
#if __has_include("nvtx.def")
#include "nvtx.def"
#endif
#include "cublas.def"
#include "cublaslt.def"
#include "cudnn.def"
#include "cufft.def"
#include "cufile.def"
#include "cupti.def"
#include "cusolver.def"
#include "cusparse.def"
#include "cusparselt.def"
#include "left.def"
#include "nccl.def"
