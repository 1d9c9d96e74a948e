/*
 * What the core modules share beyond hook.h: the calling thread's state, the process's place in the run, and the
 * operations behind the runtime's and the driver's entry points (both are thin over the same functions; the numbers
 * of their error codes agree).
 */
#ifndef PHANTORA_CORE_H
#define PHANTORA_CORE_H

#include "core/cuda_types.h"
#include "core/hook.h"
#include "core/records.h"

#include <pthread.h>
#include <stdatomic.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { PH_MAX_DEVICES = 64, PH_MAX_CONFIGS = 8, PH_MAX_RANGES = 128, PH_MAX_ATTRIBUTES = 256 };

/* ---- start.c: where this process stands -------------------------------------------------------------------------- */
typedef struct ph_run_state {
    bool loaded;   /* the device is described, its memory reserved */
    bool started;  /* a rank, connected to the coordinator */
    bool finished; /* BYE has been said */
    bool orphan;   /* a child that a rank forked: like real CUDA it may not use the device */
    bool alone;    /* PHANTORA_DETACHED=1: tests without a coordinator; unknown costs are a fixed value */
    uint32_t rank, world_size, server, local_rank;
} ph_run_state;
extern ph_run_state ph_run;

/* ---- thread.c: the calling thread ---------------------------------------------------------------------------------
 */
typedef struct ph_call_config {
    dim3 grid, block;
    size_t shared_nbytes;
    void *stream;
} ph_call_config;

typedef struct ph_known_op ph_known_op;

enum ph_thread_kind {
    PH_THREAD_UNKNOWN, /* not known yet */
    PH_THREAD_PROGRAM,
    PH_THREAD_AUTOGRAD, /* the program's, running backward passes */
    PH_THREAD_WATCHES,  /* a library's thread that looks after finished work and nothing else does */
    PH_THREAD_HELPS,    /* ... and so do the program's own threads */
};

typedef struct ph_thread {
    int device;
    int last_error;
    int capture_mode;
    enum ph_thread_kind kind;
    uint16_t site;        /* where the calls of this thread were asked for by another one; 0: by its own frames */
    uint32_t name_checks; /* how often an unnamed thread has been asked for its name */
    uint64_t clock_ns;    /* host time of this thread */
    uint64_t pass;        /* the backward pass that it last worked for */
    uint64_t counts[PH_HOST_KINDS];
    int aside;            /* depth of Python functions whose work is not the program's */
    uint64_t cpu_ns;      /* measured mode: thread CPU time already accounted */
    bool cpu_started;
    struct ph_thread *next, *before; /* all threads, under the list's lock */
    int npushed, pushed[PH_MAX_CONFIGS]; /* devices of pushed contexts */
    int nconfigs;
    ph_call_config configs[PH_MAX_CONFIGS];
    int nranges; /* may exceed PH_MAX_RANGES: deeper ranges are counted, not kept */
    const ph_known_op *ranges[PH_MAX_RANGES];
    int optimizer_depth;   /* index + 1 of the outermost Optimizer.step range, 0 if none */
    int kernel_data_depth; /* the same for ops that copy tables to the device for their own kernels */
    ph_stream *default_streams[PH_MAX_DEVICES];
} ph_thread;

enum ph_thread_kind ph_thread_kind(void); /* the calling thread's */
extern __thread ph_thread *ph_this_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));
ph_thread *ph_thread_make(void);
void ph_threads_counts(uint64_t totals[PH_HOST_KINDS]);
static inline ph_thread *ph_self(void) {
    ph_thread *thread = ph_this_thread;
    return LIKELY(thread != NULL) ? thread : ph_thread_make();
}

/* ---- config.c -----------------------------------------------------------------------------------------------------
 */
typedef struct ph_config_more {
    int runtime_version, driver_version; /* 13000 */
    char nvml_driver[32];
    int nvlink_count; /* links of a GPU, each to a switch of its server; 0: none */
} ph_config_more;
extern ph_config_more ph_cfg_more;
int ph_config_read(const char *path, char *error, size_t capacity);

/* ---- counters -----------------------------------------------------------------------------------------------------
 */
typedef struct ph_counters {
    atomic_uint_fast64_t api_calls, ops, unmodelled_reads, refused_calls;
    /* under the core lock */
    uint64_t launches, solo_ns[4];
    double flops;
} ph_counters;
extern ph_counters ph_counts;
void ph_emit_counters(void);

