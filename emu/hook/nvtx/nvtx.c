/*
 * NVTX ranges: torch's emit_nvtx says through them which op with which sizes the launches belong to.
 *
 *   aten::linear, seq = 12, op_id = 40, sizes = [[8, 64], [64, 64], [64]], input_op_ids = [...]
 *
 * Name and sizes are interned: one record for each different pair, so that pushing a range writes nothing and an op
 * stays readable for ever. Steps are recognised here too: a range `Optimizer.step...` that ends after a backward node
 * has run since the last step ends a step, as far as can be told without looking ahead; of several optimizers in a row
 * the first. A range or mark named `phantora.step` says so explicitly and switches the rule off.
 */
#include "nvtx/nvtx.h"
#include "nvtx/tensor_work.h"
#include "core/lock.h"
#include "op_stream/emit.h"
#include "op_stream/module_counts.h"
#include "core/config.h"
#include "core/run.h"
#include "core/hash.h"
#include "core/interned.h"
#include "threads/host.h"
#include "threads/thread.h"
#include "op_stream/trace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A property of PyTorch, not of the host: ages count Python functions entered (frames.c), and an operator runs as
 * much code as so many. */
enum { OPERATOR_AGE = 8 };

static ph_interned known; /* ops by name and sizes */

static struct {
    atomic_bool backward_seen, explicit;
    _Atomic int64_t ended;
} steps;

bool (*ph_step_captured)(const char *name);

const ph_op ph_no_op = {.name = "", .sizes = "", .key = 0};

/* ---- the text ---------------------------------------------------------------------------------------------------- */

typedef struct parsed {
    const char *name, *sizes;
    size_t nname, nsizes;
    bool numbered; /* PyTorch's own */
} parsed;

static bool begins(const char *text, const char *with, size_t n) { return strncmp(text, with, n) == 0; }

static parsed parse(const char *message) {
    parsed p = {.name = message, .sizes = ""};
    const char *comma = message;
    while ((comma = strchr(comma, ','))) {
        if (begins(comma, ", seq = ", 8) || begins(comma, ", op_id = ", 10) || begins(comma, ", sizes = ", 10)) break;
        comma++;
    }
    p.numbered = comma != NULL;
    p.nname = comma ? (size_t)(comma - message) : strlen(message);
    while (comma && !begins(comma, ", sizes = ", 10)) comma = strchr(comma + 1, ',');
    if (!comma) return p;
    p.sizes = comma + 10;
    int depth = 0;
    const char *end = p.sizes;
    for (; *end; end++) {
        depth += *end == '[' ? 1 : *end == ']' ? -1 : 0;
        if (depth == 0) break;
    }
    p.nsizes = (size_t)(end - p.sizes) + (*end == ']');
    return p;
}

/* ---- interning --------------------------------------------------------------------------------------------------- */

