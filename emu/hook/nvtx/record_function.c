/*
 * Ranges of PyTorch's own, without the text that NVTX wants.
 *
 * PyTorch's NVTX profiler writes name and sizes of every op into a text, and remembers which op made each tensor. Both
 * take more time than most ops. Here the callbacks that it registers (at::RecordFunctionCallback) are replaced: ours
 * get the same ranges, on the same threads, and look op and sizes up by their numbers. The text of an op is written
 * when it is first seen, so ranges are the same either way.
 *
 * PyTorch's libraries call at::addThreadLocalCallback through the dynamic linker, which finds the one below first. What
 * is known of C++ objects: a callback begins with its two functions and a double, then come a flag for each scope
 * and three more; a vector is three pointers. If a torch lacks what is needed, its callbacks stay and NVTX is used.
 *
 * Nested tensors have no sizes: PyTorch throws an exception when it is asked for them, catches it outside of the
 * callback and logs it, with a stack, for each op. Such an op has a name alone here, and the message is left out.
 *
 * Of a traced tensor, to ask for a size makes a constant of a size that was to stay open: Python code that would do so
 * looks at `phantora_ranges_asking` (emu/interpreter/nvtx_ranges.py).
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/lock.h"
#include "core/hash.h"
#include "core/interned.h"
#include "core/run.h"
#include "../private/symbols.h"
#include "nvtx/nvtx.h"
#include "nvtx/tensor_work.h"
#include "nvtx/tensors.h"
#include "threads/host.h"
#include "threads/modules.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLAGS = 40, NEEDS_OUTPUTS = 1, NEEDS_IDS = 2, NEEDS = 3 /* inputs, outputs, ids: after the scopes */ };

/* at::RecordFunctionCallback, passed by value; the real one may be shorter. */
typedef struct callback {
    void *(*start)(void **observer, const void *function);
    void (*end)(const void *function, void *observer);
    double sampling;
    unsigned char flags[MAX_FLAGS];
} callback;

typedef struct sizes {
    const int64_t *begin, *end, *capacity;
} sizes;

typedef struct sizes_of_inputs {
    sizes *begin, *end, *capacity;
} sizes_of_inputs;

static struct {
    const char *(*name)(const void *function);
    void (*input_sizes)(sizes_of_inputs *result, const void *function, bool with_lists);
    void (*delete)(void *);
    uint64_t (*add)(callback);
    void (*remove)(uint64_t);
} torch;

static callback ours; /* as registered last; without functions if it was left as it is */

static _Thread_local int scopes; /* of the callback that this thread is about to register; 0: not ours */

/* ---- known ops --------------------------------------------------------------------------------------------------- */

static ph_interned known; /* by name and sizes as PyTorch has them */

/* [[8, 64], [], [64]]; "" for no inputs. The caller frees it. */
static char *text_of(const sizes_of_inputs *inputs) {
    enum { MOST_DIGITS = 24 };
    size_t room = 3;
    for (const sizes *input = inputs->begin; input < inputs->end; input++)
        room += 4 + MOST_DIGITS * (size_t)(input->end - input->begin);
    char *text = ph_allocate(room), *at = text;
    *at = 0;
    if (inputs->begin == inputs->end) return text;
    for (const sizes *input = inputs->begin; input < inputs->end; input++) {
        at += sprintf(at, input == inputs->begin ? "[[" : ", [");
        for (const int64_t *size = input->begin; size < input->end; size++)
            at += sprintf(at, size == input->begin ? "%lld" : ", %lld", (long long)*size);
        *at++ = ']';
    }
    strcpy(at, "]");
    return text;
}

static uint64_t key_of(const char *name, const sizes_of_inputs *inputs) {
    uint64_t key = ph_hash(1, name, strlen(name));
    for (const sizes *input = inputs->begin; input < inputs->end; input++) {
        key = ph_mix(key, (uint64_t)(input->end - input->begin));
        for (const int64_t *size = input->begin; size < input->end; size++) key = ph_mix(key, (uint64_t)*size);
    }
    return key ? key : 1;
}