/* ---- channel.c: everything that is emitted passes its lock ----------------------------------------------------------
 */
void ph_core_lock(void);
void ph_core_unlock(void); /* also sends if enough has gathered */
/* Under the lock: appends one record whose instant is at_ns (never before the last one's). */
void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes);
/* A question that says nothing about time: it closes no segment and does not move the instant. */
void ph_ask_aside(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                  void *reply, size_t reply_nbytes);
int ph_channel_open(const char *path);
void ph_channel_close(void);
void ph_channel_drop_in_child(void);
void ph_channel_fork_lock(void);
void ph_channel_fork_unlock(void);
void ph_channel_wake_for_segments(void);

/* ---- cost.c -------------------------------------------------------------------------------------------------------
 */
int ph_cost_table_map(const char *path);

/* ---- host.c --------------------------------------------------------------------------------------------------------
 */
uint64_t ph_host_clock(void);
const char *phantora_host_kind(int kind);
void ph_host_op(void);
void ph_host_frame(ph_thread *thread, uint64_t ns);
void ph_host_backward(void);
void ph_host_node_begins(void);
void ph_host_range_ends(ph_thread *thread);
/* The virtual time last heard of, plus the host time since: never asks. */
uint64_t ph_clock_estimate(void);
void ph_host_reset(void);

int ph_device_usable(void); /* 0, or cudaErrorInitializationError in a child that a rank forked */

/* ---- stream.c ------------------------------------------------------------------------------------------------------
 */
typedef struct ph_capture ph_capture;

enum { PH_STREAM_MAGIC = 0x5354524d, PH_EVENT_MAGIC = 0x45564e54 };

struct ph_stream {
    uint32_t magic;
    uint32_t id;
    int device, priority;
    unsigned flags;
    bool legacy;   /* the device's legacy default stream */
    bool blocking; /* waits for it, and it for this one */
    /* the open segment, empty if launches is 0; under the core lock. queued: how many of them the launch queue holds */
    uint32_t launches, queued;
    uint64_t first_ns, solo_ns, contended_ns, tail_ns;
    ph_stream *next_open;
    /* implicit ordering with the legacy default stream: counts of things given to either */
    uint64_t work, legacy_seen, seen_by_legacy;
    /* capture */
    ph_capture *capture;
    int branch;
    ph_stream *next; /* all streams alive */
};

struct ph_event {
    uint32_t magic;
    unsigned flags;
    uint64_t recording;         /* 0: never recorded since the rank's start */
    bool recorded;              /* ever, also before the start */
    uint64_t host_ns, clock_ns; /* when recorded: on the host clock; and as ph_clock_estimate tells */
    int device;
    uint32_t stream_id;
    ph_capture *capture; /* last recorded inside a capture: the capture and the node it stands for */
    uint64_t capture_id;
    int capture_slot;
    ph_event *next_retired;
};

int ph_streams_make_defaults(void);
void ph_streams_announce(void);
ph_stream *ph_default_stream(int device);
int ph_stream_create(int device, unsigned flags, int priority, ph_stream **out);
int ph_stream_destroy(ph_stream *stream);
int ph_stream_synchronize(ph_stream *stream);
/* The host waits, whatever is being captured: for calls that wait as a part of what they do. */
void ph_stream_wait(ph_stream *stream);
void ph_device_wait(int device);
/* Not captured. queued: does it take a place of its own in the launch queue? */
void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued);
/* Time that a stream takes for something that is no kernel and no copy. */
void ph_stream_occupy(ph_stream *stream, uint64_t for_ns);
int ph_stream_query(ph_stream *stream);
int ph_stream_wait_event(ph_stream *stream, ph_event *event);
int ph_device_synchronize(int device);
/* Asks whether a stream's work or a recording is done: CUDA_OK or CUDA_NOT_READY. */
int ph_query(uint32_t scope, uint32_t stream, uint64_t recording);
void ph_wait_recording(uint64_t recording);
/* Under the core lock: closes all open segments, in order of their first launch. */
void ph_close_segments(void);
bool ph_segments_open(void);
uint64_t ph_launch_count(void);
/* Under the core lock: orders the stream with its device's legacy default stream where CUDA does. */
void ph_order_default(ph_stream *stream);

