/*
 * The life of the library in a process: it is loaded in the forker, started in each rank and finished at the rank's
 * end. Children that a rank forks lose the connection and the use of the device.
 */
#define _GNU_SOURCE
#include "process/process.h"
#include "core/config.h"
#include "core/lock.h"
#include "core/run.h"
#include "cupti/profile.h"
#include "graphs/capture.h"
#include "nccl/nccl.h"
#include "op_stream/emit.h"
#include "cuda/types.h"
#include "threads/host.h"
#include "costs/cost.h"
#include "data/data.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/server_memory.h"
#include "streams/event.h"
#include "streams/host_function.h"
#include "streams/stream.h"
#include "op_stream/trace.h"
#include "sources/source_map.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Under all locks. */
static bool forked_by_main;
static pid_t forking;

static void before_fork(void) {
    ph_locks_before_fork();
    ph_host_pages_before_fork();
    forking = getpid();
    forked_by_main = forking == gettid();
}

static void leave_rank(void) {
    ph_channel_drop_in_child();
    ph_run.started = false;
    ph_run.orphan = !ph_device_left_to_child();
    /* Children end with their rank. Linux sends the signal when the thread that forked ends, so only the main thread,
     * which lives as long as the rank, can ask for it. */
    if (forked_by_main && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() != forking)
        raise(SIGKILL); /* the rank ended before the signal was asked for */
}

static void after_fork_in_child(void) {
    if (ph_run.started)
        leave_rank();
    else
        ph_device_forget(); /* a child of the forker: it becomes a server or a rank */
    ph_locks_in_child();
    ph_host_pages_in_child();
}

/* Each of these folders is called by some below it. */
__attribute__((constructor)) static void connect_floors(void) {
    ph_op_stream_connect();
    ph_data_connect();
    ph_streams_connect();
    ph_graphs_connect();
    ph_profile_connect();
    nccl_connect();
    ph_exit_connect();
    ph_on_record(PH_KIND_STOP, ph_told_to_stop);
    ph_on_record(PH_KIND_STALLED, ph_told_of_stall);
    ph_on_record(PH_KIND_AT_REST, ph_told_of_rest);
}

static void neighbour(char *path, size_t capacity, const char *name) {
    Dl_info about;
    path[0] = 0;
    if (!dladdr((void *)(uintptr_t)&neighbour, &about) || !about.dli_fname) return;
    const char *slash = strrchr(about.dli_fname, '/');
    int n = slash ? (int)(slash - about.dli_fname) : 0;
    snprintf(path, capacity, "%.*s%s%s", n, about.dli_fname, slash ? "/" : "", name);
}

static const char RUNTIME[] = "libcudart.so";
static char runtime[32]; /* the name of the runtime that PyTorch is built for, once that is told */

/* Programs and libraries open others by their file names: NVML, the runtime (cuDNN's frontend, CuPy), NCCL (vLLM). A
 * library of that name that depends on this one is loaded first, so the loader gives them a handle of it, in which our
 * functions are found. NVTX finds this library by an environment variable. */
PH_EXPORT void phantora_stand_in(const char *name) {
    char path[4096];
    if (strncmp(name, RUNTIME, sizeof RUNTIME - 1) == 0) snprintf(runtime, sizeof runtime, "%s", name);
    neighbour(path, sizeof path, name);
    if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        fprintf(stderr, "phantora-async: cannot load %s (%s): programs that open it by name will fail\n", path,
                dlerror());
}

/* From now on whoever opens a library whose calls are taken here (of libcufft, libcufile, libcusolver and libcusparse
 * only few are, so a handle of the real one is worth more), in any folder and of any version, gets a handle of
 * this one. A runtime of another version than PyTorch's is not there by its name alone: cuDNN's frontend tries several
 * versions, and who finds two does not know which to take. Called when PyTorch is loaded, which needs the real ones
 * under their names. */
