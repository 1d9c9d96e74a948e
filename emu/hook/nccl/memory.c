/*
 * NCCL: what it takes of a GPU's memory. The coordinator, which knows the cluster, says with each communicator how much
 * that is (netsim/collectives/memory.py). Here it is taken when NCCL would allocate it: tables when the communicator is
 * made, connections when the first call needs them. Code of kernels stays when communicators end.
 */
#include "device/device.h"
#include "holders/holders.h"
#include "memory/memory.h"
#include "nccl/nccl.h"
#include "core/config.h"

#include <stdatomic.h>

enum { SENT = 1, RECEIVED = 2 };
/* Bits of nccl_comm's `connected`. */
enum { RINGS = 1, TREES = 2, MULTICAST = 4, SENT_OUT = 8, RECEIVED_OUT = 16 };
/* Of NCCL 2.28 on an H200, once in a process: with the first communicator, and with the first messages. */
#define KERNELS ((uint64_t)356 << 20)
#define MESSAGE_KERNELS ((uint64_t)58 << 20)

static atomic_bool kernels[PH_MAX_DEVICES], message_kernels[PH_MAX_DEVICES];
static atomic_bool ran_out;

const char *nccl_last_error(void) { return ran_out ? "Cuda failure 2 'out of memory'" : ""; }

static int take_of(int device, uint64_t nbytes) {
    if (!nbytes || ph_memory_take(device, nbytes) == CUDA_OK) return NCCL_OK;
    ran_out = true;
    ph_holders_missing_outside(device, nbytes);
    return NCCL_ERROR_CUDA;
}

static int take(nccl_comm *comm, uint64_t nbytes) {
    int status = take_of(comm->device, nbytes);
    if (status == NCCL_OK) atomic_fetch_add(&comm->taken, nbytes);
    return status;
}

static int load(atomic_bool *loaded, int device, uint64_t nbytes) {
    if (atomic_exchange(&loaded[device], true)) return NCCL_OK;
    int status = take_of(device, nbytes);
    if (status != NCCL_OK) loaded[device] = false;
    return status;
}

int nccl_memory_made(nccl_comm *comm) {
    if (!comm->memory.made_nbytes) return NCCL_OK; /* nobody has said what NCCL takes */
    int status = load(kernels, comm->device, KERNELS);
    return status == NCCL_OK ? take(comm, comm->memory.made_nbytes) : status;
}

void nccl_memory_ended(nccl_comm *comm) { ph_memory_give(comm->device, atomic_exchange(&comm->taken, 0)); }

/* Connects what is not connected yet, for so many bytes. */
static int connect(nccl_comm *comm, unsigned what, uint64_t nbytes) {
    if (atomic_fetch_or(&comm->connected, what) & what) return NCCL_OK;
    int status = take(comm, nbytes);
    if (status != NCCL_OK) atomic_fetch_and(&comm->connected, ~what); /* the program may make room and try again */
    return status;
}

static int connect_peer(nccl_comm *comm, int peer, unsigned char end) {
    if (peer == comm->rank || (comm->peers[peer] & end)) return NCCL_OK;
    const struct ph_COMM *sizes = &comm->memory;
    comm->peers[peer] |= end;
    bool near = (uint32_t)peer - sizes->first_near < sizes->near;
    int status = near          ? take(comm, end == SENT ? sizes->send_nbytes : sizes->receive_nbytes)
                 : end == SENT ? connect(comm, SENT_OUT, sizes->net_send_nbytes)
                               : connect(comm, RECEIVED_OUT, sizes->net_receive_nbytes);
    if (status != NCCL_OK) comm->peers[peer] &= (unsigned char)~end;
    return status;
}

static int connect_all(nccl_comm *comm, bool to, bool from) {
    int status = NCCL_OK;
    for (int peer = 0; peer < comm->nranks && status == NCCL_OK; peer++) {
        if (to) status = connect_peer(comm, peer, SENT);
        if (from && status == NCCL_OK) status = connect_peer(comm, peer, RECEIVED);
    }
    return status;
}

/* NCCL's counting of the size: all that is gathered or scattered. */
static bool is_of(uint64_t sizes, const nccl_call *call, uint64_t parts) {
    uint64_t nbytes = call->op.count * nccl_dtype_nbytes((int)call->op.dtype) * parts;
    return sizes >> (63 - __builtin_clzll(nbytes | 1)) & 1;
}

static int connect_collective(const nccl_call *call) {
    nccl_comm *comm = call->comm;
    const struct ph_COMM *sizes = &comm->memory;
    bool gathers = call->op.op == PH_NCCL_ALL_GATHER || call->op.op == PH_NCCL_REDUCE_SCATTER;
    bool all = call->op.op == PH_NCCL_ALL_REDUCE;
    if ((all && is_of(sizes->multicast_sizes, call, 1)) ||
        (gathers && is_of(sizes->gather_sizes, call, (uint64_t)comm->nranks)))
        return connect(comm, MULTICAST, sizes->multicast_nbytes);
    int status = connect(comm, RINGS, sizes->ring_nbytes);
    return all && status == NCCL_OK && is_of(sizes->tree_sizes, call, 1) ? connect(comm, TREES, sizes->tree_nbytes)
                                                                         : status;
}

int nccl_memory_connect(const nccl_call *call) {
    nccl_comm *comm = call->comm;
    int root = call->op.peer;
    if (!comm->memory.made_nbytes || comm->unordered || comm->nranks == 1) return NCCL_OK;
    uint32_t op = call->op.op;
    bool messages = op == PH_NCCL_SEND || op == PH_NCCL_RECV || op == PH_NCCL_ALL_TO_ALL || op == PH_NCCL_GATHER ||
                    op == PH_NCCL_SCATTER;
    if (!messages) return connect_collective(call);
    int status = load(message_kernels, comm->device, MESSAGE_KERNELS);
    if (status != NCCL_OK) return status;
    if (op == PH_NCCL_SEND) return connect_peer(comm, root, SENT);
    if (op == PH_NCCL_RECV) return connect_peer(comm, root, RECEIVED);
    if (op == PH_NCCL_ALL_TO_ALL) return connect_all(comm, true, true);
    bool gather = op == PH_NCCL_GATHER;
    if (root == comm->rank) return connect_all(comm, !gather, gather);
    return connect_peer(comm, root, gather ? SENT : RECEIVED);
}
