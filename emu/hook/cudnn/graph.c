/*
 * What a cuDNN operation graph computes.
 *
 * A graph with a convolution node is that convolution: bias, activation and the like are fused into its kernel.
 * Attention is either one node, or two matrix products with a softmax between them (five products in the backward
 * pass). In the second case the products of two real tensors give the sizes: first Q times K transposed, then, in the
 * backward pass, dO times V transposed. A comparison of row and column indices is a causal mask, a random number
 * generator is dropout. What is added to these indices before is a window's, and passed with each execution. Any other
 * graph takes the time of the bytes of its real tensors.
 */
#include "core/config.h"
#include "kernels/library.h"
#include "cudnn/backend.h"

#include <string.h>

enum {
    POINTWISE_ADD = 0,
    POINTWISE_SUB = 9,
    POINTWISE_CMP_GT = 302,
    POINTWISE_CMP_GE = 303,
    MATH_SIZES = 4,
    CUDNN_DTYPE_INT64 = 10
};

static void tensor_of(const backend *node, cudnn_tensor *out) {
    int64_t ndims = 0, nstrides = 0;
    const int64_t *dims = backend_get(node, ATTR_TENSOR_DIMS, &ndims),
                  *strides = backend_get(node, ATTR_TENSOR_STRIDES, &nstrides);
    memset(out, 0, sizeof *out);
    out->dtype = (int)backend_int(node, ATTR_TENSOR_DTYPE, CUDNN_DTYPE_F32);
    out->ndims = (int)(ndims < CUDNN_MAX_DIMS ? ndims : CUDNN_MAX_DIMS);
    for (int i = 0; i < out->ndims; i++) {
        out->dims[i] = dims[i];
        out->strides[i] = i < nstrides ? strides[i] : 0;
    }
}

static bool is_real(const backend *tensor) {
    return tensor && !backend_int(tensor, ATTR_TENSOR_VIRTUAL, 0) && !backend_int(tensor, ATTR_TENSOR_BY_VALUE, 0);
}

static const backend *operation(const backend *graph, int64_t i) { return backend_child(graph, ATTR_GRAPH_OPS, i); }

static bool convolution(const backend *node, bool tensor_cores, conv_problem *out) {
    static const struct {
        backend_kind kind;
        ph_field_conv_direction direction;
        backend_attribute how, x, w, y;
    } forms[] = {
        {BACKEND_OP_CONV_FORWARD, PH_CONV_FORWARD, ATTR_FORWARD_CONV, ATTR_FORWARD_X, ATTR_FORWARD_W, ATTR_FORWARD_Y},
        {BACKEND_OP_CONV_DGRAD, PH_CONV_DGRAD, ATTR_DGRAD_CONV, ATTR_DGRAD_DX, ATTR_DGRAD_W, ATTR_DGRAD_DY},
        {BACKEND_OP_CONV_WGRAD, PH_CONV_WGRAD, ATTR_WGRAD_CONV, ATTR_WGRAD_X, ATTR_WGRAD_DW, ATTR_WGRAD_DY}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (backend_kind_of(node) != forms[i].kind) continue;
        const backend *how = backend_child(node, forms[i].how, 0);
        cudnn_tensor x, w, y;
        tensor_of(backend_child(node, forms[i].x, 0), &x);
        tensor_of(backend_child(node, forms[i].w, 0), &w);
        tensor_of(backend_child(node, forms[i].y, 0), &y);
        int64_t n = 0, zeros[3] = {0}, ones[3] = {1, 1, 1};
        const int64_t *pad = backend_get(how, ATTR_CONV_PRE_PADDINGS, &n),
                      *stride = backend_get(how, ATTR_CONV_STRIDES, NULL);
        const int64_t *dilation = backend_get(how, ATTR_CONV_DILATIONS, NULL);
        conv_problem_make(out, forms[i].direction, &x, &w, &y, (int)n, pad ? pad : zeros, stride ? stride : ones,
                          dilation ? dilation : ones, tensor_cores);
        return true;
    }
    return false;
}

