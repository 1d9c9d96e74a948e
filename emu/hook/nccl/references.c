/*
 * NCCL: what large calls move. No bytes travel: the outputs refer to the sources of the members' inputs (sources/), as
 * far as these are known. A member that has an input of its own expects the others to know theirs if it knows its own:
 * so activations and updated parameters, which nobody knows, cost nothing.
 */
#include "core/alloc.h"
#include "data/data.h"
#include "nccl/nccl.h"
#include "sources/remote.h"
#include "sources/store.h"

#include <stdlib.h>

static ph_remote where_of(const nccl_call *call) {
    const nccl_comm *comm = call->comm;
    ph_remote where = {.comm = comm->id,
                       .seq = call->op.seq,
                       .block = call->op.count * nccl_dtype_nbytes((int)call->op.dtype),
                       .op = call->op.op,
                       .root = (uint32_t)call->op.peer,
                       .place = (uint32_t)comm->rank,
                       .nranks = (uint32_t)comm->nranks};
    if (call->op.op == PH_NCCL_SEND) {
        where.root = (uint32_t)comm->rank;
        where.place = (uint32_t)call->op.peer;
    } else if (call->op.op == PH_NCCL_RECV)
        where.op = PH_NCCL_SEND;
    else if (call->op.peer < 0)
        where.root = 0;
    return where;
}

/* The pieces of the input; known bytes that lie in device memory are put into the store. */
static size_t input_pieces(void *input, size_t nbytes, ph_piece **out) {
    bool any = ph_data_refer_all(input, nbytes);
    return any ? ph_sources_list(input, nbytes, out) : 0;
}

static size_t tell(const ph_remote *where, void *input, size_t nbytes) {
    ph_piece *pieces = NULL;
    size_t n = input_pieces(input, nbytes, &pieces);
    for (size_t i = 0; i < n; i++) {
        pieces[i].start -= (uintptr_t)input;
        pieces[i].end -= (uintptr_t)input;
    }
    if (n) ph_remote_tell(where, pieces, n);
    ph_pieces_free(pieces, n);
    return n;
}

typedef struct late {
    ph_remote where;
    void *input;
    size_t nbytes;
} late;

static void tell_late(uint64_t arg) {
    late *it = (late *)(uintptr_t)arg;
    if (!tell(&it->where, it->input, it->nbytes)) ph_remote_tell(&it->where, NULL, 0);
    free(it);
}

/* Parts of the input have yet to arrive. Python's lock is needed when they have. */
static void follow_up(const nccl_call *call, ph_remote where) {
    late *it = ph_allocate(sizeof *it);
    *it = (late){where, call->input, call->input_nbytes};
    const uint64_t read[2] = {(uint64_t)(uintptr_t)call->input, call->input_nbytes};
    ph_remote_tell_later(&where);
    phantora_data_action(read, 1, NULL, 0, tell_late, (uint64_t)(uintptr_t)it);
}

void nccl_tell_references(nccl_call *call) {
    call->output_refers = false;
    if (!ph_store_shared()) return;
    ph_remote where = where_of(call);
    where.op |= call->part; /* what is told here goes to the coordinator alone */
    bool known = call->input_nbytes && ph_data_pending(call->input, call->input_nbytes);
    if (known)
        follow_up(call, where);
    else if (call->input_nbytes)
        known = tell(&where, call->input, call->input_nbytes) > 0;
    bool root_gives = call->op.op == PH_NCCL_BROADCAST || call->op.op == PH_NCCL_SCATTER || call->op.op == PH_NCCL_RECV;
    bool keeps = call->op.op == PH_NCCL_BROADCAST && call->op.peer == call->comm->rank;
    call->output_refers = call->output_nbytes && !keeps && (root_gives || known);
}

void nccl_settle_references(const nccl_call *call) {
    ph_remote where = where_of(call);
    ph_data_refer(call->output, ph_source_remote(&where), 0, call->output_nbytes);
}
