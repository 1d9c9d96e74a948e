/*
 * Communicators.
 *
 * Only the coordinator knows who else is a member, so creating one asks it, and the asking thread blocks in real time,
 * as ncclCommInitRank does, until every member has asked. Inside a group several are created at once and members may
 * list them in different orders: their questions go out together when the group ends, each from a thread of its own.
 *
 * A non-blocking configuration (config->blocking = 0) also completes before the call returns; ncclSuccess instead of
 * ncclInProgress is a documented answer.
 */
#define _GNU_SOURCE
#include "channel/channel.h"
#include "core/host.h"
#include "core/warn.h"
#include "nccl/nccl.h"
#include "process/process.h"
#include "process/python.h"
#include "process/sites.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaGetDevice(int *device);

typedef struct job {
    bool split;
    uint16_t site;
    nccl_comm *comm, **out;
    union {
        struct {
            struct ph_COMM_INIT fields;
            nccl_unique_id id;
        } init;
        struct ph_COMM_SPLIT of;
    };
} job;

static _Thread_local struct {
    job *jobs;
    size_t count, capacity;
} waiting;

static void *allocate(size_t nbytes) {
    void *p = calloc(1, nbytes);
    if (!p) ph_die("out of host memory for an NCCL communicator");
    return p;
}

static void ask(job *it) {
    struct ph_COMM reply = {0};
    if (it->split)
        ph_ask(PH_KIND_COMM_SPLIT, &it->of, sizeof it->of, NULL, 0, &reply, sizeof reply);
    else
        ph_ask(PH_KIND_COMM_INIT, &it->init.fields, sizeof it->init.fields, it->init.id.internal,
               sizeof it->init.id.internal, &reply, sizeof reply);
    if (ph_run.alone && !it->split) /* nobody answers: every rank asked for is there */
        reply = (struct ph_COMM){.comm = 1, .rank = it->init.fields.rank, .nranks = it->init.fields.nranks};
    if (reply.comm == 0) { /* NCCL_SPLIT_NOCOLOR */
        free(it->comm);
        *it->out = NULL;
        return;
    }
    it->comm->rank = (int)reply.rank;
    it->comm->nranks = (int)reply.nranks;
    it->comm->sent = allocate(reply.nranks * sizeof(uint64_t));
    it->comm->received = allocate(reply.nranks * sizeof(uint64_t));
    it->comm->id = reply.comm;
}

static void *ask_on_thread(void *arg) {
    ph_site_inherit(((const job *)arg)->site);
    ask(arg);
    return NULL;
}

int nccl_comm_jobs_run(void) {
    size_t count = waiting.count;
    waiting.count = 0;
    if (count == 1) ask(&waiting.jobs[0]);
    if (count <= 1) return NCCL_OK;
    pthread_t *threads = allocate(count * sizeof *threads);
    uint16_t site = ph_site();
    void *interpreter = ph_python_release();
    for (size_t i = 0; i < count; i++) waiting.jobs[i].site = site;
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, ask_on_thread, &waiting.jobs[i]) != 0)
            ph_die("cannot start a thread to create communicator %zu of %zu in one NCCL group", i + 1, count);
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    ph_python_restore(interpreter);
    free(threads);
    return NCCL_OK;
}

/* *out is the handle at once, as in the real library, and of use once the group has ended. */
static int enqueue(job it, int device, nccl_comm **out) {
    if (waiting.count == waiting.capacity) {
        waiting.capacity = waiting.capacity ? 2 * waiting.capacity : 4;
        waiting.jobs = realloc(waiting.jobs, waiting.capacity * sizeof *waiting.jobs);
        if (!waiting.jobs) ph_die("out of host memory for NCCL communicators");
    }
    it.comm = allocate(sizeof *it.comm);
    it.comm->device = device;
    it.out = out;
    *out = it.comm;
    waiting.jobs[waiting.count++] = it;
    return nccl_in_group() ? NCCL_OK : nccl_comm_jobs_run();
}

static int init(nccl_comm **out, int nranks, const nccl_unique_id *id, int rank, int device) {
    if (!out || nranks < 1 || rank < 0 || rank >= nranks) return NCCL_ERROR_ARGUMENT;
    job it = {.split = false};
    it.init.fields =
        (struct ph_COMM_INIT){.nranks = (uint32_t)nranks, .rank = (uint32_t)rank, .device = (uint32_t)device};
    it.init.id = *id;
    return enqueue(it, device, out);
}

static int current_device(void) {
    int device = 0;
    cudaGetDevice(&device);
    return device;
}