static bool norm(const backend *node, norm_problem *out) {
    bool backward = backend_kind_of(node) == BACKEND_OP_NORM_BACKWARD;
    if (!backward && backend_kind_of(node) != BACKEND_OP_NORM_FORWARD) return false;
    cudnn_tensor x;
    tensor_of(backend_child(node, backward ? ATTR_NORM_BACKWARD_X : ATTR_NORM_FORWARD_X, 0), &x);
    memset(out, 0, sizeof *out);
    out->backward = backward;
    out->mode = PH_NORM_LAYER + (int32_t)backend_int(node, backward ? ATTR_NORM_BACKWARD_MODE : ATTR_NORM_FORWARD_MODE,
                                                     0); /* follow the modes of the legacy API */
    out->dtype = x.dtype;
    out->nhwc = x.ndims > 2 && x.strides[1] == 1;
    out->ndims = x.ndims;
    memcpy(out->x, x.dims, sizeof out->x);
    return true;
}

/* `transposed`: its dims are [b, h, d, s]. */
static void four(const backend *tensor, bool transposed, int64_t out[MATH_SIZES], int32_t *dtype) {
    cudnn_tensor it;
    tensor_of(tensor, &it);
    for (int i = 0; i < MATH_SIZES; i++) out[i] = it.dims[transposed && i >= 2 ? 5 - i : i];
    if (dtype) *dtype = it.dtype;
}

/* Rows are compared with columns. */
static bool is_causal_mask(const backend *node) {
    if (backend_kind_of(node) == BACKEND_OP_BAND_MASK)
        return backend_int(node, ATTR_BAND_MASK_MODE, 0) == POINTWISE_CMP_GE;
    return backend_kind_of(node) == BACKEND_OP_POINTWISE &&
           backend_int(backend_child(node, ATTR_OP_POINTWISE, 0), ATTR_POINTWISE_MODE, 0) == POINTWISE_CMP_GE;
}

static bool is_pointwise(const backend *node, int64_t mode) {
    return backend_kind_of(node) == BACKEND_OP_POINTWISE &&
           backend_int(backend_child(node, ATTR_OP_POINTWISE, 0), ATTR_POINTWISE_MODE, 0) == mode;
}

static int64_t id_of(const backend *tensor) { return backend_int(tensor, ATTR_TENSOR_UNIQUE_ID, 0); }

static void add_term(graph_bound *to, const backend *tensor, int32_t sign) {
    if (!tensor || !backend_int(tensor, ATTR_TENSOR_BY_VALUE, 0) || to->n == BOUND_TERMS) return;
    to->terms[to->n].id = id_of(tensor);
    to->terms[to->n].dtype = (int32_t)backend_int(tensor, ATTR_TENSOR_DTYPE, CUDNN_DTYPE_F32);
    to->terms[to->n++].sign = sign;
}

/* Returns the operation of the graph that writes the tensor. */
static const backend *writer_of(const backend *graph, int64_t nops, const backend *tensor) {
    for (int64_t i = 0; tensor && i < nops; i++) {
        const backend *node = operation(graph, i), *out = backend_child(node, ATTR_POINTWISE_Y, 0);
        if (backend_kind_of(node) == BACKEND_OP_POINTWISE && out && id_of(out) == id_of(tensor)) return node;
    }
    return NULL;
}

/* Finds what is added to an index before it is compared: to a column's, which must exceed the row's, or to a row's.
 * Lengths of sequences that differ are tensors on the device: they count as equal for queries and keys. */
static void added_before(const backend *graph, int64_t nops, const backend *comparison, graph_bound *out) {
    const backend *node = comparison;
    for (int64_t steps = 0; node && steps < nops; steps++) {
        node = writer_of(graph, nops, backend_child(node, ATTR_POINTWISE_X, 0));
        if (node && is_pointwise(node, POINTWISE_ADD)) add_term(out, backend_child(node, ATTR_POINTWISE_B, 0), 1);
        if (node && is_pointwise(node, POINTWISE_SUB)) add_term(out, backend_child(node, ATTR_POINTWISE_B, 0), -1);
    }
}

/* Reads the bounds of a window, of an attention or of what it does to the scores. */
static void bounds(const backend *graph, graph_work *out) {
    int64_t nops = 0;
    if (graph) backend_get(graph, ATTR_GRAPH_OPS, &nops);
    for (int64_t i = 0; i < nops; i++) {
        const backend *node = operation(graph, i);
        switch (backend_kind_of(node)) {
        case BACKEND_OP_BAND_MASK:
            add_term(&out->left, backend_child(node, ATTR_BAND_MASK_LEFT, 0), 1);
            add_term(&out->right, backend_child(node, ATTR_BAND_MASK_RIGHT, 0), 1);
            break;
        case BACKEND_OP_POINTWISE:
            if (is_pointwise(node, POINTWISE_CMP_GT)) added_before(graph, nops, node, &out->left);
            if (is_pointwise(node, POINTWISE_CMP_GE)) added_before(graph, nops, node, &out->right);
            break;
        case BACKEND_OP_SDPA_FORWARD:
            bounds(backend_child(node, ATTR_SDPA_FORWARD_SUBGRAPH, 0), out);
            break;
        case BACKEND_OP_SDPA_BACKWARD:
            bounds(backend_child(node, ATTR_SDPA_BACKWARD_SUBGRAPH, 0), out);
            break;
        default:
            break;
        }
    }
}

