/*
 * Kernel launches: the path that must be fast. A launch's signature is its kernel, grid, block, shared memory and the
 * op that it is part of; of Triton's kernels also the program and the parameters that decide its work, of PyTorch's
 * element-wise ones the strides of operands that are not dense, of gradients of upsamplings the images' sizes, of
 * attention the sequences. Their hash finds the cost; the signature's text is only made if the hash is new.
 */
#include "core/alloc.h"
#include "core/hash.h"
#include "threads/host.h"
#include "op_stream/warn.h"
#include "costs/signature.h"
#include "graphs/capture.h"
#include "kernels/kernel.h"
#include "core/records.h"
#include "kernels/peers.h"
#include "nvtx/nvtx.h"
#include "threads/thread.h"
#include "streams/launch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct launch {
    const ph_kernel *kernel;
    dim3 grid, block;
    size_t shared_nbytes;
    const ph_op *op;
    const ph_groups *groups;
    const ph_sequences *sequences;
    const ph_layout *layout;
    const ph_images *images;
    const ph_operands *operands; /* NULL: not asked for, or not known */
    void *const *params;
} launch;

static size_t describe_kernel(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    ph_signature_kernel signature = {.name = l->kernel->name,
                                     .grid = {l->grid.x, l->grid.y, l->grid.z},
                                     .block = {l->block.x, l->block.y, l->block.z},
                                     .shared_nbytes = l->shared_nbytes,
                                     .op = l->op->name,
                                     .sizes = l->op->sizes};
    return ph_format_kernel(&signature, text, capacity);
}

static size_t describe_triton(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    char *arguments = ph_program_arguments(l->kernel->program, l->params);
    ph_signature_triton signature = {.name = l->kernel->name,
                                     .grid = {l->grid.x, l->grid.y, l->grid.z},
                                     .block = {l->block.x, l->block.y, l->block.z},
                                     .shared_nbytes = l->shared_nbytes,
                                     .arguments = arguments,
                                     .program = l->kernel->program->text,
                                     .op = l->op->name,
                                     .sizes = l->op->sizes};
    size_t n = ph_format_triton(&signature, text, capacity);
    free(arguments);
    return n;
}

static size_t describe_grouped(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    ph_signature_grouped signature = {.name = l->kernel->name,
                                      .grid = {l->grid.x, l->grid.y, l->grid.z},
                                      .block = {l->block.x, l->block.y, l->block.z},
                                      .shared_nbytes = l->shared_nbytes,
                                      .groups = l->groups->groups,
                                      .used = l->groups->used,
                                      .rows = l->groups->rows,
                                      .longest = l->groups->longest,
                                      .tiles64 = l->groups->tiles64,
                                      .tiles128 = l->groups->tiles128,
                                      .op = l->op->name,
                                      .sizes = l->op->sizes};
    return ph_format_grouped(&signature, text, capacity);
}

static size_t describe_sequences(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    ph_signature_sequences signature = {.name = l->kernel->name,
                                        .grid = {l->grid.x, l->grid.y, l->grid.z},
                                        .block = {l->block.x, l->block.y, l->block.z},
                                        .shared_nbytes = l->shared_nbytes,
                                        .op = l->op->name,
                                        .sizes = l->op->sizes,
                                        .sequences = l->sequences->sequences,
                                        .queries = l->sequences->queries,
                                        .keys = l->sequences->keys,
                                        .rows = l->sequences->rows,
                                        .columns = l->sequences->columns,
                                        .tiles = l->sequences->tiles,
                                        .longest = l->sequences->longest,
                                        .pairs = l->sequences->pairs};
    return ph_format_sequences(&signature, text, capacity);
}

static size_t describe_strided(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    char strides[PH_LAYOUT_CHARACTERS];
    int64_t extent[PH_MOST_DIMS];
    for (uint32_t d = 0; d < l->layout->dims; d++) extent[d] = l->layout->extent[d];
    ph_layout_strides(l->layout, strides, sizeof strides);
    ph_signature_strided signature = {.name = l->kernel->name,
                                      .grid = {l->grid.x, l->grid.y, l->grid.z},
                                      .block = {l->block.x, l->block.y, l->block.z},
                                      .shared_nbytes = l->shared_nbytes,
                                      .op = l->op->name,
                                      .sizes = l->op->sizes,
                                      .extent = {extent, l->layout->dims},
                                      .strides = strides};
    return ph_format_strided(&signature, text, capacity);
}

static size_t describe_scaled(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    int64_t before[] = {l->images->before[0], l->images->before[1]};
    int64_t after[] = {l->images->after[0], l->images->after[1]};
    ph_signature_scaled signature = {.name = l->kernel->name,
                                     .grid = {l->grid.x, l->grid.y, l->grid.z},
                                     .block = {l->block.x, l->block.y, l->block.z},
                                     .shared_nbytes = l->shared_nbytes,
                                     .op = l->op->name,
                                     .sizes = l->op->sizes,
                                     .before = {before, 2},
                                     .after = {after, 2}};
    return ph_format_scaled(&signature, text, capacity);
}

