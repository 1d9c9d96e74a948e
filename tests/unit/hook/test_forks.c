/*
 * Threads use the library while two others fork; the children use it, too. A lock that a child inherits from a thread
 * that it does not have would make it wait for ever.
 */
#define _GNU_SOURCE
#include "check.h"
#include "sanitized_malloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, FORKS = 100, PATIENCE_S = 200 };
#define MIB ((size_t)1 << 20)

extern int phantora_start(const char *socket, const char *costs, uint32_t rank, uint32_t world_size, uint32_t server,
                          uint32_t local_rank);
extern void phantora_finish(int exit_code, const char *last_words), phantora_flush(void);
extern void phantora_warn_once(const char *name, const char *text);
extern void phantora_data_mark_known(uint64_t address, uint64_t nbytes);
extern void phantora_name_host(uint64_t start, uint64_t nbytes, uint64_t low, uint64_t high);
extern uint64_t phantora_sources_dropped(uint64_t *numbers, uint64_t capacity);
extern void phantora_marker(uint32_t kind, const char *name);
extern void phantora_profiler_begins(uint64_t epoch_ns), phantora_profiler_ended(void);
extern int phantora_memory_step(void), phantora_host_counts(uint64_t *counts, int capacity);
extern int cuptiActivityDisable(uint32_t kind);
extern int cufftCreate(int *plan), cufftDestroy(int plan);

static char kernel, variable;
static atomic_bool stop;

/* Calls that a child of a rank may make: with real CUDA, too, most fail there. */
static void calls_of_anyone(void) {
    void *address;
    uint64_t reserved = 0, numbers[4], counts[64];
    size_t available, total;
    int plan = 0;
    cudaMemGetInfo(&available, &total);
    cudaGetSymbolAddress(&address, &variable);
    phantora_data_mark_known(phantora_device_base(), 4096);
    if (cuMemAddressReserve(&reserved, 2 * MIB, 0, 0, 0) == 0) EQUAL(cuMemAddressFree(reserved, 2 * MIB), 0);
    static char pinned[1 << 16];
    static _Thread_local char name[32];
    char *own = pinned + 4096 * (unsigned)((uintptr_t)name / sizeof name % 16);
    if (cudaHostRegister(own, 4096, 0) == 0) cudaHostUnregister(own);
    phantora_name_host((uintptr_t)own, 4096, 1, 2);
    phantora_name_host((uintptr_t)own, 4096, 0, 0);
    phantora_sources_dropped(numbers, 4);
    phantora_memory_step();
    phantora_host_counts(counts, 64);
    phantora_warn_once("forks", "a message that is given once");
    cuptiActivityDisable(1);
    if (cufftCreate(&plan) == 0) cufftDestroy(plan);
    cudaLaunchKernel(&kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
    phantora_flush();
}

static void calls_of_a_rank(void) {
    void *stream, *event, *graph, *small, *large, *pooled, *host;
    EQUAL(cudaStreamCreateWithFlags(&stream, 1), 0);
    EQUAL(cudaEventCreateWithFlags(&event, 2), 0);
    EQUAL(cudaMalloc(&small, 4096), 0);
    EQUAL(cudaMalloc(&large, 4 * MIB), 0);
    EQUAL(cudaMallocAsync(&pooled, 4096, stream), 0);
    EQUAL(cudaHostAlloc(&host, 4096, 0), 0);
    EQUAL(cudaMemcpyAsync(small, host, 4096, 4, stream), 0);
    EQUAL(cudaMemsetAsync(large, 0, 4 * MIB, stream), 0);
    EQUAL(cudaEventRecord(event, stream), 0);
    EQUAL(cudaEventSynchronize(event), 0);
    EQUAL(cudaStreamBeginCapture(stream, 2), 0);
    EQUAL(cudaLaunchKernel(&kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, stream), 0);
    EQUAL(cudaStreamEndCapture(stream, &graph), 0);
    EQUAL(cudaGraphDestroy(graph), 0);
    EQUAL(cudaFreeHost(host), 0);
    EQUAL(cudaFreeAsync(pooled, stream), 0);
    EQUAL(cudaFree(small) | cudaFree(large), 0);
    phantora_profiler_begins(1);
    phantora_marker(1, "step");
    phantora_profiler_ended();
    EQUAL(cudaEventDestroy(event), 0);
    EQUAL(cudaStreamDestroy(stream), 0);
}

static void *work(void *unused) {
    while (!stop) {
        calls_of_anyone();
        calls_of_a_rank();
    }
    return unused;
}

static void child(int death_signal) {
    alarm(PATIENCE_S);
    int asked_for = 0;
    prctl(PR_GET_PDEATHSIG, &asked_for);
    EQUAL(asked_for, death_signal);
    for (int i = 0; i < 3; i++) calls_of_anyone();
    void *p;
    EQUAL(cudaMalloc(&p, 4096), 3); /* cudaErrorInitializationError */
    _exit(0);
}

extern void phantora_join_in_child(void (*join)(int device));
static int joined = -1;

static void join(int device) { joined = device; }

/* A rank that has not initialised CUDA leaves the device to its child, which joins when it uses it. */
static void fork_before_use(void) {
    int status, count;
    phantora_join_in_child(join);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        void *p;
        EQUAL(cudaGetDeviceCount(&count), 0);
        EQUAL(joined, -1);
        EQUAL(cudaSetDevice(0) | cudaMalloc(&p, 4096), 0);
        EQUAL(joined, 0);
        _exit(0);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    EQUAL(status, 0);
    EQUAL(joined, -1);
}

/* The kernel ends a child when the thread that forked it ends, so only the main thread's children ask for that. */
static void fork_often(int death_signal) {
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(death_signal);
        EQUAL(waitpid(pid, &status, 0), pid);
        CHECK(!WIFSIGNALED(status)); /* SIGALRM: it has waited for a lock */
        EQUAL(status, 0);
    }
}

static void *fork_beside(void *unused) {
    fork_often(0);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t workers[WORKERS], forks;
    int count;
    EQUAL(argc, 4); /* device file, socket, cost table */
    EQUAL(phantora_load(argv[1]), 0);
    __cudaRegisterFunction(NULL, &kernel, NULL, "kernel", 0, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(NULL, &variable, NULL, "variable", 0, 64, 0, 0);
    EQUAL(phantora_start(argv[2], argv[3], 0, 1, 0, 0), 0);
    fork_before_use();
    EQUAL(cudaGetDeviceCount(&count), 0); /* from now on the device is this process's alone */
    for (int i = 0; i < WORKERS; i++) EQUAL(pthread_create(&workers[i], NULL, work, NULL), 0);
    EQUAL(pthread_create(&forks, NULL, fork_beside, NULL), 0);
    fork_often(SIGKILL);
    EQUAL(pthread_join(forks, NULL), 0);
    stop = true;
    for (int i = 0; i < WORKERS; i++) EQUAL(pthread_join(workers[i], NULL), 0);
    phantora_finish(0, "");
    return 0;
}
