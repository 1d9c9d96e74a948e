/*
 * Symmetric memory (torch.distributed._symmetric_memory), user buffers (Transformer Engine) and the all-reduces of
 * vLLM and SGLang: their kernels read, write and signal memory of all members of a group themselves. Each becomes the
 * collective of NCCL that does the same, so that the members wait for each other and the bytes cross the network.
 *
 * A kernel names its group by a table of addresses, one for each member, in device memory or in a struct. PyTorch
 * copies the tables of a group to the device while all members set it up; then the group's communicator is created.
 * Signals from one member to another are messages. The one that signals does not wait for the other, so they are sent
 * on streams of their own.
 */
#include "core/alloc.h"
#include "core/lock.h"
#include "core/hash.h"
#include "core/run.h"
#include "data/data.h"
#include "graphs/capture.h"
#include "kernels/peers.h"
#include "memory/shared.h"
#include "memory/vmm.h"
#include "nccl/nccl.h"
#include "threads/thread.h"
#include "streams/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MEMBERS = 1024, NONE = -1, F32 = 7, BF16 = 9, U8 = 1 }; /* ncclDataType_t */

typedef struct group {
    uint64_t key;
    nccl_comm *comm;
    ph_stream **senders; /* by member */
    struct group *next;
} group;

typedef struct table {
    const void *device;
    group *of;
    uintptr_t own; /* this member's address in it */
    struct range {
        uintptr_t start;
        uint64_t nbytes;
    } *members; /* of user buffers, which lead to a member by an address in its memory; else NULL */
    struct table *next;
} table;

static struct {
    group *groups;
    table *tables;
} known;

/* ---- groups ------------------------------------------------------------------------------------------------------ */

int ncclCommInitRank(nccl_comm **out, int nranks, nccl_unique_id id, int rank);

static group *group_of(uint64_t key, int members, int rank) {
    ph_lock(PH_LOCK_SYMMETRIC);
    group *it = known.groups;
    while (it && it->key != key) it = it->next;
    ph_unlock(PH_LOCK_SYMMETRIC);
    if (it) return it;
    nccl_unique_id id = {{0}};
    snprintf(id.internal, sizeof id.internal, "symmetric memory %016llx", (unsigned long long)key);
    nccl_comm *comm = NULL;
    if (ncclCommInitRank(&comm, members, id, rank) != NCCL_OK) return NULL;
    comm->unordered = true; /* its kernels are not NCCL's, and signals run beside others */
    it = ph_allocate(sizeof *it);
    *it = (group){.key = key, .comm = comm, .senders = ph_allocate((size_t)members * sizeof *it->senders)};
    ph_lock(PH_LOCK_SYMMETRIC);
    it->next = known.groups;
    known.groups = it;
    ph_unlock(PH_LOCK_SYMMETRIC);
    return it;
}

/* User buffers keep the tables of all buffers at the begin of the first one's memory, one after another. */
static const table *table_around(const void *p) {
    uintptr_t at = (uintptr_t)p;
    ph_lock(PH_LOCK_SYMMETRIC);
    const table *it = known.tables;
    while (it && !(it->members && at - it->own < it->members[it->of->comm->rank].nbytes)) it = it->next;
    ph_unlock(PH_LOCK_SYMMETRIC);
    return it;
}

static bool shared_of(const void *p, ph_shared *out) { return ph_vmm_shared_of(p, out) || ph_ipc_shared_of(p, out); }

/* A group has an address for each member, one of them in memory that this process has exported and the others in
 * memory that it has imported. Its key is the same for every member, and for the group's other tables. Returns the
 * table without its place; NULL if these are no such addresses. `at`: the members' memory. */