static bool one_of(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Returns the kind of host work of a range, by its name. PyTorch's own ranges have numbers, and sizes unless the
 * program asked for them (record_function); what else announces itself by NVTX takes next to nothing where nobody
 * listens. A view takes two thirds of another operator's time, one that takes memory twice as much: jobs' host time
 * would be off by 0.2 to 1.2 % without these names. */
static ph_host_kind work_of(const char *text, bool numbered, bool sized) {
    static const char *const views[] = {
        "alias",        "as_strided",  "chunk",      "detach",    "diagonal",   "expand",           "expand_as",
        "flatten",      "lift_fresh",  "movedim",    "narrow",    "numpy_T",    "permute",          "real",
        "reshape",      "result_type", "select",     "slice",     "split",      "split_with_sizes", "squeeze",
        "squeeze_",     "t",           "t_",         "transpose", "transpose_", "unbind",           "unflatten",
        "unsafe_split", "unsqueeze",   "unsqueeze_", "view",      "view_as",    "_reshape_alias",   "_unsafe_view",
        "resolve_conj", "resolve_neg", "swapaxes"};
    static const char *const takes_memory[] = {"empty",     "empty_like",        "empty_strided",
                                               "new_empty", "new_empty_strided", "resize_"};
    static const char *const reads[] = {"item", "_local_scalar_dense", "is_nonzero"};
    if (!numbered) return PH_HOST_KINDS;
    if (begins(text, "autograd::engine::evaluate_function", 35)) return PH_WORK_NODE;
    if (!sized) return PH_WORK_SCOPE;
    if (strcmp(text, "PythonSubclass") == 0) return PH_WORK_PYTHON_OP; /* PyTorch's fallback to __torch_dispatch__ */
    if (begins(text, "c10d::", 6)) return PH_WORK_COLLECTIVE;
    if (begins(text, "aten::", 6)) {
        if (one_of(text + 6, views, sizeof views / sizeof *views)) return PH_WORK_VIEW;
        if (one_of(text + 6, takes_memory, sizeof takes_memory / sizeof *takes_memory)) return PH_WORK_EMPTY;
        if (one_of(text + 6, reads, sizeof reads / sizeof *reads)) return PH_WORK_VALUE;
        return text[strlen(text) - 1] == '_' ? PH_WORK_IN_PLACE : PH_WORK_OP;
    }
    if (strcmp(text, "detach") == 0) return PH_WORK_VIEW;
    /* Ranges that only tell a profiler about a collective: nothing happens there. */
    if (begins(text, "record_param_comms", 18) || begins(text, "nccl:", 5) || begins(text, "gloo:", 5))
        return PH_HOST_KINDS;
    /* Other libraries' operators have a namespace, too; a node of the backward pass is named like its class. */
    return strstr(text, "::") || strstr(text, "Backward") ? PH_WORK_OP : PH_WORK_CUSTOM;
}

static bool of_other_library(const char *text) {
    return strstr(text, "::") && !begins(text, "aten::", 6) && !begins(text, "c10d::", 6) &&
           !begins(text, "torch::", 7);
}

/* Tensors in the lists of an operator that takes whole lists: PyTorch prints the sizes of one after the other. Those of
 * another library's operator are boxed one by one, too. */
static uint32_t listed(const char *text, const char *sizes, bool boxed) {
    if (!boxed && !begins(text, "aten::_foreach_", 15) && !begins(text, "aten::_fused_", 13)) return 0;
    uint32_t n = 0;
    for (int depth = 0; *sizes; sizes++) {
        depth += *sizes == '[' ? 1 : *sizes == ']' ? -1 : 0;
        n += *sizes == '[' && depth == 2 && !(boxed && sizes[1] == ']');
    }
    return n;
}

/* A number for each name; under the writers' lock. */
static uint32_t number_of(const char *name) {
    static const char **names;
    static uint32_t n, capacity;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    if (n == capacity) {
        capacity = capacity ? 2 * capacity : 256;
        names = realloc(names, capacity * sizeof *names);
        if (!names) ph_die("out of host memory");
    }
    names[n] = name;
    return n++;
}

static ph_known_op *new_op(uint64_t key, const parsed *p) {
    ph_known_op *op = calloc(1, sizeof *op + p->nname + p->nsizes + 2);
    if (!op) ph_die("out of host memory");
    char *text = (char *)(op + 1);
    memcpy(text, p->name, p->nname);
    memcpy(text + p->nname + 1, p->sizes, p->nsizes);
    op->op = (ph_op){.name = text, .sizes = text + p->nname + 1, .key = key};
    op->backward = begins(text, "autograd::engine::evaluate_function", 35);
    op->optimizer = begins(text, "Optimizer.step", 14);
    op->step = strcmp(text, "phantora.step") == 0;
    op->work = work_of(text, p->numbered, p->nsizes > 0);
    op->dispatched = op->work != PH_HOST_KINDS && op->work != PH_WORK_SCOPE;
    op->number = op->dispatched ? number_of(text) : 0;
    op->boxed = op->dispatched && !op->backward && of_other_library(text);
    op->tensors = ph_tensor_op_of(text);
    op->nlisted = listed(text, op->op.sizes, op->boxed);
    /* They tell their kernel where the pieces lie by a table that they copy to the device: up to megabytes a call. */
    op->kernel_data = strcmp(text, "aten::_chunk_cat") == 0 || strcmp(text, "aten::split_with_sizes_copy") == 0;
    return op;
}

static const ph_known_op *intern(const parsed *p) {
    uint64_t key = ph_hash(ph_hash(p->numbered ? 3 : 4, p->name, p->nname), p->sizes, p->nsizes);
    const ph_known_op *op = ph_interned_get(&known, key);
    if (LIKELY(op != NULL)) return op;
    ph_lock(PH_LOCK_OPS);
    op = ph_interned_get(&known, key);
    if (!op) {
        op = new_op(key, p);
        ph_interned_put(&known, key, op);
    }
    ph_unlock(PH_LOCK_OPS);
    return op;
}

static const ph_known_op *known_op(const char *message) {
    parsed p = parse(message);
    return intern(&p);
}

const ph_known_op *ph_known_op_of(const char *name, const char *sizes) {
    return intern(
        &(parsed){.name = name, .sizes = sizes, .nname = strlen(name), .nsizes = strlen(sizes), .numbered = true});
}

/* ---- ranges and steps -------------------------------------------------------------------------------------------- */

enum { MAX_MARKER_NAME = 1024 };

static _Atomic(void (*)(void)) at_step;

/* `run` is called at the end of every step, on the thread that ends it, and may emit records. */
PH_EXPORT void phantora_at_step(void (*run)(void)) { atomic_store(&at_step, run); }

static void marker(uint32_t kind, const char *name) {
    if (kind == PH_MARKER_STEP) {
        ph_module_step_ends(); /* before `run`, which may end the rank */
        void (*run)(void) = atomic_load(&at_step);
        if (run) run();
        ph_emit_counters();
    }
    struct ph_MARKER record = {.marker = kind};
    ph_emit(PH_KIND_MARKER, &record, sizeof record, name, strnlen(name, MAX_MARKER_NAME));
    if (kind == PH_MARKER_STEP) ph_trace_step();
}

PH_EXPORT void phantora_marker(uint32_t kind, const char *name) { marker(kind, name ? name : ""); }

/* The optimizers' steps that have ended, each after a backward pass, whether or not the program says itself where its
 * steps end: one rank of several may say so. -1 on a thread of the backward pass, whose step is that of its forward
 * pass. */
PH_EXPORT int64_t phantora_steps_ended(void) {
    return ph_thread_kind() == PH_THREAD_AUTOGRAD ? -1 : atomic_load(&steps.ended);
}

/* A replayed graph may be the backward pass: it announces nothing. */
void ph_graph_replayed(void) { atomic_store_explicit(&steps.backward_seen, true, memory_order_relaxed); }

/* A launched graph contains an optimizer's step. */
void ph_step_replayed(const char *name) {
    if (!atomic_exchange(&steps.backward_seen, false)) return;
    atomic_fetch_add(&steps.ended, 1);
    if (!atomic_load(&steps.explicit)) marker(PH_MARKER_STEP, name);
}

static void explicit_step(const ph_known_op *op) {
    atomic_store(&steps.explicit, true);
    marker(PH_MARKER_STEP, op->op.name);
}

const char *ph_current_work(void) {
    const ph_thread *thread = ph_self();
    int n = thread->nranges < PH_MAX_RANGES ? thread->nranges : PH_MAX_RANGES;
    for (int i = n - 1; i >= 0; i--) {
        const ph_known_op *op = thread->ranges[i];
        if (op->dispatched && op->work != PH_WORK_EMPTY && op->work != PH_WORK_VIEW) return op->op.name;
    }
    return NULL;
}

/* The thread is in no operator or node that began after its innermost Python function. */
static bool called_by_python(const ph_thread *thread) { return thread->ndispatched == thread->frame_dispatched; }

static enum ph_hands hands_of(const ph_thread *thread, const ph_known_op *op) {
    if (op->backward) return PH_HANDS_TO_ALL;
    if (!op->dispatched) return PH_HANDS_TO_NONE;
    return op->boxed && called_by_python(thread) ? PH_HANDS_BOXED : PH_HANDS_TO_NEXT;
}

static void charge(ph_thread *thread, const ph_known_op *op) {
    if (UNLIKELY(ph_thread_is_watcher())) return;
    if (op->backward) ph_host_node_begins();
    ph_host_op();
    if (UNLIKELY(thread->aside)) return;
    if (op->work == PH_HOST_KINDS) return;
    /* A scope that C++ code of PyTorch announces within an operator, such as 2.15's backend of NCCL, takes next to
     * nothing: a scope's price is that of record_function, which Python enters. */
    if (op->work == PH_WORK_SCOPE && !called_by_python(thread)) return;
    ph_host_work(op->work, 1);
    if (op->dispatched) {
        thread->age += OPERATOR_AGE;
        uint64_t age = ph_thread_age(thread, &thread->operators, op->number);
        if (age > ph_cfg.cold_after_functions)
            ph_host_work(age > ph_cfg.warm_within_functions ? PH_WORK_COLD_OP : PH_WORK_WARM_OP, 1);
    }
    if (op->dispatched && !op->backward && called_by_python(thread)) ph_host_work(PH_WORK_OUTER_OP, 1);
    if (op->nlisted) ph_host_work(PH_WORK_LISTED, op->nlisted);
}

void ph_range_push(const char *message) { ph_range_push_op(known_op(message)); }

static _Atomic bool generates;

void ph_program_generates(void) { atomic_store_explicit(&generates, true, memory_order_relaxed); }

static void backward_begins(void) {
    if (atomic_exchange(&steps.backward_seen, true)) return;
    if (atomic_load_explicit(&generates, memory_order_relaxed)) ph_emit(PH_KIND_TRAINING, NULL, 0, NULL, 0);
}

void ph_range_push_op(const ph_known_op *op) {
    ph_thread *thread = ph_self();
    int depth = thread->nranges++;
    if (depth < PH_MAX_RANGES) {
        thread->ranges[depth] = op;
        thread->hands[depth] = hands_of(thread, op);
    }
    if (UNLIKELY(ph_tracing)) ph_trace_range(true, op->op.key, op->op.name, op->op.sizes, depth);
    if (LIKELY(!thread->uncounted)) { /* a compiler that traces a backward pass ends no step */
        if (op->backward && !atomic_load_explicit(&steps.backward_seen, memory_order_relaxed)) backward_begins();
        if (op->optimizer && thread->optimizer_depth == 0) thread->optimizer_depth = depth + 1;
    }
    if (op->kernel_data && thread->kernel_data_depth == 0) thread->kernel_data_depth = depth + 1;
    charge(thread, op);
    thread->ndispatched += op->dispatched && depth < PH_MAX_RANGES;
}

void ph_range_pop(void) {
    ph_thread *thread = ph_self();
    if (thread->nranges == 0) return;
    int depth = --thread->nranges;
    if (UNLIKELY(ph_tracing)) ph_trace_range(false, 0, "", "", depth);
    if (depth == 0) ph_host_range_ends(thread);
    const ph_known_op *op = depth < PH_MAX_RANGES ? thread->ranges[depth] : NULL;
    if (op && op->dispatched && --thread->ndispatched == 0) thread->outer_ops++;
    if (UNLIKELY(op && op->step)) explicit_step(op);
    if (thread->kernel_data_depth == depth + 1) thread->kernel_data_depth = 0;
    if (LIKELY(thread->optimizer_depth != depth + 1)) return;
    thread->optimizer_depth = 0;
    if (!op || !atomic_exchange(&steps.backward_seen, false)) return;
    bool captured = ph_step_captured(op->op.name);
    if (!captured) atomic_fetch_add(&steps.ended, 1);
    if (!captured && !atomic_load(&steps.explicit)) marker(PH_MARKER_STEP, op->op.name);
}

void ph_range_mark(const char *message) {
    if (strcmp(message, "phantora.step") == 0) explicit_step(known_op(message));
}
