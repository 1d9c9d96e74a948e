/* Descriptors of the graph API. The numbers are those of cuDNN 9's cudnn_graph.h. */
#ifndef PHANTORA_CUDNN_BACKEND_H
#define PHANTORA_CUDNN_BACKEND_H

#include "cudnn/cudnn.h"

typedef enum backend_kind {
    BACKEND_POINTWISE = 0,
    BACKEND_CONVOLUTION = 1,
    BACKEND_ENGINE = 2,
    BACKEND_ENGINECFG = 3,
    BACKEND_ENGINEHEUR = 4,
    BACKEND_PLAN = 5,
    BACKEND_OP_CONV_FORWARD = 10,
    BACKEND_OP_CONV_WGRAD = 11,
    BACKEND_OP_CONV_DGRAD = 12,
    BACKEND_OP_POINTWISE = 13,
    BACKEND_OPGRAPH = 15,
    BACKEND_VARIANT_PACK = 16,
    BACKEND_TENSOR = 17,
    BACKEND_OP_MATMUL = 19,
    BACKEND_OP_NORM_FORWARD = 29,
    BACKEND_OP_NORM_BACKWARD = 30,
    BACKEND_OP_RNG = 33,
    BACKEND_OP_SDPA_FORWARD = 41,
    BACKEND_OP_SDPA_BACKWARD = 43,
    BACKEND_OP_BAND_MASK = 44,
    BACKEND_KINDS = 64
} backend_kind;

typedef enum backend_attribute {
    ATTR_POINTWISE_MODE = 0,
    ATTR_CONV_DILATIONS = 102,
    ATTR_CONV_STRIDES = 103,
    ATTR_CONV_PRE_PADDINGS = 105,
    ATTR_CONV_SPATIAL_DIMS = 106,
    ATTR_HEUR_GRAPH = 201,
    ATTR_HEUR_RESULTS = 202,
    ATTR_CFG_ENGINE = 300,
    ATTR_CFG_WORKSPACE = 303,
    ATTR_CFG_SHARED_MEMORY = 304,
    ATTR_PLAN_CONFIG = 401,
    ATTR_PLAN_WORKSPACE = 402,
    ATTR_PLAN_JSON = 405,
    ATTR_FORWARD_CONV = 702,
    ATTR_FORWARD_W = 703,
    ATTR_FORWARD_X = 704,
    ATTR_FORWARD_Y = 705,
    ATTR_DGRAD_CONV = 708,
    ATTR_DGRAD_W = 709,
    ATTR_DGRAD_DX = 710,
    ATTR_DGRAD_DY = 711,
    ATTR_WGRAD_CONV = 714,
    ATTR_WGRAD_DW = 715,
    ATTR_WGRAD_X = 716,
    ATTR_WGRAD_DY = 717,
    ATTR_OP_POINTWISE = 750,
    ATTR_POINTWISE_X = 751,
    ATTR_POINTWISE_B = 752,
    ATTR_POINTWISE_Y = 753,
    ATTR_GRAPH_OPS = 801,
    ATTR_GRAPH_ENGINES = 802,
    ATTR_TENSOR_DTYPE = 901,
    ATTR_TENSOR_DIMS = 902,
    ATTR_TENSOR_STRIDES = 903,
    ATTR_TENSOR_UNIQUE_ID = 906,
    ATTR_TENSOR_VIRTUAL = 907,
    ATTR_TENSOR_BY_VALUE = 908,
    ATTR_TENSOR_RAGGED_OFFSETS = 913,
    ATTR_PACK_UNIQUE_IDS = 1000,
    ATTR_PACK_POINTERS = 1001,
    ATTR_ENGINE_GRAPH = 1300,
    ATTR_ENGINE_INDEX = 1301,
    ATTR_ENGINE_NOTES = 1303,
    ATTR_MATMUL_A = 1520,
    ATTR_MATMUL_B = 1521,
    ATTR_NORM_FORWARD_MODE = 2000,
    ATTR_NORM_FORWARD_X = 2002,
    ATTR_NORM_BACKWARD_MODE = 2100,
    ATTR_NORM_BACKWARD_X = 2101,
    ATTR_SDPA_FORWARD_Q = 2800,
    ATTR_SDPA_FORWARD_K = 2801,
    ATTR_SDPA_FORWARD_V = 2802,
    ATTR_SDPA_FORWARD_SUBGRAPH = 2811,     /* what is done to the scores, since cuDNN 9.21 */
    ATTR_SDPA_FORWARD_DROPOUT_SEED = 2815, /* since cuDNN 9.21 */
    ATTR_SDPA_BACKWARD_Q = 2851,
    ATTR_SDPA_BACKWARD_K = 2852,
    ATTR_SDPA_BACKWARD_V = 2853,
    ATTR_SDPA_BACKWARD_SUBGRAPH = 2867,
    ATTR_BAND_MASK_LEFT = 3003,
    ATTR_BAND_MASK_RIGHT = 3004,
    ATTR_BAND_MASK_MODE = 3007
} backend_attribute;

/* cudnnBackendAttributeType_t, where the size is not 4 or the meaning matters */
enum {
    TYPE_HANDLE = 0,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_DOUBLE = 5,
    TYPE_VOID_PTR = 6,
    TYPE_NUMERICAL_NOTE = 11,
    TYPE_DESCRIPTOR = 15,
    TYPE_INT32 = 23,
    TYPE_CHAR = 24,
    TYPE_FRACTION = 26
};

typedef struct backend backend;

/* ---- graph.c ----------------------------------------------------------------------------------------------- */
/* Engine 0 uses tensor cores, engine 1 does not. Engine 2 stands for all others that cuDNN offers for a gradient of a
 * convolution: nothing but a program that tries all (torch.backends.cudnn.benchmark) sees what they need. */
typedef enum graph_engine { ENGINE_TENSOR_CORES, ENGINE_VECTORS, ENGINE_LARGEST, ENGINES } graph_engine;

/* A graph_bound is a sum of numbers that the program passes with each execution. */
enum { BOUND_TERMS = 4 };
typedef struct graph_bound {
    int n;
    struct {
        int64_t id;
        int32_t dtype, sign;
    } terms[BOUND_TERMS];
} graph_bound;

typedef struct graph_work {
    enum { WORK_CONV, WORK_NORM, WORK_SDPA, WORK_OTHER } kind;
    graph_engine engine;
    union {
        conv_problem conv;
        norm_problem norm;
        sdpa_problem sdpa;
        uint64_t nbytes;
    };
    graph_bound left, right; /* of an attention's window */
} graph_work;

/* Describes the work that the graph computes on that engine. */
void graph_work_of(const backend *graph, graph_engine engine, graph_work *out);
/* Returns how many engines there are for this work. */
int64_t graph_engines(const graph_work *work);
size_t graph_workspace(const graph_work *work);
int graph_launch(void *stream, const graph_work *work, const backend *variant_pack);

/* ---- backend.c --------------------------------------------------------------------------------------------- */
backend_kind backend_kind_of(const backend *it);
/* The elements of an attribute and their number; NULL and 0 if it is not set. */
const void *backend_get(const backend *it, backend_attribute name, int64_t *count);
const backend *backend_child(const backend *it, backend_attribute name, int64_t index);
int64_t backend_int(const backend *it, backend_attribute name, int64_t otherwise);

#endif