PH_EXPORT void phantora_open_ours(void) {
    static const char *const TAKEN[] = {
        "libcuda.so",   RUNTIME,          "libnvidia-ml.so", "libnccl.so",
        "libcublas.so", "libcublasLt.so", "libcudnn.so",     "libcupti.so",
    };
    char path[4096];
    void (*open_instead)(const char *, const char *, const char *);
    *(void **)&open_instead = dlsym(RTLD_DEFAULT, "phantora_open_instead");
    if (!open_instead) return; /* the process was started without the library that comes before all others */
    neighbour(path, sizeof path, "libcuda.so.1");
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++)
        open_instead(TAKEN[i], path, TAKEN[i] == RUNTIME ? runtime : "");
}

/* The runtime's name depends on the major version of CUDA that PyTorch is built for: who loads this library tells it. A
 * program that finds the runtimes of two versions does not know which to take. */
static void make_findable(void) {
    char path[4096];
    phantora_stand_in("libnvidia-ml.so.1");
    phantora_stand_in("libnccl.so.2");
    neighbour(path, sizeof path, "libcuda.so.1");
    setenv("NVTX_INJECTION64_PATH", path, 0);
}

/* ---- what Python tells for the report alone ---------------------------------------------------------------------- */

PH_EXPORT void phantora_unused_gpu(const char *causes) {
    ph_emit_out_of_band(PH_KIND_UNUSED_GPU, NULL, 0, causes, strlen(causes));
}

PH_EXPORT void phantora_alone(void) { ph_emit_out_of_band(PH_KIND_ALONE, NULL, 0, NULL, 0); }

PH_EXPORT void phantora_logged(uint64_t nbytes) {
    struct ph_LOGGED record = {.log_nbytes = nbytes};
    ph_emit_out_of_band(PH_KIND_LOGGED, &record, sizeof record, NULL, 0);
}

PH_EXPORT void phantora_checkpoint(uint64_t offset, uint64_t nbytes, uint64_t uncomputed, const char *path) {
    struct ph_CHECKPOINT record = {.offset = offset, .written = nbytes, .uncomputed = uncomputed};
    ph_emit_out_of_band(PH_KIND_CHECKPOINT, &record, sizeof record, path, strlen(path));
}

PH_EXPORT int phantora_abi_version(void) { return PH_RECORD_VERSION; }

/* Puts this library in its place. Called before PyTorch is imported, when nothing is known of the emulated device. */
PH_EXPORT void phantora_take_place(void) {
    if (ph_run.in_place) return;
    ph_run.in_place = true;
    pthread_atfork(before_fork, ph_locks_in_parent, after_fork_in_child);
    make_findable();
}

PH_EXPORT int phantora_load(const char *device_file) {
    char error[1024];
    if (ph_run.loaded) return -1;
    if (ph_config_read(device_file, error, sizeof error) != 0) {
        fprintf(stderr, "phantora-async: %s\n", error);
        return -1;
    }
    if (ph_memory_reserve() != 0) {
        fprintf(stderr,
                "phantora-async: cannot reserve %zu GiB of address space for the emulated devices. Is there a limit on "
                "virtual memory (ulimit -v), or is vm.overcommit_memory 2?\n",
                ph_mem.nbytes >> 30);
        return -1;
    }
    const char *detached = getenv("PHANTORA_DETACHED");
    ph_run.timed = detached && strcmp(detached, "timed") == 0;
    ph_run.alone = ph_run.timed || (detached && strcmp(detached, "1") == 0);
    if (ph_streams_make_defaults() != CUDA_OK) return -1;
    phantora_take_place();
    ph_run.loaded = true;
    return 0;
}

static void emit_hello(void) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    struct ph_HELLO hello = {.version = PH_RECORD_VERSION,
                             .rank = ph_run.rank,
                             .world_size = ph_run.world_size,
                             .server = ph_run.server,
                             .local_rank = ph_run.local_rank,
                             .pid = (uint32_t)getpid(),
                             .process = ph_run.process};
    ph_emit(PH_KIND_HELLO, &hello, sizeof hello, host, strlen(host));
}

/* Numbers this process, which continues a rank's op stream, or works beside the rank's first process. Its streams,
 * recordings and questions get numbers that no other process of the rank uses. Called before phantora_start. */
PH_EXPORT void phantora_number_process(uint32_t process) {
    ph_run.process = process;
    ph_streams_number_from(process << 16);
    ph_recordings_number_from((uint64_t)process << 40);
    ph_questions_number_from((uint64_t)process << 40);
}

