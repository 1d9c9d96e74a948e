/* The description of this run's GPUs and hosts: the device file, read once in the forker. */
#ifndef PHANTORA_CONFIG_H
#define PHANTORA_CONFIG_H

#include "core/base.h"

/* The kinds of work that take host time. Their names are the keys of the host description. */
typedef enum {
#define CALL(NAME, name, text) PH_CALL_##NAME,
#define WORK(NAME, name, text) PH_WORK_##NAME,
#define FINE WORK
#include "../../contract/definitions/host_kinds.def"
#undef CALL
#undef WORK
#undef FINE
    PH_HOST_KINDS
} ph_host_kind;
typedef ph_host_kind ph_call_kind;

/* Returns the name of a kind as the device file writes it. */
const char *phantora_host_kind(int kind);

typedef struct ph_config {
    char device_name[256];
    int device_count;         /* GPUs per server */
    uint64_t memory_nbytes;   /* per GPU */
    uint64_t reserved_nbytes; /* the part that a context and NCCL take: programs cannot allocate it */
    uint64_t context_nbytes;  /* what each further process takes of a GPU: a context */
    int sm_count, cc_major, cc_minor;
    uint32_t launch_gap_ns, graph_gap_ns; /* between two kernels of a stream, between two nodes of a graph */
    uint32_t power_window_ns;             /* over which the power limit holds; 0: the clock never falls */
    uint32_t power_idle;                  /* drawn between kernels, in thousandths of the limit */
    uint64_t data_limit_nbytes;           /* larger copies, collectives and sets take time but move no bytes */
    uint64_t
        float_limit_count; /* nor do collectives of more floating-point elements per rank: they are not control data */
    enum { PH_HOST_NONE, PH_HOST_MODELLED, PH_HOST_MEASURED } host_mode;
    double host_scale;               /* measured: thread CPU time x scale */
    uint32_t host_ns[PH_HOST_KINDS]; /* modelled: what one of each kind takes (host.h) */
    uint32_t host_function_ns;       /* time that a host function takes in its stream */
    uint32_t hot_within_functions;   /* what the thread ran that many Python functions before is in the first caches */
    uint32_t warm_within_functions;  /* ... is in the second-level cache */
    uint32_t cold_after_functions;   /* an operator that it ran longer ago is not */
    uint64_t kept_table_nbytes;      /* malloc keeps the pages of tables up to this size */
    double memory_threads;           /* threads that together take all of the bandwidth of a server's memory */
    int server_cores, server_ranks;  /* of the server */
    uint64_t tensor_cache_nbytes;    /* tensors of the CPU up to this size stay in a core's cache */
    uint32_t
        queue_depth; /* launches that a host may be ahead of the device; the scheduler uses it, this library does not */
    int runtime_version, driver_version; /* as CUDA numbers them: 13000; no runtime_version: 0 */
    char nvml_driver[32];
    uint64_t trace_first_step, trace_last_step; /* of the ranks that are traced; the first step is 1 */
    bool history;                               /* it is recorded */
    bool segment_contents;                      /* the run wants to know what segments consist of */
    uint32_t power_limit_w;
    int nvlink_count; /* links of a GPU, each to a switch of its server; 0: none */
    int multicast;    /* these switches write to several GPUs at once */
} ph_config;
extern ph_config ph_cfg;

/* Reads the device file. Returns 0, or -1 with the reason in `error`: unknown keys are errors. */
int ph_config_read(const char *path, char *error, size_t capacity);

/* The value that the device file gives for a cudaDeviceAttr. False, and 0, if it gives none. */
bool ph_device_attribute(int attribute, int *value);

/* Does the run's trace show this rank? */
bool ph_config_traces(uint32_t rank);

#endif