/* Returns the bound that this execution passes; 0 if it passes none. */
static int64_t value_of(const graph_bound *it, const backend *variant_pack) {
    int64_t n = 0, sum = 0;
    const int64_t *ids = it->n ? backend_get(variant_pack, ATTR_PACK_UNIQUE_IDS, &n) : NULL;
    void *const *pointers = backend_get(variant_pack, ATTR_PACK_POINTERS, NULL);
    for (int t = 0; pointers && t < it->n; t++)
        for (int64_t i = 0; i < n; i++) {
            if (ids[i] != it->terms[t].id || !pointers[i]) continue;
            int64_t wide = 0;
            int32_t narrow = 0;
            float real = 0;
            switch (it->terms[t].dtype) {
            case CUDNN_DTYPE_F32:
                memcpy(&real, pointers[i], sizeof real);
                wide = (int64_t)real;
                break;
            case CUDNN_DTYPE_INT64:
                memcpy(&wide, pointers[i], sizeof wide);
                break;
            default:
                memcpy(&narrow, pointers[i], sizeof narrow);
                wide = narrow;
            }
            sum += it->terms[t].sign * wide;
        }
    return sum;
}

static bool is_ragged(const backend *tensor) { return backend_child(tensor, ATTR_TENSOR_RAGGED_OFFSETS, 0) != NULL; }

/* Reads what the operation does to the scores, which is a graph of its own. */
static void scores(const backend *node, backend_attribute name, sdpa_problem *out) {
    const backend *graph = backend_child(node, name, 0);
    int64_t nops = 0;
    if (graph) backend_get(graph, ATTR_GRAPH_OPS, &nops);
    for (int64_t i = 0; i < nops; i++) {
        out->causal |= is_causal_mask(operation(graph, i));
        out->dropout |= backend_kind_of(operation(graph, i)) == BACKEND_OP_RNG;
    }
}

static bool attention_node(const backend *node, sdpa_problem *out) {
    bool forward = backend_kind_of(node) == BACKEND_OP_SDPA_FORWARD,
         backward = backend_kind_of(node) == BACKEND_OP_SDPA_BACKWARD;
    if (!forward && !backward) return false;
    out->backward = backward;
    four(backend_child(node, forward ? ATTR_SDPA_FORWARD_Q : ATTR_SDPA_BACKWARD_Q, 0), false, out->q, &out->dtype);
    four(backend_child(node, forward ? ATTR_SDPA_FORWARD_K : ATTR_SDPA_BACKWARD_K, 0), false, out->k, NULL);
    four(backend_child(node, forward ? ATTR_SDPA_FORWARD_V : ATTR_SDPA_BACKWARD_V, 0), false, out->v, NULL);
    out->ragged = is_ragged(backend_child(node, forward ? ATTR_SDPA_FORWARD_Q : ATTR_SDPA_BACKWARD_Q, 0));
    scores(node, forward ? ATTR_SDPA_FORWARD_SUBGRAPH : ATTR_SDPA_BACKWARD_SUBGRAPH, out);
    if (forward && backend_child(node, ATTR_SDPA_FORWARD_DROPOUT_SEED, 0)) out->dropout = 1;
    return true;
}

static bool attention(const backend *graph, int64_t nops, sdpa_problem *out) {
    int products = 0, real_products = 0;
    bool whole = false;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < nops; i++) {
        const backend *node = operation(graph, i);
        if (attention_node(node, out))
            whole = true;
        else if (backend_kind_of(node) == BACKEND_OP_RNG)
            out->dropout = 1;
        else if (is_causal_mask(node))
            out->causal = 1;
        if (backend_kind_of(node) != BACKEND_OP_MATMUL) continue;
        const backend *a = backend_child(node, ATTR_MATMUL_A, 0), *b = backend_child(node, ATTR_MATMUL_B, 0);
        products++;
        if (is_real(a) && is_real(b)) {
            real_products++;
            if (real_products == 1) {
                four(a, false, out->q, &out->dtype);
                out->ragged = is_ragged(a);
                four(b, true, out->k, NULL);
            } else if (real_products == 2) {
                four(b, true, out->v, NULL);
            }
        } else if (is_real(b) && products == 2 && real_products == 1) {
            four(b, false, out->v, NULL); /* in the forward pass: probabilities times V */
        }
    }
    if (!whole) out->backward = products > 2;
    return whole || (real_products >= 1 && products >= 2 && out->v[3] > 0);
}

