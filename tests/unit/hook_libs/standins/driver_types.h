#pragma once
#include <stddef.h>
#include <stdint.h>
#define CUDARTAPI
#define __device_builtin__
#define __host__
#define __device__
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef int cudaError_t;
typedef struct {
    float x, y;
} float2, cuFloatComplex, cuComplex;
typedef struct {
    double x, y;
} double2, cuDoubleComplex;
typedef struct {
    uint16_t x;
} __half, __nv_bfloat16;
