/*
 * NCCL: communicators.
 *
 * Creating a communicator is a question, because only the coordinator knows the other members. As in ncclCommInitRank
 * the thread blocks, in real time, until every member has asked. In one group several communicators may be created, and
 * members may list them in different orders: the questions are sent when the group ends, each by a thread of its own.
 *
 * With a non-blocking configuration (config->blocking = 0) the creation also completes before the call returns. NCCL
 * documents that such a call may return ncclSuccess instead of ncclInProgress.
 */
#define _GNU_SOURCE
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "threads/host.h"
#include "device/device.h"
#include "core/run.h"
#include "nccl/nccl.h"
#include "threads/python.h"
#include "threads/sites.h"
#include "threads/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A communicator that is to be created. */
typedef struct creation {
    bool split;
    uint16_t site;
    int status;
    nccl_comm *comm, **out;
    nccl_members members;
    union {
        struct {
            struct ph_COMM_INIT fields;
            nccl_unique_id id;
        } init;
        struct ph_COMM_SPLIT of;
    };
} creation;

static _Thread_local struct {
    creation *creations;
    size_t count, capacity;
} waiting;

static int ask(creation *it) {
    struct ph_COMM reply = {0};
    size_t id_nbytes = it->split ? 0 : sizeof it->init.id.internal;
    size_t members_nbytes = it->members.n * sizeof *it->members.ranks;
    char *payload = ph_allocate(id_nbytes + members_nbytes);
    memcpy(payload, it->init.id.internal, id_nbytes);
    if (members_nbytes) memcpy(payload + id_nbytes, it->members.ranks, members_nbytes);
    if (it->split)
        ph_ask(PH_KIND_COMM_SPLIT, &it->of, sizeof it->of, payload, members_nbytes, &reply, sizeof reply);
    else
        ph_ask(PH_KIND_COMM_INIT, &it->init.fields, sizeof it->init.fields, payload, id_nbytes + members_nbytes, &reply,
               sizeof reply);
    free(payload);
    free(it->members.ranks);
    if (ph_run.alone && !it->split) /* nobody answers: every rank asked for is there */
        reply = (struct ph_COMM){.comm = 1, .rank = it->init.fields.rank, .nranks = it->init.fields.nranks};
    if (reply.comm == 0) { /* NCCL_SPLIT_NOCOLOR */
        ph_watch_free(it->comm->watch);
        free(it->comm);
        *it->out = NULL;
        return NCCL_OK;
    }
    it->comm->rank = (int)reply.rank;
    it->comm->nranks = (int)reply.nranks;
    it->comm->sent = ph_allocate(reply.nranks * sizeof(uint64_t));
    it->comm->received = ph_allocate(reply.nranks * sizeof(uint64_t));
    it->comm->peers = ph_allocate(reply.nranks);
    it->comm->met = ph_allocate(reply.nranks);
    it->comm->memory = reply;
    it->comm->id = reply.comm;
    return nccl_memory_made(it->comm);
}

static void *ask_on_thread(void *arg) {
    creation *it = arg;
    ph_site_inherit(it->site);
    it->status = ask(it);
    return NULL;
}

int nccl_create_communicators(void) {
    size_t count = waiting.count;
    waiting.count = 0;
    if (count <= 1) return count ? ask(&waiting.creations[0]) : NCCL_OK;
    pthread_t *threads = ph_allocate(count * sizeof *threads);
    uint16_t site = ph_site_with_caller();
    void *interpreter = ph_python_release();
    for (size_t i = 0; i < count; i++) waiting.creations[i].site = site;
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, ask_on_thread, &waiting.creations[i]) != 0)
            ph_die("cannot start the thread that creates communicator %zu of %zu of an NCCL group", i + 1, count);
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    ph_python_restore(interpreter);
    free(threads);
    int status = NCCL_OK;
    for (size_t i = 0; i < count && status == NCCL_OK; i++) status = waiting.creations[i].status;
    return status;
}

/* Adds a communicator to the group. *out is set at once, as in NCCL, and can be used when the group has ended. */
static int enqueue(creation it, int device, nccl_comm **out) {
    waiting.creations = ph_room_for_one(waiting.creations, waiting.count, &waiting.capacity, sizeof *waiting.creations);
    it.comm = ph_allocate(sizeof *it.comm);
    it.comm->device = device;
    it.comm->watch = ph_watch_make();
    it.out = out;
    *out = it.comm;
    waiting.creations[waiting.count++] = it;
    return nccl_in_group() ? NCCL_OK : nccl_create_communicators();
}