/* ---- event.c -------------------------------------------------------------------------------------------------------
 */
int ph_event_create(unsigned flags, ph_event **out);
int ph_event_destroy(ph_event *event);
int ph_event_record(ph_event *event, ph_stream *stream);
/* With the flags of cudaEventRecordWithFlags and cudaStreamWaitEvent (capture.c). */
int ph_event_record_flags(ph_event *event, ph_stream *stream, unsigned flags);
int ph_stream_wait_event_flags(ph_stream *stream, ph_event *event, unsigned flags);
int ph_event_query(ph_event *event);
int ph_event_synchronize(ph_event *event);
int ph_event_elapsed(float *ms, ph_event *start, ph_event *end);
/* Under the core lock: a recording on the stream, and a wait for it on another. */
uint64_t ph_record_on(ph_stream *stream, uint64_t drop);
void ph_recording_wait(ph_stream *stream, uint64_t recording);
void ph_recording_drop(uint64_t recording);
/* watch.c. To a watching thread: is what an event recorded at that instant (as ph_clock_estimate told) stands for done?
 */
bool ph_watch_done(uint64_t recorded_at_ns);

/* ---- capture.c -----------------------------------------------------------------------------------------------------
 */
/* What follows asks whether a capture forbids a call; if so, it invalidates the captures concerned. */
extern atomic_int ph_captured_streams;
/* For calls that give work to the stream. */
int ph_capture_admits(ph_stream *stream);
/* For calls that no capture would see and that may wait: allocations, and waits for and looks at what is not captured.
 */
int ph_uncapturable(void);
/* For calls that concern all of a device. */
int ph_capture_encompassed(int device);
/* For calls on an event that was last recorded in a capture: never CUDA_OK. */
int ph_captured_event(ph_event *event, bool invalidate);
static inline int ph_stream_usable(ph_stream *stream) {
    int status = ph_device_usable();
    return LIKELY(!ph_captured_streams) || status ? status : ph_capture_admits(stream);
}
/* The stream is about to go; false if its capture began with it. */
bool ph_capture_leave(ph_stream *stream);
/* Each records into the stream's capture and answers true if there is one; ph_capture_wait a status. */
bool ph_capture_launch(ph_stream *stream, const ph_cost *cost);
bool ph_capture_copy(ph_stream *stream, const ph_cost *cost, void *dst, const void *src, size_t nbytes);
bool ph_capture_set(ph_stream *stream, const ph_cost *cost, void *dst, int value, size_t nbytes);
bool ph_capture_event(ph_stream *stream, ph_event *event);
int ph_capture_wait(ph_stream *stream, ph_event *event);
void ph_capture_invalidate(ph_stream *stream);
int ph_capture_info(void *handle, int *status, unsigned long long *id, void **graph, void ***dependencies, void **edges,
                    size_t *n);

/* ---- memory.c, vmm.c ------------------------------------------------------------------------------------------------
 */
enum { PH_PAGE = 2 << 20 };
int ph_memory_reserve(void);
int ph_memory_device_of(const void *p); /* -1: not device memory */
int ph_memory_range_of(const void *p, void **start, size_t *nbytes);
void ph_memory_info(int device, size_t *free_nbytes, size_t *total_nbytes);
/* Capacity alone, for physical memory that gets its addresses elsewhere. */
int ph_memory_take(int device, size_t nbytes);
void ph_memory_give(int device, size_t nbytes);
uint64_t ph_memory_used(int device);
uint64_t ph_memory_peak(int device);
/* Module-scope variables and the like: lives in the context's share, never freed. */
void *ph_memory_static(int device, size_t nbytes);
void ph_memory_drop_pages(void *start, size_t nbytes);
extern struct ph_memory_map {
    unsigned char *base;
    size_t nbytes, slice_nbytes, capacity;
    unsigned char *mapped_area; /* addresses of the VMM calls */
    size_t mapped_nbytes;
} ph_mem;
int ph_vmm_reserve(void **out, size_t nbytes, size_t alignment);
int ph_vmm_unreserve(void *start, size_t nbytes);
int ph_vmm_create(uint64_t *handle, size_t nbytes, const struct CUmemAllocationProp *properties);
int ph_vmm_release(uint64_t handle);
int ph_vmm_map(void *start, size_t nbytes, size_t offset, uint64_t handle);
int ph_vmm_unmap(void *start, size_t nbytes);
int ph_vmm_set_access(void *start, size_t nbytes);
int ph_vmm_properties(struct CUmemAllocationProp *out, uint64_t handle);
int ph_vmm_retain(uint64_t *handle, const void *address);
bool ph_vmm_range_of(const void *p, int *device, void **start, size_t *nbytes);

