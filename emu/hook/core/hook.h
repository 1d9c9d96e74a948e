/*
 * What the modules of the hook library offer each other. API entry points (cudaMalloc, cublasGemmEx, ncclAllReduce ...)
 * are thin: they turn one call into these few operations.
 */
#ifndef PHANTORA_HOOK_H
#define PHANTORA_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PH_EXPORT __attribute__((visibility("default")))

/* ---- config.c: what the coordinator tells before anything runs ------------------------------------------------- */
/* key=value lines of the run's device file, read once in the forker (phantora_load). Unknown keys are an error there.
 */
typedef struct ph_config {
    char device_name[256];
    int device_count;         /* GPUs per server, as this server's ranks see them */
    uint64_t memory_nbytes;   /* per GPU */
    uint64_t reserved_nbytes; /* context's and NCCL's share, never allocatable */
    int sm_count, cc_major, cc_minor;
    uint64_t data_limit_nbytes; /* larger copies, collectives and sets never touch bytes */
    uint64_t float_limit_count; /* nor do collectives of more floating-point elements a rank: no control data */
    enum { PH_HOST_NONE, PH_HOST_MODELLED, PH_HOST_MEASURED } host_mode;
    double host_scale;         /* measured: thread CPU time x scale */
    uint32_t host_ns[32];      /* by ph_host_kind (PH_HOST_KINDS of them) */
    uint32_t host_function_ns; /* what a host function takes of its stream */
    uint32_t queue_depth;      /* launches a host may be ahead: sent on to the scheduler, not used here */
} ph_config;
extern ph_config ph_cfg;

/* Device attributes and limits beyond these (cudaDeviceAttr numbers -> value) come as lines `attr.<number>=<value>`. */
bool ph_device_attribute(int cuda_attr, int *value);

/* ---- host.c: the host clocks of the rank's threads ------------------------------------------------------------- */
/* What takes host time. The names are those of the host description's keys (host_costs.def). */
typedef enum {
#define CALL(NAME, name, text) PH_CALL_##NAME,
#define WORK(NAME, name, text) PH_WORK_##NAME,
#include "core/host_costs.def"
#undef CALL
#undef WORK
    PH_HOST_KINDS
} ph_host_kind;
typedef ph_host_kind ph_call_kind;
/* Every emulated call names its kind once; advances the host clock of the calling thread (not on threads of torch that
 * only watch). */
void ph_host_call(ph_call_kind kind);
/* n units of the program's own work on the calling thread. */
void ph_host_work(ph_host_kind kind, uint64_t n);
void ph_host_advance(uint64_t ns);
/* true on the NCCL watchdog's, heartbeat's and similar threads: they never ask, never wait, never move the clock */
bool ph_thread_is_watcher(void);
/* The program was given device memory that nothing modelled wrote. */
void ph_count_unmodelled_read(void);

/* ---- warn.c ---------------------------------------------------------------------------------------------------- */
/* Once per name: goes to stderr and, as a WARNING record, to the coordinator. */
void ph_warn_once(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A refused call: warns once by name, counts, returns status. */
int ph_refuse(const char *name, int status);
_Noreturn void ph_die(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* internal errors: message, exit 70 */

/* ---- stream.c: streams, events, segments: the op stream -------------------------------------------------------- */
typedef struct ph_stream ph_stream;
typedef struct ph_event ph_event;
/* NULL and 1: legacy default stream; 2: per-thread default stream; else a handle. Unknown handles: NULL. */
ph_stream *ph_stream_of(void *handle);
uint32_t ph_stream_id(const ph_stream *stream);
int ph_stream_device(const ph_stream *stream);
bool ph_stream_capturing(const ph_stream *stream);

typedef struct ph_cost {
    uint64_t key, solo_ns, contended_ns;
    double flops;
    uint32_t source, pad;
} ph_cost;
/* One kernel or copy on the stream: folded into its open segment, or into the graph being captured. Counts a launch;
 * host cost is the caller's. */
void ph_launch(ph_stream *stream, const ph_cost *cost);
/* Before a record of your own that puts work on a stream (NCCL_LAUNCH): orders the stream with the legacy default
 * stream where CUDA does. */
void ph_stream_touch(ph_stream *stream);
/* A stream that is being captured: run(stream, arg) is called at each launch of the graph, release(arg) when it has
 * gone (may be NULL). false, and nothing done, if the stream is not capturing. */
bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *stream, void *arg), void (*release)(void *arg),
                     void *arg);

/* ---- cost.c: durations ----------------------------------------------------------------------------------------- */
/* key: a 64-bit hash of everything that the signature says, equal on all ranks, never 0. `describe` writes the
 * signature text (see docs/architecture.md) and is called only if neither this rank nor the shared table knows the key.
 */