static int init(nccl_comm **out, int nranks, const nccl_unique_id *id, int rank, int device) {
    if (!out || nranks < 1 || rank < 0 || rank >= nranks) return NCCL_ERROR_ARGUMENT;
    ph_join(ph_visible_gpu(device));
    creation it = {.split = false};
    it.init.fields = (struct ph_COMM_INIT){
        .nranks = (uint32_t)nranks, .rank = (uint32_t)rank, .device = (uint32_t)ph_visible_gpu(device)};
    it.init.id = *id;
    nccl_members members = nccl_members_of(id);
    it.members = nccl_copied(members.ranks, members.n);
    return enqueue(it, device, out);
}

/* The id has been made, and the communicator is. One member makes the id, all others wait for it until then. So it
 * takes the time of each, and ranks are alike whoever makes it. */
static void host_inits(const char *caller) {
    ph_host_call_of(PH_CALL_NCCL, caller);
    ph_host_call_of(PH_CALL_NCCL, caller);
}

PH_EXPORT int ncclGetUniqueId(nccl_unique_id *id) {
    ph_join(ph_visible_gpu(ph_self()->device));
    if (!id) return NCCL_ERROR_ARGUMENT;
    /* Unique within the run, and the same in every run: the coordinator orders communicators by their ids. */
    static atomic_uint_fast64_t made;
    memset(id->internal, 0, sizeof id->internal);
    snprintf(id->internal, sizeof id->internal, "rank %u, id %llu", ph_run.rank,
             (unsigned long long)atomic_fetch_add(&made, 1));
    return NCCL_OK;
}

PH_EXPORT int ncclCommInitRank(nccl_comm **out, int nranks, nccl_unique_id id, int rank) {
    host_inits(__func__);
    return init(out, nranks, &id, rank, ph_self()->device);
}

PH_EXPORT int ncclCommInitRankConfig(nccl_comm **out, int nranks, nccl_unique_id id, int rank, void *config) {
    (void)config;
    host_inits(__func__);
    return init(out, nranks, &id, rank, ph_self()->device);
}

/* Every member passes the same ids in the same order, so the first one identifies the communicator. */
PH_EXPORT int ncclCommInitRankScalable(nccl_comm **out, int nranks, int rank, int nids, nccl_unique_id *ids,
                                       void *config) {
    (void)config;
    host_inits(__func__);
    return nids < 1 || !ids ? NCCL_ERROR_ARGUMENT : init(out, nranks, &ids[0], rank, ph_self()->device);
}

int ncclGroupStart(void);
int ncclGroupEnd(void);

PH_EXPORT int ncclCommInitAll(nccl_comm **out, int ndevices, const int *devices) {
    nccl_unique_id id;
    int status = ndevices < 1 ? NCCL_ERROR_ARGUMENT : ncclGetUniqueId(&id);
    ph_host_call(PH_CALL_NCCL);
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
    creation it = {.split = true};
    it.of = (struct ph_COMM_SPLIT){.parent = parent->id, .color = color, .key = key, .seq = parent->splits++};
    nccl_members members = nccl_members_of_split();
    it.members = nccl_copied(members.ranks, members.n);
    return enqueue(it, parent->device, out);
}

/* The handle is not freed: watchdog threads may still use it. */
static int end(nccl_comm *comm, bool aborted) {
    if (!comm || comm->dead) return comm ? NCCL_ERROR_ARGUMENT : NCCL_OK;
    comm->dead = true;
    nccl_forget_end(comm);
    nccl_memory_ended(comm);
    ph_watch_end(comm->watch);
    struct ph_COMM_DESTROY fields = {.comm = comm->id, .aborted = aborted};
    ph_emit(PH_KIND_COMM_DESTROY, &fields, sizeof fields, NULL, 0);
    return NCCL_OK;
}

PH_EXPORT int ncclCommDestroy(nccl_comm *comm) {
    ph_host_call(PH_CALL_NCCL);
    return end(comm, false);
}

PH_EXPORT int ncclCommAbort(nccl_comm *comm) { return end(comm, true); }

/* Stops what is going on; the program destroys the communicator later. */
PH_EXPORT int ncclCommRevoke(nccl_comm *comm, int flags) {
    ph_host_call(PH_CALL_NCCL);
    return !comm || flags ? NCCL_ERROR_ARGUMENT : end(comm, true);
}

/* Says that no more work will come. Work that was given before stays on its streams. */
PH_EXPORT int ncclCommFinalize(nccl_comm *comm) {
    ph_host_call(PH_CALL_NCCL);
    if (!comm || comm->dead) return NCCL_ERROR_ARGUMENT;
    ph_watch_end(comm->watch);
    return NCCL_OK;
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
