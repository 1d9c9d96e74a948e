/* cuBLAS, cuBLASLt and cuDNN: which calls become which signatures, and what their queries answer. */
#include "cudnn/backend.h"
#include "threads/thread.h"
#include "fakes.h"

typedef struct handle handle;
typedef struct descriptor descriptor;
int cublasCreate_v2(handle **);
int cublasDestroy_v2(handle *);
int cublasSetStream_v2(handle *, void *);
int cublasGetStream_v2(handle *, void **);
int cublasSetMathMode(handle *, int);
int cublasGetMathMode(handle *, int *);
int cublasSetPointerMode_v2(handle *, int);
int cublasGetPointerMode_v2(handle *, int *);
int cublasGetProperty(int, int *);
int cublasGemmEx(handle *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                 const void *, void *, int, int, int, int);
int cublasSgemm_v2(handle *, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                   void *, int);
int cublasSdot_v2(handle *, int, const void *, int, const void *, int, void *);
int cublasSgetrfBatched(handle *, int, void *const *, int, int *, int *, int);
int cublasLtMatmulDescCreate(descriptor **, int, int);
int cublasLtMatmulDescDestroy(descriptor *);
int cublasLtMatmulDescSetAttribute(descriptor *, int, const void *, size_t);
int cublasLtMatmulDescGetAttribute(descriptor *, int, void *, size_t, size_t *);
int cublasLtMatrixLayoutCreate(descriptor **, int, uint64_t, uint64_t, int64_t);
int cublasLtMatrixLayoutDestroy(descriptor *);
int cublasLtMatrixLayoutSetAttribute(descriptor *, int, const void *, size_t);
int cublasLtMatmulPreferenceCreate(descriptor **);
int cublasLtMatmulPreferenceDestroy(descriptor *);
typedef struct result {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;
int cublasLtMatmulAlgoGetHeuristic(handle *, descriptor *, descriptor *, descriptor *, descriptor *, descriptor *,
                                   descriptor *, int, result *, int *);
int cublasLtMatmul(handle *, descriptor *, const void *, const void *, descriptor *, const void *, descriptor *,
                   const void *, const void *, descriptor *, void *, descriptor *, const void *, void *, size_t,
                   void *);
int cudnnCreate(handle **);
int cudnnDestroy(handle *);
int cudnnGetProperty(int, int *);
int cudnnBackendCreateDescriptor(int, void **);
int cudnnBackendDestroyDescriptor(void *);
int cudnnBackendSetAttribute(void *, int, int, int64_t, const void *);
int cudnnBackendGetAttribute(void *, int, int, int64_t, int64_t *, void *);
int cudnnBackendFinalize(void *);
int cudnnBackendExecute(handle *, void *, void *);

static void products(void) {
    handle *it;
    char *c = fake_device(4096);
    void *stream = NULL;
    int mode = -1;
    fake_reset();
    CHECK(cublasCreate_v2(&it) == 0 && cublasSetStream_v2(it, (void *)3) == 0 && cublasGetStream_v2(it, &stream) == 0 &&
          stream == (void *)3);
    CHECK(cublasGetMathMode(it, &mode) == 0 && mode == 0 && cublasSetMathMode(it, 3) == 0 &&
          cublasGetMathMode(it, &mode) == 0 && mode == 3);
    ph_data_set(c, 0, 4096);
    CHECK(cublasGemmEx(it, 1, 0, 16, 8, 64, NULL, c, 14, 64, c, 14, 64, NULL, c, 14, 16, 68, -1) == 0);
    CHECK(strcmp(fake_signatures[0], "gemm;cublasGemmEx;t;n;16;8;64;1;bf16;bf16;bf16;f32;default;aten::op;[[8, 64]]") ==
          0);
    CHECK(!ph_data_known_any(c, 256) && ph_data_known(c + 256, 256)); /* 16 x 8 of bf16 */
    CHECK(cublasGemmEx(it, 1, 0, 16, 8, 64, NULL, c, 14, 64, c, 14, 64, NULL, c, 14, 16, 68, -1) == 0);
    CHECK(fake_nsignatures == 1 && fake_nlaunches == 2); /* asked once */
    CHECK(cublasSgemm_v2(it, 0, 2, 4, 5, 6, NULL, c, 4, c, 5, NULL, c, 4) == 0);
    CHECK(strcmp(fake_signatures[1], "gemm;cublasSgemm;n;c;4;5;6;1;f32;f32;f32;tf32;default;aten::op;[[8, 64]]") == 0);
    CHECK(cublasSgemm_v2(it, 0, 2, 0, 5, 6, NULL, c, 4, c, 5, NULL, c, 4) == 0 &&
          fake_nlaunches == 3); /* nothing to do */
    CHECK(cublasSgemm_v2(it, 3, 2, 4, 5, 6, NULL, c, 4, c, 5, NULL, c, 4) == 7 &&
          cublasSgemm_v2(NULL, 0, 2, 4, 5, 6, NULL, c, 4, c, 5, NULL, c, 4) == 1);
    float host = 5;
    CHECK(cublasSdot_v2(it, 100, c, 1, c, 1, &host) == 0 && host == 0);
    CHECK(strcmp(fake_signatures[2], "library;cublasSdot;800;aten::op;[[8, 64]]") == 0);
    int *pivots = fake_device(64), *info = fake_device(64);
    CHECK(cublasSgetrfBatched(it, 3, NULL, 3, pivots, info, 2) == 0 && pivots[0] == 1 && pivots[2] == 3 &&
          pivots[5] == 3 && info[1] == 0);
    CHECK(ph_data_assumed(info, 8) && ph_data_assumed(pivots, 24));
    CHECK(cublasGetProperty(0, &mode) == 0 && mode >= 12 && cublasGetProperty(3, &mode) == 7);
    cublasDestroy_v2(it);
}

static void handles_take_memory(void) {
    handle *first, *of_autograd, *more;
    int capability = ph_cfg.cc_major;
    fake_reset();
    fake_taken = 0;
    fake_capacity = 100 << 20;
    ph_cfg.cc_major = 9;
    CHECK(cublasCreate_v2(&first) == 0 && fake_taken == 0); /* reserved_nbytes has it */
    CHECK(cublasCreate_v2(&of_autograd) == 0 && fake_taken == 64 << 20);
    CHECK(cublasCreate_v2(&more) == 3 && !more && fake_taken == 64 << 20); /* there is no room */
    CHECK(cublasDestroy_v2(of_autograd) == 0 && fake_taken == 0 && cublasDestroy_v2(NULL) == 1);
    CHECK(cublasCreate_v2(&of_autograd) == 0 && fake_taken == 64 << 20);
    ph_cfg.cc_major = 8;
    CHECK(cublasCreate_v2(&more) == 0 && fake_taken == 64 << 20); /* not known */
    CHECK(cublasDestroy_v2(more) == 0 && cublasDestroy_v2(of_autograd) == 0 && cublasDestroy_v2(first) == 0);
    CHECK(fake_taken == 0);
    ph_cfg.cc_major = capability;
}

static void light_products(void) {
    handle *it;
    descriptor *operation, *a, *b, *d, *preference;
    fake_reset();
    cublasCreate_v2(&it);
    CHECK(cublasLtMatmulDescCreate(&operation, 68, 0) == 0);
    int value = 1, epilogue = 32 | 128 | 4;
    CHECK(cublasLtMatmulDescSetAttribute(operation, 3, &value, 4) == 0 &&
          cublasLtMatmulDescSetAttribute(operation, 7, &epilogue, 4) == 0);
    size_t written = 0;
    value = 0;
    CHECK(cublasLtMatmulDescGetAttribute(operation, 3, &value, 4, &written) == 0 && value == 1 && written == 4);
    CHECK(cublasLtMatmulDescGetAttribute(operation, 3, NULL, 0, &written) == 0 && written == 4);
    CHECK(cublasLtMatmulDescSetAttribute(operation, 64, &value, 4) == 7);
    CHECK(cublasLtMatrixLayoutCreate(&a, 14, 64, 16, 64) == 0 && cublasLtMatrixLayoutCreate(&b, 14, 64, 8, 64) == 0);
    CHECK(cublasLtMatrixLayoutCreate(&d, 0, 16, 8, 16) == 0 && cublasLtMatmulPreferenceCreate(&preference) == 0);
    int batch = 3, returned = 0;
    CHECK(cublasLtMatrixLayoutSetAttribute(d, 5, &batch, 4) == 0);
    result results[3];
    memset(results, 0xff, sizeof results);
    CHECK(cublasLtMatmulAlgoGetHeuristic(it, operation, a, b, d, d, preference, 3, results, &returned) == 0 &&
          returned == 1);
    CHECK(results[0].state == 0 && results[0].workspace == 0 && results[2].state == 15);
    CHECK(cublasLtMatmulAlgoGetHeuristic(it, operation, a, b, d, d, preference, 0, results, &returned) == 7);
    char *out = fake_device(4096);
    CHECK(cublasLtMatmul(it, operation, NULL, out, a, out, b, NULL, out, d, out, d, results[0].algo, NULL, 0,
                         (void *)2) == 0);
    CHECK(strcmp(fake_signatures[0],
                 "gemm;cublasLtMatmul;t;n;16;8;64;3;bf16;bf16;f32;f32;gelu_aux_bias;aten::op;[[8, 64]]") == 0);
    /* 4-bit items: two in a byte; and a type that nobody knows */
    int fp4 = 33, unknown = 99;
    ph_data_set(out, 0, 4096);
    CHECK(cublasLtMatrixLayoutSetAttribute(a, 0, &fp4, 4) == 0 &&
          cublasLtMatrixLayoutSetAttribute(d, 0, &fp4, 4) == 0 &&
          cublasLtMatrixLayoutSetAttribute(b, 0, &unknown, 4) == 0);
    batch = 1;
    CHECK(cublasLtMatrixLayoutSetAttribute(d, 5, &batch, 4) == 0);
    CHECK(cublasLtMatmul(it, operation, NULL, out, a, out, b, NULL, out, d, out, d, results[0].algo, NULL, 0,
                         (void *)2) == 0);
    CHECK(strstr(fake_signatures[1], ";t;n;16;8;64;1;f4e2m1;other;f4e2m1;f32;"));
    CHECK(!ph_data_known_any(out, 64) && ph_data_known(out + 64, 64)); /* 16 x 8 of them */
    cublasLtMatmulDescDestroy(operation), cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a), cublasLtMatrixLayoutDestroy(b), cublasLtMatrixLayoutDestroy(d);
    cublasDestroy_v2(it);
}