static const ph_known_op *op_of(const char *name, const sizes_of_inputs *inputs) {
    uint64_t key = key_of(name, inputs);
    const ph_known_op *op = ph_interned_get(&known, key);
    if (LIKELY(op != NULL)) return op;
    char *text = text_of(inputs);
    op = ph_known_op_of(name, text);
    free(text);
    ph_lock(PH_LOCK_RECORDED_OPS);
    if (!ph_interned_get(&known, key)) ph_interned_put(&known, key, op);
    ph_unlock(PH_LOCK_RECORDED_OPS);
    return op;
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

static _Thread_local bool unsized; /* the calling thread's last range began with an exception */
static _Thread_local bool asking;  /* the calling thread asks PyTorch for sizes */

/* Runs when `begins` is left by an exception: the range has begun all the same, as PyTorch will end it. */
static void without_sizes(const char **name) {
    asking = false;
    if (!*name) return;
    unsized = true;
    ph_range_push_op(op_of(*name, &(sizes_of_inputs){0}));
}

static void work_on_tensors(const ph_known_op *op, const void *function) {
    ph_thread *thread = ph_self();
    if (!thread->aside && !thread->uncounted && !ph_thread_is_watcher()) ph_tensor_work(thread, op, function);
}

/* ---- nodes -----------------------------------------------------------------------------------------------------
 *
 * A range keeps the number of a node of autograd's graph: an operator's is that of the next node that its thread makes,
 * a node's its own. Where it lies in at::RecordFunction is no part of PyTorch's interface. It is found out: of the
 * words of operators' ranges, it is the one that is the next node's number time and again, whatever that is. Ranges
 * that autograd does not record have another value there, and other words are as large by chance. */
enum { RANGE_WORDS = 48, SURE = 8 };

static struct {
    atomic_uint_fast64_t last; /* the number that was compared last */
    atomic_int same[RANGE_WORDS];
    atomic_int at; /* the word, 0 while it is not known: an object begins with something else */
} node;

static void find_node(const uint64_t *range, uint64_t next) {
    if (next == 0 || atomic_exchange(&node.last, next) == next) return;
    int most = 0, second = 0;
    for (int word = 1; word < RANGE_WORDS; word++) {
        int same = atomic_fetch_add(&node.same[word], range[word] == next) + (range[word] == next);
        if (same > node.same[most]) {
            second = most;
            most = word;
        } else if (same > node.same[second]) {
            second = word;
        }
    }
    if (node.same[most] >= SURE && 2 * node.same[second] < node.same[most]) atomic_store(&node.at, most);
}

/* A range begins within `outer`, NULL if within none. */
static void note_module(ph_thread *thread, const ph_known_op *op, const ph_known_op *outer, const void *function) {
    if (!ph_modules_known || thread->uncounted || thread->aside || !thread->nodes_known) return;
    const uint64_t *range = function;
    int at = atomic_load_explicit(&node.at, memory_order_relaxed);
    bool is_node = outer && outer->backward;
    if (UNLIKELY(at == 0)) {
        if (op->dispatched && !op->backward && !is_node) find_node(range, thread->nodes);
        return;
    }
    if (is_node)
        ph_module_runs(range[at]);
    else if (range[at] == thread->nodes)
        ph_module_makes(thread->nodes);
}

static void *begins(void **observer, const void *function) {
    ph_thread *thread = ph_self();
    ph_host_nodes(thread);
    sizes_of_inputs inputs;
    const char *name = torch.name(function);
    __attribute__((cleanup(without_sizes))) const char *uncertain = name;
    asking = true;
    torch.input_sizes(&inputs, function, true);
    asking = false;
    uncertain = NULL;
    const ph_known_op *op = op_of(name, &inputs);
    int depth = thread->nranges;
    note_module(thread, op, depth > 0 && depth <= PH_MAX_RANGES ? thread->ranges[depth - 1] : NULL, function);
    ph_range_push_op(op);
    if (UNLIKELY(ph_tensors_are_sought)) ph_tensors_look(name, function);
    if (op->tensors && ph_tensors_known()) work_on_tensors(op, function);
    for (sizes *input = inputs.begin; input < inputs.end; input++)
        if (input->begin) torch.delete((void *)input->begin);
    if (inputs.begin) torch.delete(inputs.begin);
    *observer = NULL;
    return observer;
}

static void ends(const void *function, void *observer) {
    (void)function;
    (void)observer;
    ph_host_nodes(ph_self());
    ph_range_pop();
}

/* c10::SourceLocation */
typedef struct source_location {
    const char *function, *file;
    uint32_t line;
} source_location;

typedef void (*logger_function)(void *, source_location, int, bool);

enum { INFO, WARNING };

/* c10::MessageLogger::MessageLogger(c10::SourceLocation, int, bool): PyTorch is about to log a message. */
PH_EXPORT void _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib(void *, source_location, int, bool);
PH_EXPORT void _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib(void *self, source_location at, int severity, bool end) {
    static _Atomic(logger_function) known;
    logger_function theirs = atomic_load(&known);
    if (!theirs) {
        void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD),
             *found = library ? dlsym(library, __func__) : NULL;
        if (!found) ph_die("libc10.so, which called the hook library, has no function %s", __func__);
        memcpy(&theirs, &found, sizeof theirs);
        atomic_store(&known, theirs);
    }
    if (unsized && severity == WARNING && strstr(at.file, "record_function.cpp")) {
        unsized = false;
        severity = INFO;
    }
    theirs(self, at, severity, end);
}

