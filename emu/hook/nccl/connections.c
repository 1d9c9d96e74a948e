/*
 * NCCL: connections between peers. NCCL connects two ranks of a communicator before the first message from one to the
 * other, on the host, when the group ends or is captured (ncclTransportP2pSetup): all peers of a group at once,
 * whatever the calls' streams. It is told here with whom; who waits for whom is the coordinator's
 * (phantora_async/ingest).
 *
 * The host waits, in virtual time. That cannot be said of a thread beside the program's main one, whose waits would
 * stop the whole rank, nor of a group over several communicators, which NCCL connects side by side. These only tell.
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "nccl/nccl.h"
#include "op_stream/emit.h"
#include "threads/thread.h"

#include <stdlib.h>
#include <unistd.h>

/* Bits of nccl_comm's `met`: what has been told, in the next places what is about to be, and of what that is a part. */
enum { SENDS = PH_END_SENDS, RECEIVES = PH_END_RECEIVES, TOLD = SENDS | RECEIVES, NEW = 2, PART = 4 };
enum { PART_TO_RECORD = 4, PARTS = PH_MESSAGE_OF_GATHER | PH_MESSAGE_OF_SCATTER };
_Static_assert(PARTS >> PART_TO_RECORD == 3 << PART, "parts have their bits in `met`");

static bool mark(nccl_comm *comm, int peer, unsigned ends, unsigned part) {
    unsigned missing = ends & ~(unsigned)comm->met[peer];
    if (peer == comm->rank || !missing) return false;
    comm->met[peer] |= (unsigned char)(missing << NEW | part >> PART_TO_RECORD);
    return true;
}

static bool mark_all(nccl_comm *comm, unsigned ends) {
    bool any = false;
    for (int peer = 0; peer < comm->nranks; peer++) any |= mark(comm, peer, ends, 0);
    return any;
}

/* Marks the peers with which the call has to connect. */
static bool mark_call(const nccl_call *call) {
    nccl_comm *comm = call->comm;
    int root = call->op.peer;
    if (comm->unordered || comm->nranks == 1) return false;
    switch (call->op.op) {
    case PH_NCCL_SEND:
        return mark(comm, root, SENDS, call->part);
    case PH_NCCL_RECV:
        return mark(comm, root, RECEIVES, call->part);
    case PH_NCCL_ALL_TO_ALL:
        return mark_all(comm, SENDS | RECEIVES);
    case PH_NCCL_GATHER:
        return root == comm->rank ? mark_all(comm, RECEIVES) : mark(comm, root, SENDS, 0);
    case PH_NCCL_SCATTER:
        return root == comm->rank ? mark_all(comm, SENDS) : mark(comm, root, RECEIVES, 0);
    default:
        return false;
    }
}

static bool is_program(void) { return getpid() == gettid() || ph_thread_kind() == PH_THREAD_AUTOGRAD; }

static void tell(nccl_comm *comm, bool waits) {
    struct ph_CONNECT_PEER *peers = ph_allocate((size_t)comm->nranks * sizeof *peers);
    struct ph_CONNECT fields = {.comm = comm->id, .waits = waits};
    for (int peer = 0; peer < comm->nranks; peer++) {
        unsigned met = comm->met[peer], ends = met >> NEW & TOLD;
        if (!ends) continue;
        comm->met[peer] = (unsigned char)((met & TOLD) | ends);
        peers[fields.npeers++] = (struct ph_CONNECT_PEER){.peer = peer, .ends = ends | (met << PART_TO_RECORD & PARTS)};
    }
    if (fields.npeers) ph_emit_here(PH_KIND_CONNECT, &fields, sizeof fields, peers, fields.npeers * sizeof *peers);
    free(peers);
}

void nccl_connect_peers(const nccl_call *calls, size_t ncalls) {
    bool any = false, several = false;
    for (size_t i = 0; i < ncalls; i++) {
        any |= mark_call(&calls[i]);
        several |= calls[i].comm != calls[0].comm;
    }
    bool waits = any && !several && is_program();
    for (size_t i = 0; any && i < ncalls; i++) tell(calls[i].comm, waits);
}