static table *read_table(const uintptr_t *addresses, size_t members, struct range *at) {
    uint64_t key = members;
    int own = NONE;
    for (size_t i = 0; i < members; i++) {
        ph_shared identity;
        if (!addresses[i] || !shared_of((const void *)addresses[i], &identity)) return NULL;
        at[i] = (struct range){addresses[i], identity.nbytes};
        if (!ph_shared_foreign(&identity)) {
            if (own != NONE) return NULL;
            own = (int)i;
        }
        uint64_t of_member[2] = {(uint64_t)identity.rank << 32 | identity.process, identity.number};
        key = ph_hash(key, of_member, sizeof of_member);
    }
    if (own == NONE) return NULL;
    group *of = group_of(key, (int)members, own);
    if (!of) return NULL;
    table *it = ph_allocate(sizeof *it);
    *it = (table){.of = of, .own = addresses[own]};
    return it;
}

static void keep_table(table *it, const void *device) {
    it->device = device;
    ph_lock(PH_LOCK_SYMMETRIC);
    it->next = known.tables;
    known.tables = it;
    ph_unlock(PH_LOCK_SYMMETRIC);
}

static void note_table(const void *dst, const void *src, size_t nbytes) {
    size_t members = nbytes / sizeof(uintptr_t);
    if (nbytes % sizeof(uintptr_t) || members < 2 || members > MOST_MEMBERS || table_around(dst)) return;
    struct range at[MOST_MEMBERS];
    table *it = read_table(src, members, at);
    if (!it) return;
    if ((uintptr_t)dst == it->own) {
        it->members = ph_allocate(members * sizeof *it->members);
        memcpy(it->members, at, members * sizeof *it->members);
    }
    keep_table(it, dst);
}

/* The one noted last: memory may have been freed and given out again. */
static const table *table_at(const void *device) {
    ph_lock(PH_LOCK_SYMMETRIC);
    const table *it = known.tables;
    while (it && it->device != device) it = it->next;
    ph_unlock(PH_LOCK_SYMMETRIC);
    return it;
}

/* Returns the table of this member's address; NULL if there is none. */
static const table *table_of(uintptr_t own) {
    ph_lock(PH_LOCK_SYMMETRIC);
    const table *it = known.tables;
    while (it && it->own != own) it = it->next;
    ph_unlock(PH_LOCK_SYMMETRIC);
    return it;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Places of a kernel's parameters; NONE: it has no such one. `count`: elements of the whole group's input or output,
 * of one member's if `each`. */
typedef struct form {
    const char *name;
    uint32_t op;
    int table, buffers, input, output, offset, count;
    bool each;
} form;

enum { BARRIER = 100, PUT, WAIT };
static const form forms[] = {
    {"multimem_all_reduce_kernel", PH_NCCL_ALL_REDUCE, 2, NONE, NONE, NONE, NONE, 1, false},
    {"multimem_one_shot_all_reduce_kernel", PH_NCCL_ALL_REDUCE, 3, NONE, NONE, 1, NONE, 2, false},
    {"multimem_one_shot_reduce_kernel", PH_NCCL_REDUCE, 3, NONE, NONE, 1, NONE, 2, false},
    {"multimem_all_gather_kernel", PH_NCCL_ALL_GATHER, 3, NONE, 0, NONE, NONE, 2, true},
    {"one_shot_all_reduce_kernel", PH_NCCL_ALL_REDUCE, 5, 0, 2, 1, 3, 4, false},
    {"two_shot_all_reduce_kernel_inplace", PH_NCCL_ALL_REDUCE, 3, 0, NONE, NONE, 1, 2, false},
    {"two_shot_all_reduce_kernel", PH_NCCL_ALL_REDUCE, 4, 0, NONE, 1, 2, 3, false},
    {"barrier_kernel", BARRIER, 0, NONE, NONE, NONE, NONE, NONE, false},
    {"put_signal_kernel", PUT, 0, NONE, NONE, NONE, NONE, NONE, false},
    {"wait_signal_kernel", WAIT, 0, NONE, NONE, NONE, NONE, NONE, false},
};

static const form *form_of(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strstr(name, forms[i].name)) return &forms[i];
    return NULL;
}

static void *pointer(void *const *params, int place) {
    void *value = NULL;
    if (place != NONE) memcpy(&value, params[place], sizeof value);
    return value;
}