/* PyTorch's libraries are not in the global scope: they are searched from the library that calls. */
static bool find_torch(const void *caller) {
    static const struct {
        enum ph_symbol symbol;
        void *to;
    } needed[] = {{PH_SYMBOL_ADD_CALLBACK, &torch.add},
                  {PH_SYMBOL_REMOVE_CALLBACK, &torch.remove},
                  {PH_SYMBOL_RANGE_NAME, &torch.name},
                  {PH_SYMBOL_INPUT_SIZES, &torch.input_sizes},
                  {PH_SYMBOL_DELETE, &torch.delete}};
    Dl_info about;
    void *library = dladdr(caller, &about) ? dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    bool all = library != NULL;
    for (size_t i = 0; library && i < sizeof needed / sizeof *needed; i++) {
        void *address = dlsym(library, ph_symbol_name(needed[i].symbol));
        memcpy(needed[i].to, &address, sizeof address);
        all = all && address;
    }
    if (library) ph_tensors_functions(library);
    void *nodes_made = library ? dlsym(library, ph_symbol_name(PH_SYMBOL_SEQUENCE_NUMBER)) : NULL;
    memcpy(&ph_nodes_made, &nodes_made, sizeof nodes_made);
    if (library) dlclose(library);
    if (!torch.add) ph_die("at::addThreadLocalCallback is not where it is called from");
    return all;
}

/* The profiler asks for all scopes, and for inputs, outputs and ids. */
static bool as_expected(const callback *registered) {
    for (int i = 0; i < scopes + NEEDS; i++)
        if (registered->flags[i] != 1) return false;
    return scopes > 0;
}

/* The next callback that the calling thread registers is that of PyTorch's NVTX profiler. `n`: the kinds of ranges
 * (at::RecordScope) that PyTorch has. */
PH_EXPORT void phantora_ranges_next(int n) { scopes = n > 0 && n + NEEDS <= MAX_FLAGS ? n : 0; }

/* at::addThreadLocalCallback(at::RecordFunctionCallback) */
PH_EXPORT uint64_t _ZN2at22addThreadLocalCallbackENS_22RecordFunctionCallbackE(callback registered);
PH_EXPORT uint64_t _ZN2at22addThreadLocalCallbackENS_22RecordFunctionCallbackE(callback registered) {
    if (find_torch(__builtin_return_address(0)) && as_expected(&registered)) {
        registered.start = begins;
        registered.end = ends;
        registered.flags[scopes + NEEDS_OUTPUTS] = registered.flags[scopes + NEEDS_IDS] = 0;
        ours = registered;
    }
    scopes = 0;
    return torch.add(registered);
}

/* Is the calling thread within a question for an op's sizes? Then what answers is asked by nobody but us. */
PH_EXPORT int phantora_ranges_asking(void) { return asking; }

/* Has ranges announced on this thread, and on those that autograd runs for it, beside a profiler of the script. Returns
 * a number for `phantora_ranges_end`; 0: it cannot. */
PH_EXPORT uint64_t phantora_ranges_beside(void) { return ours.start ? torch.add(ours) : 0; }

PH_EXPORT void phantora_ranges_end(uint64_t handle) { torch.remove(handle); }