/* ---- graph API --------------------------------------------------------------------------------------------------- */
/* Of cudnn_graph.h, beyond those that the library reads. */
enum { MATMUL_C = 1522, TYPE_DATA_TYPE = 1, TYPE_POINTWISE_MODE = 14 };

static void *make(int kind) {
    void *it;
    CHECK(cudnnBackendCreateDescriptor(kind, &it) == 0);
    return it;
}

static void *tensor(int dtype, int64_t id, int ndims, const int64_t *dims, bool is_virtual) {
    void *it = make(BACKEND_TENSOR);
    int64_t strides[5] = {1, 1, 1, 1, 1};
    for (int i = ndims - 2; i >= 0; i--) strides[i] = strides[i + 1] * dims[i + 1];
    if (ndims == 4 && dims[1] > 1) /* channels last */
        strides[1] = 1, strides[3] = dims[1], strides[2] = dims[1] * dims[3], strides[0] = strides[2] * dims[2];
    unsigned char flag = is_virtual;
    cudnnBackendSetAttribute(it, ATTR_TENSOR_DTYPE, TYPE_DATA_TYPE, 1, &dtype);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_DIMS, TYPE_INT64, ndims, dims);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_STRIDES, TYPE_INT64, ndims, strides);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_UNIQUE_ID, TYPE_INT64, 1, &id);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_VIRTUAL, TYPE_BOOLEAN, 1, &flag);
    CHECK(cudnnBackendFinalize(it) == 0);
    return it;
}