/* A signal: a message of one element. The sender's stream waits for what was launched before, not the other way. */
static void put(group *it, int to, ph_stream *stream) {
    if (!it->senders[to] && ph_stream_create_apart(ph_stream_device(stream), &it->senders[to]) != CUDA_OK) return;
    ph_event *launched;
    if (ph_event_create(0, &launched) != CUDA_OK) return;
    ph_event_record(launched, stream);
    ph_stream_wait_event(it->senders[to], launched);
    ph_event_destroy(launched);
    nccl_collective(PH_NCCL_SEND, NULL, NULL, 1, U8, to, it->comm, it->senders[to]);
}

/* ---- user buffers ------------------------------------------------------------------------------------------------ */

/* Places of the parameters of userbuffers_fp16_sum_inplace_gpu_*: lines of 16 bytes of each member, and the table. */
enum { LINES = 6, LINE_NBYTES = 16 };
static const struct {
    const char *name;
    int table;
} user_forms[] = {{"_rs_oop_atomic_fp8", 10},
                  {"_rs_oop_stride_atomic", 10},
                  {"_rs_oop_stride_multiatomic", 10},
                  {"_rs_oop", 9},
                  {"_rs", 7},
                  {"_ag", 7}};

/* Places of those of kuserbuffers_pushsend and kuserbuffers_pushrecv. */
enum { SENT_FLAG = 1, RECEIVED_PEER = 3, RECEIVED_FLAG = 5 };

/* The other members do the same at the same time. Products beside it have fewer multiprocessors, as beside NCCL's. */
static bool together(const ph_kernel *kernel, void *const *params, ph_stream *stream) {
    for (size_t i = 0; i < sizeof user_forms / sizeof *user_forms; i++) {
        if (!strstr(kernel->name, user_forms[i].name)) continue;
        const table *at = table_at(pointer(params, user_forms[i].table));
        if (!at || !at->members) return false;
        int lines;
        memcpy(&lines, params[LINES], sizeof lines);
        bool gathers = user_forms[i].table == 7 && strstr(kernel->name, "_ag"), narrow = strstr(kernel->name, "_fp8");
        size_t count = (size_t)lines * LINE_NBYTES;
        nccl_collective(gathers ? PH_NCCL_ALL_GATHER : PH_NCCL_REDUCE_SCATTER, NULL, NULL,
                        gathers || narrow ? count : count / 2, gathers || narrow ? U8 : BF16, NONE, at->of->comm,
                        stream);
        return true;
    }
    return false;
}

/* A member waits for the flag in its memory that another one sets. */
static bool waits_for_flag(void *const *params, ph_stream *stream) {
    const table *at = table_around(pointer(params, RECEIVED_FLAG));
    int peer;
    memcpy(&peer, params[RECEIVED_PEER], sizeof peer);
    if (!at || peer < 0 || peer >= at->of->comm->nranks) return false;
    nccl_collective(PH_NCCL_RECV, NULL, NULL, 1, U8, peer, at->of->comm, stream);
    return true;
}

/* The kernel that has been launched sets a flag in the memory of another member when it has moved its bytes. */
static void launched(const ph_kernel *kernel, void *const *params, ph_stream *stream) {
    if (!params || !strstr(kernel->name, "kuserbuffers_pushsend")) return;
    uintptr_t flag = (uintptr_t)pointer(params, SENT_FLAG);
    ph_lock(PH_LOCK_SYMMETRIC);
    const table *it = known.tables;
    int to = NONE;
    for (; it; it = it->next) {
        for (int i = 0; it->members && i < it->of->comm->nranks && to == NONE; i++)
            if (i != it->of->comm->rank && flag - it->members[i].start < it->members[i].nbytes) to = i;
        if (to != NONE) break;
    }
    ph_unlock(PH_LOCK_SYMMETRIC);
    if (it) put(it->of, to, stream);
}

/* ---- all-reduces of vLLM and SGLang ------------------------------------------------------------------------------ */

/* Places of the parameters of cross_device_reduce_*stage<T, members>: the members' signals, in a struct, this member's
 * one, the result, this member's number, packs of 16 bytes. */
