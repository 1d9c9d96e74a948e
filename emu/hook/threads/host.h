/* Host time: what takes it, and the clocks of the rank's threads. */
#ifndef PHANTORA_HOST_H
#define PHANTORA_HOST_H

#include "core/config.h"

struct ph_thread;

/* Every emulated call names its kind once; advances the host clock of the calling thread (not on threads of torch that
 * only watch). */
#define ph_host_call(kind) ph_host_call_of(kind, __func__)
void ph_host_call_of(ph_call_kind kind, const char *caller);
/* Is told of each call, by the thread that makes it; NULL: nobody is. Set by op_stream/trace.c while calls are traced.
 */
typedef void (*ph_call_listener)(uint32_t kind, const char *name, uint64_t start_ns, uint64_t end_ns);
extern _Atomic(ph_call_listener) ph_listens_to_calls;
/* n units of the program's own work on the calling thread. */
void ph_host_work(ph_host_kind kind, uint64_t n);
/* n units of the program's own work of a kind whose cost is in picoseconds. */
void ph_host_fine_work(ph_host_kind kind, uint64_t n);
/* n units of work on the calling thread, unless what it does now is not the program's. */
void ph_host_programs_work(ph_host_kind kind, uint64_t n);
/* Autograd nodes that the calling thread has made so far; NULL if this PyTorch does not say. Set by nvtx/. */
extern uint64_t (*ph_nodes_made)(void);
/* Charges for those that the calling thread has made since the last call, unless that was not the program's work. */
void ph_host_nodes(struct ph_thread *thread);
/* A Python function entered, or resumed. */
void ph_host_frame(struct ph_thread *thread, uint64_t ns);
/* An operator began (one NVTX range). */
void ph_host_op(void);
void ph_host_advance(uint64_t ns);

/* Mark the begin and the end of work of the thread that is not the program's, and takes no host time. */
void ph_host_aside_begins(struct ph_thread *thread);
void ph_host_aside_ends(struct ph_thread *thread);
/* Does all that the calling thread does take no virtual time? See phantora_uncounted. */
bool ph_uncounted(void);
/* Returns how many threads there are of which that is true. */
int ph_uncounted_threads(void);

/* The calling thread starts a backward pass. */
void ph_host_backward(void);
/* Autograd's thread begins a node of one. */
void ph_host_node_begins(void);
/* The outermost range of a thread has ended. */
void ph_host_range_ends(struct ph_thread *thread);

/* Grows with every call and op: what a program does besides its own Python functions. */
PH_EXPORT uint64_t phantora_activity(void);
/* The instant of a record of the calling thread: never before that of an earlier record. */
uint64_t ph_host_clock(void);
/* The instant that a record would have now; no record is made. */
uint64_t ph_host_clock_now(void);
void ph_host_reset(void);
/* The work of a thread up to an instant. */
typedef struct {
    uint64_t clock_ns, modelled_ns, age, counts[PH_HOST_KINDS];
} ph_host_mark;
void ph_host_remember(ph_host_mark *mark);
/* Takes back what the thread has done since: it takes no time, and leaves the host's caches as they were. */
void ph_host_return_to(const ph_host_mark *mark);
/* The clock becomes what it is now, not as of the last call: for questions about time. */
void ph_host_catch_up(void);

#endif