static void attach(void *to, int name, void *child) {
    CHECK(cudnnBackendSetAttribute(to, name, 15, 1, &child) == 0);
    cudnnBackendDestroyDescriptor(child); /* the program drops its own handle */
}

/* Numbers that an execution passes: tensor 21 is a window's left bound, 22 its right one. */
static const int64_t *passed;

/* Returns the workspace that the plan asks for. */
static int64_t execute(void *graph, int engine, int64_t offered) {
    void *heuristics = make(BACKEND_ENGINEHEUR), *configs[2] = {make(BACKEND_ENGINECFG), make(BACKEND_ENGINECFG)},
         *plan = make(BACKEND_PLAN), *pack = make(BACKEND_VARIANT_PACK);
    handle *it;
    int64_t count = 0, workspace = -1;
    CHECK(cudnnCreate(&it) == 0);
    CHECK(cudnnBackendFinalize(graph) == 0);
    attach(heuristics, ATTR_HEUR_GRAPH, graph);
    CHECK(cudnnBackendFinalize(heuristics) == 0);
    CHECK(cudnnBackendGetAttribute(heuristics, ATTR_HEUR_RESULTS, TYPE_DESCRIPTOR, 0, &count, NULL) == 0 &&
          count == offered);
    CHECK(cudnnBackendGetAttribute(heuristics, ATTR_HEUR_RESULTS, TYPE_DESCRIPTOR, 2, &count, configs) == 0 &&
          count == 2);
    void *engines = make(BACKEND_ENGINE);
    int notes[10];
    CHECK(cudnnBackendGetAttribute(configs[0], ATTR_CFG_ENGINE, TYPE_DESCRIPTOR, 1, &count, &engines) == 0 &&
          count == 1);
    CHECK(cudnnBackendGetAttribute(engines, ATTR_ENGINE_NOTES, TYPE_NUMERICAL_NOTE, 10, &count, notes) == 0 &&
          count == 1 && notes[0] == 0);
    cudnnBackendDestroyDescriptor(engines);
    attach(plan, ATTR_PLAN_CONFIG, configs[engine]);
    cudnnBackendDestroyDescriptor(configs[!engine]);
    CHECK(cudnnBackendExecute(it, plan, pack) == CUDNN_NOT_FINALIZED);
    CHECK(cudnnBackendFinalize(plan) == 0 &&
          cudnnBackendGetAttribute(plan, ATTR_PLAN_WORKSPACE, TYPE_INT64, 1, &count, &workspace) == 0 &&
          workspace >= 0);
    if (passed) {
        int64_t ids[2] = {21, 22};
        int32_t left = (int32_t)passed[0], right = (int32_t)passed[1];
        void *pointers[2] = {&left, &right};
        cudnnBackendSetAttribute(pack, ATTR_PACK_UNIQUE_IDS, TYPE_INT64, 2, ids);
        cudnnBackendSetAttribute(pack, ATTR_PACK_POINTERS, TYPE_VOID_PTR, 2, pointers);
        CHECK(cudnnBackendFinalize(pack) == 0 && cudnnBackendExecute(it, plan, pack) == 0);
    } else {
        CHECK(cudnnBackendFinalize(pack) == 0 && cudnnBackendExecute(it, plan, pack) == 0);
    }
    cudnnBackendDestroyDescriptor(heuristics), cudnnBackendDestroyDescriptor(plan), cudnnBackendDestroyDescriptor(pack);
    cudnnDestroy(it);
    return workspace;
}