PH_EXPORT int ncclGetUniqueId(nccl_unique_id *id) {
    ph_host_call(PH_CALL_NCCL);
    if (!id) return NCCL_ERROR_ARGUMENT;
    /* Unique within the run, and the same in every run: communicators are told apart, and ordered, by it. */
    static atomic_uint_fast64_t made;
    memset(id->internal, 0, sizeof id->internal);
    snprintf(id->internal, sizeof id->internal, "rank %u, id %llu", ph_rank(),
             (unsigned long long)atomic_fetch_add(&made, 1));
    return NCCL_OK;
}

PH_EXPORT int ncclCommInitRank(nccl_comm **out, int nranks, nccl_unique_id id, int rank) {
    ph_host_call(PH_CALL_NCCL);
    return init(out, nranks, &id, rank, current_device());
}

PH_EXPORT int ncclCommInitRankConfig(nccl_comm **out, int nranks, nccl_unique_id id, int rank, void *config) {
    (void)config;
    ph_host_call(PH_CALL_NCCL);
    return init(out, nranks, &id, rank, current_device());
}

/* Every member passes the same ids in the same order, so the first names the communicator. */
PH_EXPORT int ncclCommInitRankScalable(nccl_comm **out, int nranks, int rank, int nids, nccl_unique_id *ids,
                                       void *config) {
    (void)config;
    ph_host_call(PH_CALL_NCCL);
    return nids < 1 || !ids ? NCCL_ERROR_ARGUMENT : init(out, nranks, &ids[0], rank, current_device());
}

int ncclGroupStart(void);
int ncclGroupEnd(void);

PH_EXPORT int ncclCommInitAll(nccl_comm **out, int ndevices, const int *devices) {
    nccl_unique_id id;
    int status = ndevices < 1 ? NCCL_ERROR_ARGUMENT : ncclGetUniqueId(&id);
    if (status != NCCL_OK) return status;
    ncclGroupStart();
    for (int i = 0; i < ndevices && status == NCCL_OK; i++)
        status = init(&out[i], ndevices, &id, i, devices ? devices[i] : i);
    int ended = ncclGroupEnd();
    return status != NCCL_OK ? status : ended;
}

PH_EXPORT int ncclCommSplit(nccl_comm *parent, int color, int key, nccl_comm **out, void *config) {
    (void)config;
    ph_host_call(PH_CALL_NCCL);
    if (!parent || parent->dead || !parent->id || !out || color < NCCL_SPLIT_NOCOLOR) return NCCL_ERROR_ARGUMENT;
    job it = {.split = true};
    it.of = (struct ph_COMM_SPLIT){.parent = parent->id, .color = color, .key = key, .seq = parent->splits++};
    return enqueue(it, parent->device, out);
}

/* The handle stays valid memory: watchdog threads may still ask about it. */
static int end(nccl_comm *comm, bool aborted) {
    if (!comm || comm->dead) return comm ? NCCL_ERROR_ARGUMENT : NCCL_OK;
    comm->dead = true;
    struct ph_COMM_DESTROY fields = {.comm = comm->id, .aborted = aborted};
    ph_emit(PH_KIND_COMM_DESTROY, &fields, sizeof fields, NULL, 0);
    return NCCL_OK;
}

PH_EXPORT int ncclCommDestroy(nccl_comm *comm) {
    ph_host_call(PH_CALL_NCCL);
    return end(comm, false);
}

PH_EXPORT int ncclCommAbort(nccl_comm *comm) { return end(comm, true); }

/* Stops what is under way; the program destroys it later. */
PH_EXPORT int ncclCommRevoke(nccl_comm *comm, int flags) {
    ph_host_call(PH_CALL_NCCL);
    return !comm || flags ? NCCL_ERROR_ARGUMENT : end(comm, true);
}

/* Marks no more work to come; the work given before stays on its streams. */
PH_EXPORT int ncclCommFinalize(nccl_comm *comm) {
    ph_host_call(PH_CALL_NCCL);
    return !comm || comm->dead ? NCCL_ERROR_ARGUMENT : NCCL_OK;
}

PH_EXPORT int ncclCommGetAsyncError(nccl_comm *comm, int *error) {
    if (!comm || !error) return NCCL_ERROR_ARGUMENT;
    *error = NCCL_OK;
    return NCCL_OK;
}

PH_EXPORT int ncclCommCount(const nccl_comm *comm, int *count) {
    if (!comm || !count) return NCCL_ERROR_ARGUMENT;
    *count = comm->nranks;
    return NCCL_OK;
}

PH_EXPORT int ncclCommUserRank(const nccl_comm *comm, int *rank) {
    if (!comm || !rank) return NCCL_ERROR_ARGUMENT;
    *rank = comm->rank;
    return NCCL_OK;
}

PH_EXPORT int ncclCommCuDevice(const nccl_comm *comm, int *device) {
    if (!comm || !device) return NCCL_ERROR_ARGUMENT;
    *device = comm->device;
    return NCCL_OK;
}
