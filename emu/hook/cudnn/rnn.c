/*
 * cuDNN: dropout states and recurrent networks.
 *
 * Programs ask where each matrix and bias lies in the weight space, so any layout serves: here all matrices come first,
 * by layer, then all biases. The sizes of workspace and reserve space are not documented, but were measured.
 */
#include "core/config.h"
#include "core/hash.h"
#include "kernels/library.h"
#include "cudnn/cudnn.h"
#include "nvtx/nvtx.h"
#include "streams/launch.h"

#include <stdlib.h>
#include <string.h>

enum {
    BIAS_NONE = 0,
    BIAS_DOUBLE = 2,
    BIAS_RECURRENT = 3,
    FORWARD_TRAINING = 1,
    STANDARD = 0,      /* cudnnRNNAlgo_t */
    PADDED_IO = 1,     /* cudnnSetRNNDescriptor_v8's flag */
    LAYOUT_PACKED = 1, /* cudnnRNNDataLayout_t */
    MATH_FMA = 3       /* cudnnMathType_t: no tensor cores */
};
enum { STATES_NBYTES_PER_SM = 49152 }; /* 1,024 random number generators of 48 bytes */

typedef struct dropout {
    float probability;
    void *states;
    size_t nbytes;
    unsigned long long seed;
} dropout;
typedef struct rnn {
    int algo, mode, bias, direction, input_mode, dtype, math_precision, math_type, input, hidden, projection, layers;
    dropout *drop;
    uint32_t flags;
} rnn;
typedef struct rnn_data {
    int dtype, layout, steps, batch, width;
    uint64_t rows; /* of all sequences, without padding if they are packed */
} rnn_data;

CUDNN_DESCRIPTOR(Dropout, dropout)
CUDNN_DESCRIPTOR(RNN, rnn)
CUDNN_DESCRIPTOR(RNNData, rnn_data)

/* ---- dropout ----------------------------------------------------------------------------------------------------- */
PH_EXPORT int cudnnDropoutGetStatesSize(cudnn_handle *handle, size_t *nbytes) {
    if (!handle || !nbytes) return CUDNN_BAD_POINTER;
    *nbytes = (size_t)ph_cfg.sm_count * STATES_NBYTES_PER_SM;
    return CUDNN_OK;
}

static int set_dropout(dropout *it, float probability, void *states, size_t nbytes, unsigned long long seed) {
    if (!it) return CUDNN_BAD_POINTER;
    *it = (dropout){probability, states, nbytes, seed};
    return CUDNN_OK;
}

/* Seeds the generators, with a kernel. */
PH_EXPORT int cudnnSetDropoutDescriptor(dropout *it, cudnn_handle *handle, float probability, void *states,
                                        size_t nbytes, unsigned long long seed) {
    if (handle && states) ph_library_launch(handle->stream, "cudnnSetDropoutDescriptor", nbytes);
    return set_dropout(it, probability, states, nbytes, seed);
}

PH_EXPORT int cudnnRestoreDropoutDescriptor(dropout *it, cudnn_handle *handle, float probability, void *states,
                                            size_t nbytes, unsigned long long seed) {
    (void)handle;
    return set_dropout(it, probability, states, nbytes, seed);
}

/* ---- shape ------------------------------------------------------------------------------------------------------- */
PH_EXPORT int cudnnSetRNNDescriptor_v8(rnn *it, int algo, int mode, int bias, int direction, int input_mode, int dtype,
                                       int math_precision, int math_type, int32_t input, int32_t hidden,
                                       int32_t projection, int32_t layers, dropout *drop, uint32_t flags) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it || input < 1 || hidden < 1 || layers < 1 || mode < PH_RNN_RELU || mode > PH_RNN_GRU) return CUDNN_BAD_PARAM;
    *it = (rnn){algo,
                mode,
                bias,
                direction,
                input_mode,
                dtype,
                math_precision,
                math_type,
                input,
                hidden,
                projection ? projection : hidden,
                layers,
                drop,
                flags};
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetRNNDataDescriptor(rnn_data *it, int dtype, int layout, int steps, int batch, int width,
                                        const int lengths[], void *padding) {
    (void)padding;
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it || steps < 1 || batch < 1 || width < 1) return CUDNN_BAD_PARAM;
    uint64_t rows = layout == LAYOUT_PACKED && lengths ? 0 : (uint64_t)steps * (uint64_t)batch;
    for (int i = 0; layout == LAYOUT_PACKED && lengths && i < batch; i++) rows += (uint64_t)lengths[i];
    *it = (rnn_data){dtype, layout, steps, batch, width, rows};
    return CUDNN_OK;
}

