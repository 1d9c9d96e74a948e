/* Host time: what takes it, and the clocks of the rank's threads. */
#ifndef PHANTORA_HOST_H
#define PHANTORA_HOST_H

#include "core/base.h"

/* What takes host time. The names are those of the host description's keys. */
typedef enum {
#define CALL(NAME, name, text) PH_CALL_##NAME,
#define WORK(NAME, name, text) PH_WORK_##NAME,
#include "calls/host_costs.def"
#undef CALL
#undef WORK
    PH_HOST_KINDS
} ph_host_kind;
typedef ph_host_kind ph_call_kind;

/* As the device file calls it. */
const char *phantora_host_kind(int kind);

struct ph_thread;

/* Every emulated call names its kind once; advances the host clock of the calling thread (not on threads of torch that
 * only watch). */
#define ph_host_call(kind) ph_host_call_of(kind, __func__)
void ph_host_call_of(ph_call_kind kind, const char *caller);
/* n units of the program's own work on the calling thread. */
void ph_host_work(ph_host_kind kind, uint64_t n);
/* A Python function entered, or resumed. */
void ph_host_frame(struct ph_thread *thread, uint64_t ns);
/* An operator began (one NVTX range). */
void ph_host_op(void);
void ph_host_advance(uint64_t ns);

/* What the thread does in between is not the program's work, and takes no host time. */
void ph_host_aside_begins(struct ph_thread *thread);
void ph_host_aside_ends(struct ph_thread *thread);
/* Does all that the calling thread does take no virtual time? See phantora_uncounted. */
bool ph_uncounted(void);

/* The calling thread starts a backward pass. */
void ph_host_backward(void);
/* Autograd's thread begins a node of one. */
void ph_host_node_begins(void);
/* The outermost range of a thread has ended. */
void ph_host_range_ends(struct ph_thread *thread);

/* The instant of a record of the calling thread: never before that of an earlier record. */
uint64_t ph_host_clock(void);
/* The same instant, without making it that of a record. */
uint64_t ph_host_clock_now(void);
void ph_host_reset(void);
/* The virtual time now: asks, and waits for the answer. */
uint64_t phantora_clock_ns(void);
/* The virtual time last heard of, plus the host time since: never asks. */
uint64_t ph_clock_estimate(void);

#endif