static void convolution(int dtype, int engine) {
    void *how = make(BACKEND_CONVOLUTION), *node = make(BACKEND_OP_CONV_FORWARD), *graph = make(BACKEND_OPGRAPH);
    int64_t two[2] = {2, 2}, one[2] = {1, 1}, three[2] = {3, 3}, n = 2, x[4] = {8, 3, 32, 32}, w[4] = {64, 3, 7, 7},
            y[4] = {8, 64, 16, 16};
    cudnnBackendSetAttribute(how, ATTR_CONV_DILATIONS, TYPE_INT64, 2, one);
    cudnnBackendSetAttribute(how, ATTR_CONV_STRIDES, TYPE_INT64, 2, two);
    cudnnBackendSetAttribute(how, ATTR_CONV_PRE_PADDINGS, TYPE_INT64, 2, three);
    cudnnBackendSetAttribute(how, ATTR_CONV_SPATIAL_DIMS, TYPE_INT64, 1, &n);
    attach(node, ATTR_FORWARD_CONV, how);
    attach(node, ATTR_FORWARD_X, tensor(dtype, 'x', 4, x, false));
    attach(node, ATTR_FORWARD_W, tensor(dtype, 'w', 4, w, false));
    attach(node, ATTR_FORWARD_Y, tensor(dtype, 'y', 4, y, false));
    attach(graph, ATTR_GRAPH_OPS, node);
    execute(graph, engine, ENGINES);
}