static size_t describe_sized(const void *what, char *text, size_t capacity) {
    const launch *l = what;
    char numbers[PH_OPERANDS_CHARACTERS], buffers[PH_OPERANDS_CHARACTERS];
    ph_operands_numbers(l->operands, numbers, sizeof numbers);
    ph_operands_buffers(l->operands, buffers, sizeof buffers);
    ph_signature_sized signature = {.name = l->kernel->name,
                                    .grid = {l->grid.x, l->grid.y, l->grid.z},
                                    .block = {l->block.x, l->block.y, l->block.z},
                                    .shared_nbytes = l->shared_nbytes,
                                    .op = l->op->name,
                                    .sizes = l->op->sizes,
                                    .numbers = numbers,
                                    .buffers = buffers};
    return ph_format_sized(&signature, text, capacity);
}

static uint64_t key_of(const launch *l) {
    uint64_t h = ph_mix(l->kernel->name_hash, (uint64_t)l->grid.x << 32 | l->block.x);
    h = ph_mix(h, (uint64_t)l->grid.y << 48 | (uint64_t)l->grid.z << 32 | l->block.y << 16 | l->block.z);
    h = ph_mix(h, l->shared_nbytes ^ l->op->key);
    if (UNLIKELY(l->kernel->program != NULL)) h = ph_program_mix(l->kernel->program, l->params, h);
    if (UNLIKELY(l->groups != NULL)) h = ph_mix(h, ph_hash(5, l->groups, sizeof *l->groups));
    if (UNLIKELY(l->sequences != NULL)) h = ph_mix(h, ph_hash(11, l->sequences, sizeof *l->sequences));
    if (UNLIKELY(l->layout != NULL)) h = ph_layout_mix(l->layout, h);
    if (UNLIKELY(l->images != NULL)) h = ph_mix(h, ph_hash(7, l->images, sizeof *l->images));
    if (UNLIKELY(l->operands != NULL)) h = ph_operands_mix(l->operands, h);
    return h ? h : 1;
}

static ph_describe describe(const launch *l) {
    if (l->operands) return describe_sized;
    if (l->kernel->program) return describe_triton;
    if (l->images) return describe_scaled;
    if (l->sequences) return describe_sequences;
    return l->groups ? describe_grouped : l->layout ? describe_strided : describe_kernel;
}

/* A launch within a capture whose sequences have the lengths that memory says at each launch of the graph. */
typedef struct captured {
    launch launch;
    ph_lengths lengths;
} captured;

/* Returns what it costs by the lengths of now; NULL: as when it was captured. */
static const ph_cost *cost_of_captured(const void *what) {
    const captured *it = what;
    launch l = it->launch;
    ph_sequences sequences;
    if (!ph_sequences_of(&it->lengths, &sequences)) return NULL;
    l.sequences = &sequences;
    const ph_cost *cost = ph_cost_of(key_of(&l), describe(&l), &l);
    return cost->source == PH_SOURCE_UNRECOGNISED ? NULL : cost;
}

static void price_at_launch(ph_stream *stream, const launch *l, const ph_lengths *lengths) {
    captured *it = ph_allocate(sizeof *it);
    *it = (captured){*l, *lengths};
    it->launch.layout = NULL, it->launch.images = NULL, it->launch.operands = NULL, it->launch.params = NULL;
    ph_capture_priced(stream, cost_of_captured, it);
}

/* Makes what the thread launches belong to a product of groups; sizes: the fields of ph_groups in order, NULL: it
 * does not any more. */
PH_EXPORT void phantora_groups(const uint64_t *sizes) {
    static const uint64_t none[sizeof(ph_groups) / sizeof *sizes];
    memcpy(&ph_self()->groups, sizes ? sizes : none, sizeof(ph_groups));
}

/* Makes what the thread launches belong to an attention; sizes: the fields of ph_sequences in order, NULL: it does
 * not any more. */
PH_EXPORT void phantora_sequences(const uint64_t *sizes) {
    static const uint64_t none[sizeof(ph_sequences) / sizeof *sizes];
    memcpy(&ph_self()->sequences, sizes ? sizes : none, sizeof(ph_sequences));
}

/* The checks that CUDA makes before a launch. */
static int check(const ph_kernel *kernel, const launch *l) {
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    if (UNLIKELY(threads == 0 || threads > PH_MAX_BLOCK_THREADS || l->block.z > PH_MAX_BLOCK_Z || l->grid.x == 0 ||
                 l->grid.y - 1u >= PH_MAX_GRID_YZ || l->grid.z - 1u >= PH_MAX_GRID_YZ || l->grid.x > INT32_MAX))
        return CUDA_INVALID_CONFIGURATION;
    if (UNLIKELY(l->shared_nbytes > PH_SHARED_WITHOUT_OPTIN) && l->shared_nbytes > (size_t)kernel->max_dynamic_shared)
        return CUDA_INVALID_VALUE;
    return CUDA_OK;
}

/* Threads of the program that launch in turns: a thread other than the first that takes over twice, while another has
 * launched in between. Their order is that of this machine, which is worth knowing.
 */