static int directions(const rnn *it) { return it->direction ? 2 : 1; }
static int gates(const rnn *it) { return it->mode == PH_RNN_LSTM ? 4 : it->mode == PH_RNN_GRU ? 3 : 1; }
static bool projects(const rnn *it) { return it->projection != it->hidden; }
static int biases(const rnn *it) { return it->bias == BIAS_NONE ? 0 : it->bias == BIAS_DOUBLE ? 2 : 1; }

static int64_t layer_input(const rnn *it, int pseudo_layer) {
    int layer = pseudo_layer / directions(it);
    return layer == 0 ? it->input : (int64_t)it->projection * directions(it);
}

static int64_t layer_matrices(const rnn *it, int pseudo_layer) {
    int64_t n = (int64_t)gates(it) * it->hidden * (layer_input(it, pseudo_layer) + it->projection);
    return n + (projects(it) ? (int64_t)it->projection * it->hidden : 0);
}

static int64_t all_matrices(const rnn *it, int before_layer) {
    int64_t n = 0;
    for (int i = 0; i < before_layer; i++) n += layer_matrices(it, i);
    return n;
}

static int64_t layer_biases(const rnn *it) { return (int64_t)biases(it) * gates(it) * it->hidden; }

static int64_t weights(const rnn *it) {
    int pseudo_layers = it->layers * directions(it);
    return all_matrices(it, pseudo_layers) + pseudo_layers * layer_biases(it);
}

PH_EXPORT int cudnnGetRNNWeightSpaceSize(cudnn_handle *handle, rnn *it, size_t *nbytes) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !it || !nbytes) return CUDNN_BAD_POINTER;
    *nbytes = cudnn_dtype_nbytes(it->dtype, (uint64_t)weights(it));
    return CUDNN_OK;
}

static void describe(cudnn_tensor *out, int dtype, int64_t rows, int64_t cols) {
    *out = (cudnn_tensor){.dtype = dtype, .ndims = 3, .dims = {1, rows, cols}};
    cudnn_pack_strides(out);
}

/* The place of a matrix, of a bias or of both, for which the caller passes descriptors. The linear layers are those of
 * the input's gates, then those of the recurrent gates, then the projection. */
PH_EXPORT int cudnnGetRNNWeightParams(cudnn_handle *handle, rnn *it, int32_t pseudo_layer, size_t space_nbytes,
                                      const void *space, int32_t linear, cudnn_tensor *matrix, void **matrix_at,
                                      cudnn_tensor *bias, void **bias_at) {
    (void)space_nbytes;
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !it || pseudo_layer < 0 || pseudo_layer >= it->layers * directions(it) || linear < 0)
        return CUDNN_BAD_PARAM;
    int g = gates(it);
    bool recurrent = linear >= g, projection = linear == 2 * g;
    if (linear > 2 * g || (projection && !projects(it))) return CUDNN_BAD_PARAM;
    int64_t input = layer_input(it, pseudo_layer), at = all_matrices(it, pseudo_layer);
    if (projection)
        at += g * (int64_t)it->hidden * (input + it->projection);
    else if (recurrent)
        at += g * (int64_t)it->hidden * input + (linear - g) * (int64_t)it->hidden * it->projection;
    else
        at += linear * (int64_t)it->hidden * input;
    if (matrix)
        describe(matrix, it->dtype, projection ? it->projection : it->hidden,
                 projection  ? it->hidden
                 : recurrent ? it->projection
                             : input);
    if (matrix_at) *matrix_at = space ? (char *)(uintptr_t)space + cudnn_dtype_nbytes(it->dtype, (uint64_t)at) : NULL;
    bool has_bias = !projection && (biases(it) == 2 || (biases(it) == 1 && recurrent == (it->bias == BIAS_RECURRENT)));
    int64_t within = biases(it) == 2 ? linear : linear % g;
    at = all_matrices(it, it->layers * directions(it)) + pseudo_layer * layer_biases(it) + within * it->hidden;
    if (bias && has_bias)
        describe(bias, it->dtype, it->hidden, 1);
    else if (bias)
        *bias = (cudnn_tensor){.dtype = it->dtype};
    if (bias_at)
        *bias_at = space && has_bias ? (char *)(uintptr_t)space + cudnn_dtype_nbytes(it->dtype, (uint64_t)at) : NULL;
    return CUDNN_OK;
}

/* ---- workspace and reserve space ----------------------------------------------------------------------------------
 * Sums of parts, each a multiple of 32 bytes: to the byte what cuDNN of PyTorch 2.11 says on an H200, of all 35,762
 * networks that it was asked about (laboratory/notes/recurrent-spaces.md). That is how large the parts are; what they
 * hold was inferred from their sizes. */