static const struct {
    int operation, how, x, w, y;
} DIRECTIONS[] = {
    {BACKEND_OP_CONV_FORWARD, ATTR_FORWARD_CONV, ATTR_FORWARD_X, ATTR_FORWARD_W, ATTR_FORWARD_Y},
    {BACKEND_OP_CONV_DGRAD, ATTR_DGRAD_CONV, ATTR_DGRAD_DX, ATTR_DGRAD_W, ATTR_DGRAD_DY},
    {BACKEND_OP_CONV_WGRAD, ATTR_WGRAD_CONV, ATTR_WGRAD_X, ATTR_WGRAD_DW, ATTR_WGRAD_DY},
};
enum { OF_FORWARD, OF_DATA, OF_WEIGHTS };

/* What a program finds that tries all engines, channels last: sizes of torch.backends.cudnn.benchmark's trials on an
 * H100 and an H200 (laboratory/rows/convolutions-h100.jsonl.gz, library-blocks-h200.jsonl.gz). */
static void tried(int dtype, int direction, const int64_t *x, const int64_t *w, const int64_t *y, int64_t measured) {
    void *how = make(BACKEND_CONVOLUTION), *graph = make(BACKEND_OPGRAPH), *heuristics = make(BACKEND_ENGINEHEUR),
         *node = make(DIRECTIONS[direction].operation), *configs[ENGINES];
    int64_t one[2] = {1, 1}, n = 2, count = 0, workspace = 0;
    cudnnBackendSetAttribute(how, ATTR_CONV_DILATIONS, TYPE_INT64, 2, one);
    cudnnBackendSetAttribute(how, ATTR_CONV_STRIDES, TYPE_INT64, 2, one);
    cudnnBackendSetAttribute(how, ATTR_CONV_PRE_PADDINGS, TYPE_INT64, 2, one);
    cudnnBackendSetAttribute(how, ATTR_CONV_SPATIAL_DIMS, TYPE_INT64, 1, &n);
    attach(node, DIRECTIONS[direction].how, how);
    attach(node, DIRECTIONS[direction].x, tensor(dtype, 'x', 4, x, false));
    attach(node, DIRECTIONS[direction].w, tensor(dtype, 'w', 4, w, false));
    attach(node, DIRECTIONS[direction].y, tensor(dtype, 'y', 4, y, false));
    attach(graph, ATTR_GRAPH_OPS, node);
    CHECK(cudnnBackendFinalize(graph) == 0);
    attach(heuristics, ATTR_HEUR_GRAPH, graph);
    CHECK(cudnnBackendFinalize(heuristics) == 0);
    for (int i = 0; i < ENGINES; i++) configs[i] = make(BACKEND_ENGINECFG);
    CHECK(cudnnBackendGetAttribute(heuristics, ATTR_HEUR_RESULTS, TYPE_DESCRIPTOR, ENGINES, &count, configs) == 0 &&
          count == ENGINES);
    CHECK(cudnnBackendGetAttribute(configs[ENGINE_LARGEST], ATTR_CFG_WORKSPACE, TYPE_INT64, 1, &count, &workspace) ==
          0);
    CHECK(workspace > measured - 1024 && workspace < measured + 1024);
    for (int i = 0; i < ENGINES; i++) cudnnBackendDestroyDescriptor(configs[i]);
    cudnnBackendDestroyDescriptor(heuristics);
}

static void trials(void) {
    int64_t x[4] = {96, 256, 20, 20}, w[4] = {512, 256, 3, 3}, y[4] = {96, 512, 20, 20};
    tried(0, OF_WEIGHTS, x, w, y, 1342177296);
    tried(0, OF_DATA, x, w, y, 1013973008);
    int64_t image[4] = {24, 128, 112, 112}, filter[4] = {128, 128, 3, 3};
    tried(2, OF_DATA, image, filter, image, 154435600);
    int64_t large[4] = {48, 64, 224, 224}, pair[4] = {64, 64, 3, 3};
    tried(0, OF_FORWARD, large, pair, large, 5020876816);
    int64_t few[4] = {48, 512, 14, 14}, wide[4] = {512, 512, 3, 3};
    tried(0, OF_FORWARD, few, wide, few, 718012432);
}