static void note_turn(ph_thread *thread) {
    static _Atomic(ph_thread *) first, last;
    if (LIKELY(atomic_load_explicit(&last, memory_order_relaxed) == thread) || thread->uncounted) return;
    if (ph_thread_kind() != PH_THREAD_PROGRAM) return;
    atomic_store_explicit(&last, thread, memory_order_relaxed);
    ph_thread *nobody = NULL;
    if (atomic_compare_exchange_strong(&first, &nobody, thread) || nobody == thread) return;
    if (++thread->launch_turns == 2)
        ph_warn_once(
            "threads launch in turns",
            "threads of the program give the GPU work side by side; their order is that of this machine, so times "
            "and memory may differ from run to run");
}

/* Tells whether the operation's writes are known without its kernel. emu/control knows what operations of ATen
 * write, also those that make kernels by NVRTC. Operations of flash-attn write to memory that was just allocated,
 * and read where sequences end by pointers in structs. */
static bool writes_are_known(const ph_op *op) {
    return strncmp(op->name, "aten::", 6) == 0 || strncmp(op->name, "flash_attn::", 12) == 0;
}

/* Returns the kind of a launch by how long ago the thread launched the kernel: what the driver and PyTorch keep of it
 * is in the caches, or is not. */
static ph_call_kind kind_of(ph_thread *thread, ph_kernel *kernel) {
    static _Atomic uint32_t nlaunched;
    if (UNLIKELY(!kernel) || UNLIKELY(thread->uncounted)) return PH_CALL_LAUNCH;
    uint32_t number = atomic_load_explicit(&kernel->number, memory_order_relaxed);
    if (UNLIKELY(!number)) {
        uint32_t next = 1 + atomic_fetch_add(&nlaunched, 1);
        if (atomic_compare_exchange_strong(&kernel->number, &number, next)) number = next;
    }
    uint64_t age = ph_thread_age(thread, &thread->kernels, number);
    return age <= ph_cfg.hot_within_functions ? PH_CALL_HOT_LAUNCH : PH_CALL_LAUNCH;
}

int ph_kernel_launch(ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes, ph_stream *stream,
                     void *const *params) {
    ph_thread *thread = ph_self();
    note_turn(thread);
    ph_host_call(kind_of(thread, kernel));
    if (UNLIKELY(!stream)) return CUDA_INVALID_HANDLE;
    if (UNLIKELY(!kernel)) return CUDA_INVALID_DEVICE_FUNCTION;
    ph_layout layout;
    bool strided = UNLIKELY(kernel->has_layout) && ph_layout_of(kernel, params, &layout);
    ph_images images;
    bool scaled = UNLIKELY(kernel->images >= 0) && ph_images_of(kernel, params, &images);
    const ph_lengths *lengths = !kernel->program && thread->lengths.sequences ? &thread->lengths : NULL;
    ph_sequences sequences;
    bool measured = UNLIKELY(lengths != NULL) && ph_sequences_of(lengths, &sequences);
    launch l = {.kernel = kernel,
                .grid = grid,
                .block = block,
                .shared_nbytes = shared_nbytes,
                .op = ph_current_op(),
                .groups = thread->groups.groups ? &thread->groups : NULL,
                .sequences = thread->sequences.sequences ? &thread->sequences
                             : measured                  ? &sequences
                                                         : NULL,
                .layout = strided ? &layout : NULL,
                .images = scaled ? &images : NULL,
                .params = params};
    int status = check(kernel, &l);
    if (LIKELY(status == CUDA_OK)) status = ph_stream_usable(stream);
    if (UNLIKELY(status)) return status;
    if (UNLIKELY(kernel->peers) && ph_peer_functions.launch(kernel, params, stream)) {
        if (params && (!kernel->stores || *kernel->stores)) ph_kernel_stores(kernel, params, stream);
        return CUDA_OK;
    }
    ph_operands operands;
    uint64_t key = key_of(&l);
    /* A kernel that no model knows by its grid is asked for again with its operands. Whether a model knows it is a
     * function of the key, the same for every rank. */
    if (params && !kernel->program && ph_cost_of(key, describe(&l), &l)->source == PH_SOURCE_UNRECOGNISED &&
        ph_operands_of(kernel, params, &operands)) {
        l.operands = &operands;
        key = key_of(&l);
    }
    ph_launch_work(stream, key, describe(&l), &l);
    if (UNLIKELY(lengths && stream->capture)) price_at_launch(stream, &l, lengths);
    if (UNLIKELY(kernel->program != NULL)) {
        if (!ph_program_compute(kernel->program, grid, params)) ph_program_overwrites(kernel->program, params, stream);
        if (params) ph_program_store(kernel->program);
    } else if (UNLIKELY(!kernel->stores || *kernel->stores) && params && !writes_are_known(l.op))
        ph_kernel_stores(kernel, params, stream);
    if (UNLIKELY(kernel->peers)) ph_peer_functions.launched(kernel, params, stream);
    return CUDA_OK;
}