/* ---- host_memory.c
 * --------------------------------------------------------------------------------------------------- */
int ph_host_alloc(void **out, size_t nbytes);
int ph_host_free(void *p);
int ph_host_register(void *p, size_t nbytes);
int ph_host_unregister(void *p);
bool ph_host_range_of(const void *p, void **start, size_t *nbytes);

/* ---- copy.c
 * ------------------------------------------------------------------------------------------------------------ */
int ph_copy(void *dst, const void *src, size_t nbytes, int kind, ph_stream *stream, bool async);
int ph_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind,
               ph_stream *stream, bool async);
int ph_set(void *dst, int value, size_t nbytes, ph_stream *stream, bool async);

int ph_set_time(size_t nbytes, ph_stream *stream); /* a set's time without its bytes */

/* ---- hostfunc.c
 * -------------------------------------------------------------------------------------------------------- */
int ph_host_function_launch(ph_stream *stream, void (*function)(void *), void *arg);
void ph_host_function(ph_stream *stream, void (*function)(void *), void *arg); /* not captured */
void ph_host_functions_wait(void);
bool ph_capture_host_function(ph_stream *stream, void (*function)(void *), void *arg);

/* ---- launch.c, module.c
 * -------------------------------------------------------------------------------------------------- */
typedef struct ph_kernel {
    uint32_t magic;
    int max_dynamic_shared, carveout, registers, static_shared, local_nbytes, nonportable;
    uint64_t name_hash;
    const char *name;
} ph_kernel;
enum { PH_KERNEL_MAGIC = 0x4b524e4c };
ph_kernel *ph_kernel_of(const void *host_function); /* by address or handle; NULL if unknown */
ph_kernel *ph_kernel_make(const char *name);
int ph_kernel_launch(ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes, ph_stream *stream);
void ph_kernel_attributes(const ph_kernel *kernel, struct cudaFuncAttributes *out);
int ph_kernel_set_attribute(ph_kernel *kernel, int attribute, int value);
int ph_kernel_attribute(const ph_kernel *kernel, int attribute, int *value);
int ph_occupancy_blocks(const ph_kernel *kernel, int block_threads, size_t dynamic_shared);
int ph_module_load(const void *image, void **module);
int ph_module_load_file(const char *path, void **module);
int ph_module_unload(void *module);
int ph_module_function(void *module, const char *name, ph_kernel **out);

/* A cooperative grid must be resident as a whole. */
int ph_cooperative_fits(const ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes);

/* ---- nvtx.c
 * ---------------------------------------------------------------------------------------------------------------- */
struct ph_known_op {
    ph_op op;
    uint32_t nname;
    bool backward, optimizer, step, kernel_data;
    ph_host_kind work; /* what it costs the host */
    uint32_t nlisted;  /* tensors in lists that it takes */
};
void ph_range_push(const char *message);
void ph_range_pop(void);
void ph_graph_replayed(void);
void ph_range_mark(const char *message);

/* ---- driver.c
 * ------------------------------------------------------------------------------------------------------------- */
void ph_context_use(int device);
PH_EXPORT int cuDevicePrimaryCtxRetain(void **out, int device);

/* ---- device.c
 * ------------------------------------------------------------------------------------------------------------- */
int ph_device_attr(int attribute, int device, int *value);
int ph_device_of_pci(const char *text); /* -1: none of ours */
int ph_peer_enable(int from, int to, unsigned flags);
void ph_device_pci(int device, char *text, size_t capacity);
void ph_device_uuid(int device, unsigned char uuid[16]);

static inline uint64_t ph_mix(uint64_t a, uint64_t b) {
    __uint128_t m = (__uint128_t)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd6e8feb86659fd93ull);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* ---- sites.c
 * ----------------------------------------------------------------------------------------------------------------- */
/* The line of the user's where the calling thread is as `file:line`, "" if nobody can tell. */
const char *ph_python_line(char *text, int capacity);

#endif