/* Two products with a mask between them; in the backward pass the second one is that of dO and V, and a third follows.
 * Returns the workspace. */
static int64_t attention(bool backward, int64_t key_heads) {
    void *graph = make(BACKEND_OPGRAPH), *first = make(BACKEND_OP_MATMUL), *second = make(BACKEND_OP_MATMUL),
         *third = make(BACKEND_OP_MATMUL), *mask = make(BACKEND_OP_POINTWISE), *how = make(BACKEND_POINTWISE);
    int64_t q[4] = {2, 4, 128, 64}, kt[4] = {2, key_heads, 64, 256}, v[4] = {2, key_heads, 256, 64},
            s[4] = {2, 4, 128, 256};
    int greater_equal = 303;
    attach(first, ATTR_MATMUL_A, tensor(2, 1, 4, q, false));
    attach(first, ATTR_MATMUL_B, tensor(2, 2, 4, kt, false));
    attach(first, MATMUL_C, tensor(0, 3, 4, s, true));
    cudnnBackendSetAttribute(how, ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &greater_equal);
    attach(mask, ATTR_OP_POINTWISE, how);
    attach(second, ATTR_MATMUL_A, backward ? tensor(2, 6, 4, q, false) : tensor(2, 4, 4, s, true));
    attach(second, ATTR_MATMUL_B, tensor(2, 5, 4, backward ? kt : v, false));
    attach(third, ATTR_MATMUL_A, tensor(2, 4, 4, s, true));
    attach(third, ATTR_MATMUL_B, tensor(2, 7, 4, v, true));
    void *nodes[] = {first, mask, second, third};
    CHECK(cudnnBackendSetAttribute(graph, ATTR_GRAPH_OPS, TYPE_DESCRIPTOR, backward ? 4 : 3, nodes) == 0);
    for (int i = 0; i < 4; i++) cudnnBackendDestroyDescriptor(nodes[i]);
    return execute(graph, 0, ENGINE_LARGEST);
}

static void *pointwise(int mode, void *x, void *b, void *y) {
    void *node = make(BACKEND_OP_POINTWISE), *how = make(BACKEND_POINTWISE);
    cudnnBackendSetAttribute(how, ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &mode);
    attach(node, ATTR_OP_POINTWISE, how);
    attach(node, ATTR_POINTWISE_X, x);
    attach(node, ATTR_POINTWISE_B, b);
    attach(node, ATTR_POINTWISE_Y, y);
    return node;
}

static void *by_value(int64_t id) {
    void *it = make(BACKEND_TENSOR);
    int64_t one[4] = {1, 1, 1, 1};
    int int32 = 4;
    unsigned char flag = 1;
    cudnnBackendSetAttribute(it, ATTR_TENSOR_DTYPE, TYPE_DATA_TYPE, 1, &int32);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_DIMS, TYPE_INT64, 4, one);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_UNIQUE_ID, TYPE_INT64, 1, &id);
    cudnnBackendSetAttribute(it, ATTR_TENSOR_BY_VALUE, TYPE_BOOLEAN, 1, &flag);
    CHECK(cudnnBackendFinalize(it) == 0);
    return it;
}

/* Attention as the frontend writes its windows: columns plus the left bound exceed rows; rows plus the right bound are
 * no less than columns, if the window ends before the last key. */