typedef size_t (*ph_describe)(const void *what, char *text, size_t capacity);
const ph_cost *ph_cost_of(uint64_t key, ph_describe describe, const void *what);
uint64_t ph_hash(uint64_t seed, const void *bytes, size_t n);
/* The op that the calling thread is in (innermost NVTX range): name and sizes as torch prints them, "" if none. Stable
 * until the range ends. */
typedef struct ph_op {
    const char *name;
    const char *sizes;
    uint64_t key;
} ph_op;
const ph_op *ph_current_op(void);

/* ---- channel.c: the socket to the coordinator ------------------------------------------------------------------ */
/* Appends a record (closing open segments first), stamped with the host clock; `payload` may be NULL. Thread-safe.
 * Batched: sent when 32 KiB have gathered, 2 ms have passed, or somebody asks. */
void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* The same, stamped with the place in the program where the call was made too. Not under the core lock. */
void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* Sends a question and blocks, in real time only, for its reply; copies the reply's fields to `reply`. The qid is put
 * into fields' first word. */
void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes);
/* Sends what is batched now; called before a thread blocks on something that depends on other ranks. */
void ph_flush(void);
/* A record beside the op stream (NCCL_DATA): closes no segment, host_ns 0. From any thread, the reader's too: never
 * blocks for long. */
void ph_emit_aside(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes);
/* DATA records arrive on the channel's reader thread, which calls this (data.c). */
void ph_data_arrived(uint64_t token, const void *bytes, size_t nbytes);

/* ---- memory.c: the device address space ------------------------------------------------------------------------ */
bool ph_is_device_pointer(const void *p);
bool ph_host_pinned(const void *p);
/* cudaError codes */
int ph_device_alloc(int device, size_t nbytes, void **out);
int ph_device_free(void *p);

/* ---- data.c: bytes that steer the program (DESIGN: small copies, sets, collectives really happen, in stream order,
 * deferred while an input has not arrived)
 * ------------------------------------------------------------------------------------------ */
/* Each returns at once. Ranges that overlap a pending write become pending themselves; the action runs when its inputs
 * are there. */
void ph_data_copy(void *dst, const void *src, size_t nbytes);
void ph_data_set(void *dst, int value, size_t nbytes);
/* An action over ranges given by the caller (control tensors): run(arg) is called later, from any thread, if something
 * is pending. */
typedef struct ph_range {
    void *start;
    size_t nbytes;
} ph_range;
void ph_data_action(const ph_range *reads, int nreads, const ph_range *writes, int nwrites, void (*run)(void *),
                    void *arg);
/* Bytes that will arrive from the coordinator under this token. */
void ph_data_expect(uint64_t token, void *dst, size_t nbytes);
/* Blocks in real time until nothing pending overlaps the range. */
void ph_data_wait(const void *start, size_t nbytes);
/* The same for every pending write to host memory (asynchronous device-to-host copies go through ph_data_copy too):
 * called by cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize and queries that answer "done". One load
 * if nothing is pending. */
void ph_data_wait_host(void);
/* Is a write to part of the range pending? */
bool ph_data_pending(const void *start, size_t nbytes);
/* Is every byte of the range written by something modelled? (interval set; large ranges answer false) */
bool ph_data_known(const void *start, size_t nbytes);
bool ph_data_known_any(const void *start, size_t nbytes); /* ... or at least one byte of it? */
void ph_data_mark_known(const void *start, size_t nbytes);
void ph_data_forget(const void *start, size_t nbytes);

/* ---- data_python.c: a thread that blocks (ph_ask, ph_data_wait) lets go of Python's lock meanwhile, if it has it:
 * deferred control tensors need it, and the answer may depend on them. NULL if it has not (or there is no Python). */
void *ph_python_release(void);
void ph_python_restore(void *released);
/* watch.c: a thread enters (1) or leaves (-1) a wait inside the library; both functions above tell it. */
void ph_watch_blocked(int change);

/* ---- sites.c ---------------------------------------------------------------------------------------------------- */
/* The number of the place in the program where the calling thread is, announced if it is new; 0: nobody can tell. Not
 * under the core lock. */
uint16_t ph_site(void);
/* From now on that is where the calling thread is: it works for another one. */
void ph_site_inherit(uint16_t site);

/* ---- start.c --------------------------------------------------------------------------------------------------- */
uint32_t ph_rank(void);

/* ---- lookup.c -------------------------------------------------------------------------------------------------- */
/* Our definition of an API symbol by name, NULL if we have none (cudaGetDriverEntryPoint, cuGetProcAddress, dlsym). */
void *ph_symbol(const char *name);

#endif