enum { CUBLAS_SPACE_NBYTES = 8 << 20, ADDED_NBYTES = 256, ALIGNMENT = 32 };

/* Do the kernels keep the recurrent weights on the SMs? In bf16 cuDNN does not, although asked to. */
static bool persists(const rnn *it) {
    bool asked = it->algo == PH_RNN_PERSIST_STATIC || it->algo == PH_RNN_PERSIST_STATIC_SMALL;
    return asked && it->dtype != CUDNN_DTYPE_BF16;
}

static bool is_supported(const rnn *it) {
    enum { WIDEST_GATED = 1536 };
    return it->algo != PH_RNN_PERSIST_STATIC || gates(it) == 1 || it->hidden <= WIDEST_GATED;
}

static bool drops(const rnn *it) { return it->drop && it->drop->probability > 0; }

static uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

static uint64_t part(const rnn *it, uint64_t elements) {
    return round_up(cudnn_dtype_nbytes(it->dtype, elements), ALIGNMENT);
}

/* Gates that are kept for the backward pass, each as wide as the states. */
static uint64_t kept_gates(const rnn *it) { return it->mode == PH_RNN_GRU ? 6 : (uint64_t)gates(it); }

/* Activations for the backward pass: each layer's gates and states, with a projection also the states and outputs
 * before and after it, and what goes from layer to layer, as wide as the states. Padding is left out of packed
 * sequences, but not of dropout's masks: a bit for each output that the next layer has for an input, in each of its
 * directions. */
static uint64_t reserve_nbytes_of(const rnn *it, const rnn_data *x) {
    uint64_t ways = (uint64_t)directions(it), layers = (uint64_t)it->layers, chains = layers * ways;
    uint64_t states = x->rows * (uint64_t)it->hidden, outputs = x->rows * (uint64_t)it->projection;
    uint64_t total = ADDED_NBYTES + part(it, (layers - 1) * ways * states) + part(it, kept_gates(it) * chains * states);
    if (it->mode == PH_RNN_LSTM) total += part(it, chains * states);
    if (projects(it)) total += part(it, chains * states) + part(it, chains * outputs);
    if (!drops(it)) return total;
    uint64_t bits = (uint64_t)x->steps * (uint64_t)x->batch * (uint64_t)it->projection * ways;
    return total + (layers - 1) * ways * round_up((bits + 7) / 8, ALIGNMENT);
}

/* What the workspace's parts are multiples of. */
typedef struct extent {
    uint64_t ways;   /* directions */
    uint64_t states; /* of all sequences' steps, in one layer and direction */
    uint64_t inputs; /* of all sequences' steps */
    uint64_t step;   /* states of one step, of all layers in one direction */
} extent;

static extent extent_of(const rnn *it, const rnn_data *x) {
    uint64_t hidden = (uint64_t)it->hidden;
    return (extent){.ways = (uint64_t)directions(it),
                    .states = x->rows * hidden,
                    .inputs = x->rows * (uint64_t)it->input,
                    .step = (uint64_t)it->layers * (uint64_t)x->batch * hidden};
}

/* States of a step and, with a projection, of all steps before it. */
static uint64_t states_nbytes(const rnn *it, extent of) {
    uint64_t total = it->mode == PH_RNN_LSTM ? part(it, 2 * of.ways * of.step) : 0;
    if (of.ways == 2) total += part(it, 4 * of.step);
    if (projects(it)) total += part(it, of.ways * of.states);
    return total;
}

/* The input's products for all gates, of at most 256 steps at once in one direction. Kernels that keep the weights also
 * have the gates' inputs of all steps in four parts; others have the gates of a step. */
static uint64_t forward_nbytes(const rnn *it, const rnn_data *x) {
    enum { STEPS_AT_ONCE = 256 };
    extent of = extent_of(it, x);
    uint64_t all = (uint64_t)gates(it), total = states_nbytes(it, of);
    uint64_t at_once = STEPS_AT_ONCE * (uint64_t)x->batch * (uint64_t)it->hidden;
    if (of.ways == 2 || persists(it) || at_once > of.states) at_once = of.states;
    total += part(it, of.ways * all * at_once);
    total += persists(it) ? part(it, 4 * all * of.states) + part(it, 2 * of.step) : part(it, of.ways * all * of.step);
    if (of.ways == 2) return total + part(it, 4 * of.states);
    return drops(it) ? total + part(it, of.states) : total;
}

/* Several layers in one direction go backwards in waves, each layer some steps behind the next. Batches of 1, 2, 8, 16,
 * 17, 96 and 100 and sequences of 100 and 128 steps were measured: a limit may lie between two of them. */