static void windowed(int64_t left, int64_t right, bool ends) {
    enum { ADD = 0, GREATER = 302, GREATER_EQUAL = 303, ROWS = 11, COLUMNS = 12 };
    void *graph = make(BACKEND_OPGRAPH), *first = make(BACKEND_OP_MATMUL), *second = make(BACKEND_OP_MATMUL);
    int64_t q[4] = {2, 4, 512, 64}, kt[4] = {2, 4, 64, 512}, s[4] = {2, 4, 512, 512}, bounds[2] = {left, right};
    attach(first, ATTR_MATMUL_A, tensor(2, 1, 4, q, false));
    attach(first, ATTR_MATMUL_B, tensor(2, 2, 4, kt, false));
    attach(first, MATMUL_C, tensor(0, 3, 4, s, true));
    attach(second, ATTR_MATMUL_A, tensor(2, 4, 4, s, true));
    attach(second, ATTR_MATMUL_B, tensor(2, 5, 4, q, false));
    void *nodes[] = {
        first,
        pointwise(ADD, tensor(4, COLUMNS, 4, s, true), by_value(21), tensor(4, 13, 4, s, true)),
        pointwise(GREATER, tensor(4, 13, 4, s, true), tensor(4, ROWS, 4, s, true), tensor(4, 14, 4, s, true)),
        second,
        pointwise(ADD, tensor(4, ROWS, 4, s, true), by_value(22), tensor(4, 15, 4, s, true)),
        pointwise(GREATER_EQUAL, tensor(4, 15, 4, s, true), tensor(4, COLUMNS, 4, s, true), tensor(4, 16, 4, s, true)),
    };
    CHECK(cudnnBackendSetAttribute(graph, ATTR_GRAPH_OPS, TYPE_DESCRIPTOR, ends ? 6 : 4, nodes) == 0);
    for (int i = 0; i < 6; i++) cudnnBackendDestroyDescriptor(nodes[i]);
    passed = bounds;
    execute(graph, 0, ENGINE_LARGEST);
    passed = NULL;
}

static void windows(void) {
    fake_reset();
    windowed(129, 0, true);
    CHECK(strcmp(fake_signatures[0],
                 "windowed;fwd;2x4x512x64;2x4x512x64;2x4x512x64;f16;1;0;aten::op;[[8, 64]];129;0") == 0);
    windowed(65, 64, true);
    CHECK(strstr(fake_signatures[1], "windowed;") && strstr(fake_signatures[1], ";65;64"));
    windowed(129, 0, false); /* the right side is open */
    CHECK(strstr(fake_signatures[2], ";f16;0;0;") && strstr(fake_signatures[2], ";129;512"));
    windowed(512, 0, true); /* every query sees the first key: a causal mask */
    CHECK(strcmp(fake_signatures[3], "sdpa;fwd;2x4x512x64;2x4x512x64;2x4x512x64;f16;1;0;aten::op;[[8, 64]]") == 0);
    windowed(512, 100, true);
    CHECK(strstr(fake_signatures[4], "windowed;") && strstr(fake_signatures[4], ";512;100"));

    ph_self()->sequences = (ph_sequences){3, 700, 690, 7, 6, 12, 3, 90000}; /* the control tells them */
    windowed(512, 0, true);
    CHECK(strcmp(fake_signatures[5], "packed;fwd;2x4x512x64;2x4x512x64;2x4x512x64;f16;1;0;aten::op;[[8, 64]];1;"
                                     "3;700;690;7;6;12;3;90000") == 0);
    windowed(0, 0, true);
    CHECK(strstr(fake_signatures[6], "packed;") && strstr(fake_signatures[6], ";0;3;700;"));
    ph_self()->sequences = (ph_sequences){0};
}

static void graphs(void) {
    fake_reset();
    convolution(9, 0);
    CHECK(strcmp(fake_signatures[0],
                 "conv;fwd;8x3x32x32;64x3x7x7;8x64x16x16;3x3;2x2;1x1;1;bf16;nhwc;aten::op;[[8, 64]]") == 0);
    convolution(0, 0);
    CHECK(strstr(fake_signatures[1], ";1;tf32;nhwc;"));
    convolution(0, 1);
    CHECK(strstr(fake_signatures[2], ";1;f32;nhwc;"));

    int64_t counter = attention(false, 4);
    CHECK(strcmp(fake_signatures[3], "sdpa;fwd;2x4x128x64;2x4x256x64;2x4x256x64;f16;1;0;aten::op;[[8, 64]]") == 0);
    CHECK(attention(true, 4) == counter);
    CHECK(strcmp(fake_signatures[4], "sdpa;bwd;2x4x128x64;2x4x256x64;2x4x256x64;f16;1;0;aten::op;[[8, 64]]") == 0);
    /* Pairs of heads share keys: 8 gradients of 256 keys and values are written before they add up. */
    CHECK(attention(true, 2) - counter == 2 * 4 * 256 * (64 + 64) * 2);
    int value = 0;
    CHECK(cudnnGetProperty(0, &value) == 0 && value >= 9);
}

int main(void) {
    products();
    handles_take_memory();
    light_products();
    graphs();
    windows();
    trials();
    return 0;
}
