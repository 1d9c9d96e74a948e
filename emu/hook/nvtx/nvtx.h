/*
 * nvtx/: PyTorch's ranges tell which op, with which sizes, the calls within belong to, and where steps end.
 * Comes in: ranges through NVTX's injection (injection) or from PyTorch itself (record_function).
 * Goes out: the current op of a thread; MARKER records.
 */
#ifndef PHANTORA_NVTX_H
#define PHANTORA_NVTX_H

#include "core/base.h"
#include "threads/host.h"
#include "threads/thread.h"

/* An op: name and sizes as torch prints them. */
typedef struct ph_op {
    const char *name;
    const char *sizes;
    uint64_t key;
} ph_op;
/* The name of the innermost operator or node of the calling thread that computes, instead of taking memory or making a
 * view; NULL if there is none. It stays readable. */
const char *ph_current_work(void);

typedef struct ph_known_op {
    ph_op op;
    uint32_t nname;
    bool backward, optimizer, step, kernel_data;
    ph_host_kind work; /* what it costs the host; PH_HOST_KINDS: nothing */
    bool dispatched;   /* an operator or a node, not a range that only announces something */
    bool boxed;        /* an operator of another library than PyTorch: Python reaches it through its schema */
    uint32_t number;   /* of its name */
    const struct ph_tensor_op *tensors; /* its work on tensors of the CPU; NULL: none of its own */
    uint32_t nlisted;                   /* tensors in lists that it takes */
} ph_known_op;
extern const ph_op ph_no_op; /* name and sizes "" */
/* The op that the calling thread is in (innermost range): nvtx.c has noted it in the thread. Stable until it ends. */
static inline const ph_op *ph_current_op(void) {
    const ph_thread *thread = ph_self();
    int n = thread->nranges;
    return n > 0 && n <= PH_MAX_RANGES ? &thread->ranges[n - 1]->op : &ph_no_op;
}
void ph_range_push(const char *message);
/* The range of a known op. */
void ph_range_push_op(const ph_known_op *op);
/* PyTorch's op of this name, with these sizes as PyTorch prints them. */
const ph_known_op *ph_known_op_of(const char *name, const char *sizes);
void ph_range_pop(void);
void ph_range_mark(const char *message);
/* An optimizer's step has ended on this thread. True if it is being captured: then each launch of the graph ends a
 * step. `name` stays valid. Set by graphs/. */
extern bool (*ph_step_captured)(const char *name);
/* A graph was launched. */
void ph_graph_replayed(void);
/* The program generates responses: from now on TRAINING records tell where backward passes begin. */
void ph_program_generates(void);
/* The launched graph has come to the end of a captured optimizer's step. */
void ph_step_replayed(const char *name);

#endif