static uint64_t wave_steps(const rnn_data *x) {
    if (x->batch <= 1) return 32;
    if (x->batch <= 8) return 16;
    if (x->batch <= 16 || x->steps >= 128) return 8;
    return x->batch <= 96 ? 4 : 2;
}

/* Gradients of what goes into a layer and out of it. Of several layers in one direction those in between are needed for
 * a wave alone, and the first layer's for at least eight steps. */
static uint64_t gradients_nbytes(const rnn *it, const rnn_data *x) {
    enum { LEAST_STEPS = 8 };
    extent of = extent_of(it, x);
    uint64_t widest = of.inputs > of.states ? of.inputs : of.states, layers = (uint64_t)it->layers;
    if (of.ways == 2) return part(it, 4 * widest) + part(it, (layers > 1 ? 4 : 2) * of.states);
    if (layers > 1 && persists(it)) return part(it, widest) + part(it, 2 * of.states);
    uint64_t steps = wave_steps(x), first = steps > LEAST_STEPS ? steps : LEAST_STEPS;
    uint64_t wave = (steps * layers + first) * (uint64_t)x->batch * (uint64_t)it->hidden;
    return part(it, widest) + part(it, layers > 1 && wave < of.states ? wave : of.states);
}

/* Kernels that keep the weights also have gradients of all steps' gates, and partial sums, of which those that are not
 * for small states alone have a least size. */
static uint64_t backward_nbytes(const rnn *it, const rnn_data *x) {
    enum { PARTIAL_SUMS = 8, LEAST_NBYTES = 4864, LEAST_NBYTES_PER_SEQUENCE = 2 };
    extent of = extent_of(it, x);
    uint64_t total = states_nbytes(it, of) + gradients_nbytes(it, x);
    if (!persists(it)) return total + part(it, of.ways * of.step);
    uint64_t sums = part(it, PARTIAL_SUMS * of.states), batch = (uint64_t)x->batch, hidden = (uint64_t)it->hidden;
    uint64_t least = round_up((LEAST_NBYTES + LEAST_NBYTES_PER_SEQUENCE * batch) * hidden, ALIGNMENT);
    if (it->algo == PH_RNN_PERSIST_STATIC && sums < least) sums = least;
    return total + part(it, 2 * of.step) + part(it, kept_gates(it) * of.states) + sums;
}

/* Copies without padding: inputs, outputs, and states before and after all steps. The backward pass has their
 * gradients, too. */
static uint64_t copies_nbytes(const rnn *it, const rnn_data *x) {
    uint64_t ways = (uint64_t)directions(it), padded = (uint64_t)x->steps * (uint64_t)x->batch;
    uint64_t sequences = ways * (uint64_t)it->layers * (uint64_t)x->batch;
    uint64_t total = part(it, padded * (uint64_t)it->input) + part(it, ways * padded * (uint64_t)it->projection);
    total += 2 * part(it, sequences * (uint64_t)it->projection);
    return it->mode == PH_RNN_LSTM ? total + 2 * part(it, sequences * (uint64_t)it->hidden) : total;
}

/* The forward pass and the backward pass take turns in one space, beside the weights and what cuBLAS works with. */
static uint64_t work_nbytes_of(const rnn *it, const rnn_data *x, int forward_mode) {
    enum { LENGTHS_NBYTES_PER_SEQUENCE = 8 };
    int pseudo_layers = it->layers * directions(it);
    uint64_t total = ADDED_NBYTES + part(it, (uint64_t)all_matrices(it, pseudo_layers)) +
                     (uint64_t)pseudo_layers * CUBLAS_SPACE_NBYTES;
    uint64_t forward = forward_nbytes(it, x), backward = forward_mode == FORWARD_TRAINING ? backward_nbytes(it, x) : 0;
    if (it->flags & PADDED_IO) {
        uint64_t copies = copies_nbytes(it, x);
        total += round_up(LENGTHS_NBYTES_PER_SEQUENCE * (uint64_t)x->batch, ALIGNMENT);
        forward += copies;
        backward += backward ? 2 * copies : 0;
    }
    return total + (forward > backward ? forward : backward);
}

PH_EXPORT int cudnnGetRNNTempSpaceSizes(cudnn_handle *handle, rnn *it, int forward_mode, rnn_data *x,
                                        size_t *work_nbytes, size_t *reserve_nbytes) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!handle || !it || !x) return CUDNN_BAD_POINTER;
    if (!is_supported(it)) return CUDNN_NOT_SUPPORTED;
    if (work_nbytes) *work_nbytes = work_nbytes_of(it, x, forward_mode);
    if (reserve_nbytes) *reserve_nbytes = forward_mode == FORWARD_TRAINING ? reserve_nbytes_of(it, x) : 0;
    return CUDNN_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */
typedef struct described {
    ph_field_conv_direction direction;
    int mode, algo, steps, batch, dtype;
    int64_t input, hidden, projection, layers;
    bool bidirectional, tf32;
    const ph_op *op;
} described;

static size_t describe_rnn(const void *what, char *text, size_t capacity) {
    const described *it = what;
    ph_signature_rnn signature = {.direction = it->direction,
                                  .mode = (ph_field_rnn_mode)it->mode,
                                  .algorithm = (ph_field_rnn_algorithm)it->algo,
                                  .steps = (uint64_t)it->steps,
                                  .batch = (uint64_t)it->batch,
                                  .input = (uint64_t)it->input,
                                  .hidden = (uint64_t)it->hidden,
                                  .projection = (uint64_t)it->projection,
                                  .layers = (uint64_t)it->layers,
                                  .bidirectional = it->bidirectional,
                                  .dtype = it->tf32 ? PH_DTYPE_TF32 : ph_dtype_of_cudnn(it->dtype),
                                  .op = it->op->name,
                                  .sizes = it->op->sizes};
    return ph_format_rnn(&signature, text, capacity);
}

/* Kernels that the host launches in one call. Unless the weights stay on the GPU (persistent algorithms), each layer
 * runs step by step: traces of two layers with 128 steps have 562 launches of LSTM, 560 of GRU, 813 of GRU backwards.
 * The third of a step is a fill, which a GRU of 256 units does not have: 3,306 launches in 1,600 steps, 4,902 with 512
 * units (laboratory/rows/recurrent-launches-h200.jsonl). Other calls take the host as long as four kernels and four for
 * each layer and direction would: events are recorded and waited for, too (laboratory/notes/host-model.md).
 */
static uint64_t launches(const rnn *it, const rnn_data *x, ph_field_conv_direction direction) {
    enum { FILLED_FROM = 257 };
    uint64_t chains = (uint64_t)it->layers * (uint64_t)directions(it);
    if (it->algo != STANDARD || direction == PH_CONV_WGRAD) return 4 + 4 * chains;
    bool filled = it->mode == PH_RNN_GRU && it->hidden >= FILLED_FROM;
    uint64_t a_step = direction == PH_CONV_DGRAD && filled ? 3 : 2;
    return 4 + a_step * (uint64_t)x->steps * chains;
}

static int run(cudnn_handle *handle, ph_field_conv_direction direction, const rnn *it, const rnn_data *x) {
    if (!handle || !it || !x) return CUDNN_BAD_POINTER;
    ph_stream *stream = ph_stream_of(handle->stream);
    if (!stream) return CUDNN_BAD_PARAM;
    ph_host_call(PH_CALL_LIBRARY);
    described what;
    memset(&what, 0, sizeof what); /* its padding is hashed, too */
    what.direction = direction;
    what.mode = it->mode;
    what.algo = it->algo;
    what.steps = x->steps;
    what.batch = x->batch;
    what.dtype = it->dtype;
    what.input = it->input;
    what.hidden = it->hidden;
    what.projection = it->projection;
    what.layers = it->layers;
    what.bidirectional = directions(it) == 2;
    what.tf32 = it->dtype == CUDNN_DTYPE_F32 && it->math_type != MATH_FMA;
    uint64_t key = ph_hash(0x726e6e, &what, sizeof what);
    what.op = ph_current_op();
    ph_launch_work(stream, ph_mix(key, what.op->key), describe_rnn, &what);
    ph_host_work(PH_CALL_RECURRENT_KERNEL, launches(it, x, direction)); /* the GPU begins with the first one */
    return CUDNN_OK;
}

PH_EXPORT int cudnnRNNForward(cudnn_handle *handle, rnn *it, int forward_mode, const int32_t lengths[], rnn_data *x) {
    (void)forward_mode, (void)lengths; /* the other parameters are buffers and their sizes */
    return run(handle, PH_CONV_FORWARD, it, x);
}

PH_EXPORT int cudnnRNNBackwardData_v8(cudnn_handle *handle, rnn *it, const int32_t lengths[], rnn_data *y) {
    (void)lengths;
    return run(handle, PH_CONV_DGRAD, it, y);
}

PH_EXPORT int cudnnRNNBackwardWeights_v8(cudnn_handle *handle, rnn *it, int add, const int32_t lengths[], rnn_data *x) {
    (void)add, (void)lengths;
    return run(handle, PH_CONV_WGRAD, it, x);
}