enum { SIGNALS = 1, OWN_SIGNAL = 2, PACKS = 5, MOST_SIGNALS = 8, PACK_NBYTES = 16, F16 = 6 };
static const char ALL_REDUCE[] = "cross_device_reduce_";

static bool all_reduced(const ph_kernel *kernel, void *const *params, ph_stream *stream) {
    const void *own = pointer(params, OWN_SIGNAL);
    const char *argument = strstr(strstr(kernel->name, ALL_REDUCE), "Li");
    size_t members = argument ? strtoul(argument + 2, NULL, 10) : 0;
    const table *at = table_at(own);
    if (!at && members >= 2 && members <= MOST_SIGNALS) {
        uintptr_t signals[MOST_SIGNALS];
        struct range unused[MOST_SIGNALS];
        memcpy(signals, params[SIGNALS], members * sizeof *signals);
        table *it = read_table(signals, members, unused);
        if (it) keep_table(it, own);
        at = it;
    }
    if (!at) return false;
    int packs, dtype = strstr(kernel->name, "bfloat16") ? BF16 : strstr(kernel->name, "half") ? F16 : F32;
    memcpy(&packs, params[PACKS], sizeof packs);
    size_t count = (size_t)packs * PACK_NBYTES / (dtype == F32 ? 4 : 2);
    nccl_collective(PH_NCCL_ALL_REDUCE, NULL, NULL, count, dtype, NONE, at->of->comm, stream);
    return true;
}

static bool launch(const ph_kernel *kernel, void *const *params, ph_stream *stream) {
    if (params && strstr(kernel->name, "userbuffers_fp16_sum")) return together(kernel, params, stream);
    if (params && strstr(kernel->name, "kuserbuffers_pushrecv")) return waits_for_flag(params, stream);
    if (params && strstr(kernel->name, ALL_REDUCE)) return all_reduced(kernel, params, stream);
    const form *what = form_of(kernel->name);
    if (!what || !params) return false;
    const table *at = table_at(pointer(params, what->table));
    if (!at) at = table_of((uintptr_t)pointer(params, what->table)); /* multimem_barrier_kernel has this member's */
    if (!at) return false;
    nccl_comm *comm = at->of->comm;
    int peer;
    memcpy(&peer, params[1], sizeof peer);
    switch (what->op) {
    case BARRIER:
        nccl_collective(PH_NCCL_ALL_REDUCE, NULL, NULL, 1, U8, NONE, comm, stream);
        return true;
    case PUT:
        put(at->of, peer, stream);
        return true;
    case WAIT:
        nccl_collective(PH_NCCL_RECV, NULL, NULL, 1, U8, peer, comm, stream);
        return true;
    }
    bool bytes = what->op == PH_NCCL_ALL_GATHER;
    int dtype = bytes ? U8 : strstr(kernel->name, "BFloat16") ? BF16 : F32;
    size_t count = (size_t)(uintptr_t)pointer(params, what->count), item = bytes ? 1 : dtype == BF16 ? 2 : 4;
    /* Where the members' common buffers are known, the bytes are: those of multicast addresses are not. */
    char *input = pointer(params, what->input), *output = pointer(params, what->output);
    const table *buffers = what->buffers == NONE ? NULL : table_at(pointer(params, what->buffers));
    char *own = buffers ? (char *)buffers->own + item * (size_t)(uintptr_t)pointer(params, what->offset) : NULL;
    if (!input) input = own;
    if (!output) output = own;
    uint32_t op = what->op;
    if (strstr(kernel->name, "Lb1ELb")) { /* of two_shot: each member keeps its part */
        op = PH_NCCL_REDUCE_SCATTER;
        count /= (size_t)comm->nranks;
    }
    nccl_collective(op, input, output, count, dtype, op == PH_NCCL_REDUCE ? 0 : NONE, comm, stream);
    return true;
}

void nccl_connect(void) {
    PH_CONNECT(ph_peer_functions.table, note_table);
    PH_CONNECT(ph_peer_functions.launch, launch);
    PH_CONNECT(ph_peer_functions.launched, launched);
}