/* The bytes of every real tensor that an operation names, once for each time that it is named. */
static uint64_t real_nbytes(const backend *graph, int64_t nops) {
    uint64_t nbytes = 0;
    for (int64_t i = 0; i < nops; i++)
        for (int name = 700; name < 3000; name++) {
            const backend *tensor = backend_child(operation(graph, i), (backend_attribute)name, 0);
            if (tensor && backend_kind_of(tensor) == BACKEND_TENSOR && is_real(tensor)) {
                cudnn_tensor it;
                tensor_of(tensor, &it);
                nbytes += cudnn_tensor_nbytes(&it);
            }
        }
    return nbytes;
}

void graph_work_of(const backend *graph, graph_engine engine, graph_work *out) {
    int64_t nops = 0;
    backend_get(graph, ATTR_GRAPH_OPS, &nops);
    memset(out, 0, sizeof *out);
    out->engine = engine;
    for (int64_t i = 0; i < nops; i++) {
        if (convolution(operation(graph, i), engine == ENGINE_TENSOR_CORES, &out->conv)) {
            out->kind = WORK_CONV;
            return;
        }
        if (norm(operation(graph, i), &out->norm)) {
            out->kind = WORK_NORM;
            return;
        }
    }
    if (attention(graph, nops, &out->sdpa)) {
        out->kind = WORK_SDPA;
        bounds(graph, out);
        return;
    }
    out->kind = WORK_OTHER;
    out->nbytes = real_nbytes(graph, nops);
}

enum { SDPA_COUNTER_NBYTES = 256, SDPA_GRADIENT_NBYTES = 2 }; /* of an H200, cuDNN 9.19 */

/* From a counter the kernel's blocks take their tiles. Backward, heads that share keys write gradients of their own
 * before these add up; a ragged graph has tensors for them. The queries' gradients in f32 are the frontend's. So it was
 * in 36 sizes on an H200 to the byte (laboratory/notes/transformer-engine-h200.md). */
static size_t attention_workspace(const sdpa_problem *it) {
    if (ph_cfg.cc_major < 9) return 0;
    bool shared = it->backward && !it->ragged && it->k[1] < it->q[1];
    size_t rows = (size_t)(it->q[0] * it->q[1] * it->k[2]), depths = (size_t)(it->k[3] + it->v[3]);
    return SDPA_COUNTER_NBYTES + (shared ? rows * depths * SDPA_GRADIENT_NBYTES : 0);
}

int64_t graph_engines(const graph_work *work) {
    return work->kind == WORK_CONV && conv_largest_workspace(&work->conv) ? ENGINES : ENGINE_LARGEST;
}

size_t graph_workspace(const graph_work *work) {
    switch (work->kind) {
    case WORK_CONV:
        return work->engine == ENGINE_LARGEST ? conv_largest_workspace(&work->conv) : conv_workspace(&work->conv);
    case WORK_SDPA:
        return attention_workspace(&work->sdpa);
    default:
        return 0;
    }
}

int graph_launch(void *stream, const graph_work *work, const backend *variant_pack) {
    int status = CUDNN_OK;
    sdpa_problem attention;
    switch (work->kind) {
    case WORK_CONV: /* the one that needs most is slower: with TF32 or 16 bits it was chosen for 1 of 88 gradients */
        if (work->engine == ENGINE_LARGEST) status = conv_launch(stream, &work->conv);
        return status == CUDNN_OK ? conv_launch(stream, &work->conv) : status;
    case WORK_NORM:
        return norm_launch(stream, &work->norm);
    case WORK_SDPA:
        attention = work->sdpa;
        attention.left = value_of(&work->left, variant_pack);
        attention.right = value_of(&work->right, variant_pack);
        return sdpa_launch(stream, &attention);
    case WORK_OTHER:
        return ph_library_launch(stream, "cudnnBackendExecute", work->nbytes) ? CUDNN_OK : CUDNN_BAD_PARAM;
    }
    return CUDNN_BAD_PARAM;
}