/* A rank has started this process, which is about to become the rank of a GPU that may be another one's. Called before
 * phantora_start. */
PH_EXPORT void phantora_started_by(uint32_t rank) { ph_run.parent = rank + 1; }

/* The rank does not run ahead of the GPUs: where it waits for the device, it goes on when virtual time is there. What
 * it then does to the outside, such as writing a checkpoint, it does in the order of virtual time. */
PH_EXPORT void phantora_keep_in_step(void) { ph_run.in_step = true; }

/* Something may die one day: the rank is kept in step, and NCCL's watchdogs count virtual time. */
PH_EXPORT void phantora_mortal(void) { ph_run.in_step = ph_run.mortal = true; }

/* A GPU of the server dies at an instant. */
PH_EXPORT void phantora_gpu_dies(uint32_t gpu, uint64_t from_ns, uint64_t until_ns) {
    ph_gpu_dies((int)gpu, from_ns, until_ns);
}

void phantora_flush(void);

/* Starts the rank. Returns 0, or a negative errno: -EPROTO for a cost table of another version. */
PH_EXPORT int phantora_start(const char *socket_path, const char *cost_table_path, uint32_t rank, uint32_t world_size,
                             uint32_t server, uint32_t local_rank) {
    if (!ph_run.loaded || ph_run.started) return -EALREADY;
    ph_visible_forget();
    ph_run.rank = rank;
    ph_run.world_size = world_size;
    ph_run.server = server;
    ph_run.local_rank = local_rank;
    int status = cost_table_path && *cost_table_path ? ph_cost_table_map(cost_table_path) : 0;
    if (status == 0) status = ph_channel_open(socket_path);
    if (status) return status;
    ph_op_stream_begin();
    ph_host_reset();
    emit_hello();
    ph_run.started = true;
    ph_server_memory_join();
    ph_trace_start();
    ph_streams_announce();
    ph_flush();
    ph_at_exit();
    return 0;
}

PH_EXPORT void phantora_memory(uint32_t device, uint64_t allocated_peak, uint64_t reserved_peak) {
    /* The peaks of a guest are not those of the rank whose GPU it uses: GPU_MEMORY tells what it takes. */
    bool guest = ph_run.child && ph_run.parent != ph_run.rank + 1;
    if (device >= (uint32_t)ph_cfg.device_count || guest) return;
    struct ph_MEMORY record = {.device = device,
                               .gpu = (uint32_t)ph_visible_gpu((int)device),
                               .allocated_peak = allocated_peak,
                               .reserved_peak = reserved_peak,
                               .device_peak = ph_memory_peak((int)device)};
    ph_emit(PH_KIND_MEMORY, &record, sizeof record, NULL, 0);
}

/* The most that CUDA has given out at one time. */
PH_EXPORT uint64_t phantora_memory_taken(uint32_t device) {
    return device < (uint32_t)ph_cfg.device_count ? ph_memory_peak((int)device) : 0;
}

/* Sends what has gathered: the process may be about to become another program. */
PH_EXPORT void phantora_flush(void) {
    if (!ph_run.started || ph_run.finished) return;
    ph_flush();
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void emit_usage(void) {
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) != 0) return;
    struct ph_USAGE record = {.user_ns = nanoseconds(used.ru_utime),
                              .system_ns = nanoseconds(used.ru_stime),
                              .reader_ns = ph_reader_cpu_ns()};
    ph_emit_out_of_band(PH_KIND_USAGE, &record, sizeof record, NULL, 0);
}

/* Sends everything. Records of calls that the program makes while it exits are dropped. Bytes that collectives have
 * promised to other ranks are sent when they are known: the program that ends without an error need not wait for them.
 */
PH_EXPORT void phantora_finish(int exit_code, const char *last_words) {
    if (!ph_run.started || ph_run.finished) return;
    ph_run.ending = true;
    ph_server_memory_leave();
    ph_emit_counters();
    emit_usage();
    struct ph_BYE bye = {.exit_code = exit_code};
    ph_emit_here(PH_KIND_BYE, &bye, sizeof bye, last_words, last_words ? strlen(last_words) : 0);
    ph_channel_end();
    if (exit_code == 0) ph_data_wait_told();
    ph_run.finished = true;
    ph_flush();
    ph_channel_close();
}
