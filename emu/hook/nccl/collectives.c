/* NCCL: the calls on buffers. Each becomes an nccl_call; the sizes are those of NCCL's documentation. */
#include "core/config.h"
#include "threads/host.h"
#include "nccl/nccl.h"
#include "core/run.h"
#include "op_stream/warn.h"

static _Thread_local uint32_t whole; /* what this thread's sends and receives are parts of, see below */

/* Says what the sends and receives that this thread makes from now on are parts of: PH_MESSAGE_OF_GATHER,
 * _OF_SCATTER; 0: nothing. NCCL does not know: to it a gather is as many messages. In a folded run it must be known
 * who is its root. */
PH_EXPORT void phantora_messages_of(uint32_t kind) { whole = kind; }

typedef struct shape {
    uint64_t input, output, total;
} shape; /* in units of `count` elements; total: the largest buffer of any member */

bool nccl_moves(uint32_t op) {
    return op != PH_NCCL_ALL_REDUCE && op != PH_NCCL_REDUCE_SCATTER && op != PH_NCCL_REDUCE;
}

static int submit(uint32_t op, const void *input, void *output, size_t count, int dtype, int redop, int peer,
                  nccl_comm *comm, void *stream, shape of) {
    size_t element = nccl_dtype_nbytes(dtype);
    if (!comm || comm->dead || !element || peer < -1 || (comm->id && peer >= comm->nranks)) return NCCL_ERROR_ARGUMENT;
    nccl_call it = {.comm = comm, .stream = ph_stream_of(stream), .input = (void *)(uintptr_t)input, .output = output};
    if (!it.stream || !nccl_redop(redop, &it.op.redop, &it.op.scale)) return NCCL_ERROR_ARGUMENT;
    it.op.op = op;
    it.op.dtype = (uint32_t)dtype;
    it.op.peer = peer;
    it.op.count = count;
    it.part = op == PH_NCCL_SEND || op == PH_NCCL_RECV ? whole : 0;
    it.input_nbytes = of.input * count * element;
    it.output_nbytes = of.output * count * element;
    it.travels = !(ph_run.alone && comm->nranks > 1) && /* no member would ever answer */
                 of.total * count * element <= ph_cfg.data_limit_nbytes &&
                 (!nccl_dtype_is_float(dtype) || count <= ph_cfg.float_limit_count);
    it.refers = !it.travels && !(ph_run.alone && comm->nranks > 1) && nccl_moves(op);
    return nccl_submit(&it);
}

/* Threads of the program that call in turns: twice the one and twice the other. Autograd's threads call while the
 * thread that has asked for the backward pass waits, so that their order is certain. */
static void note_caller(nccl_comm *comm) {
    enum { TURNS = 3 };
    if (!comm || ph_thread_kind() != PH_THREAD_PROGRAM) return;
    ph_thread *self = ph_self();
    ph_thread *before = atomic_exchange_explicit(&comm->caller, self, memory_order_relaxed);
    if (LIKELY(!before || before == self)) return;
    if (atomic_fetch_add_explicit(&comm->turns, 1, memory_order_relaxed) + 1 == TURNS)
        ph_warn_once("threads call collectives in turns",
                     "threads of the program call collectives on one communicator in turns: this script may hang on "
                     "GPUs, where the threads of another rank may come in another order, unless the threads wait for "
                     "each other. Give each thread a process group of its own, or let the threads wait for each other");
}

static int call(uint32_t op, const void *input, void *output, size_t count, int dtype, int redop, int peer,
                nccl_comm *comm, void *stream, shape of) {
    note_caller(comm);
    ph_host_call(PH_CALL_NCCL_CALL);
    if (!nccl_in_group()) nccl_launches();
    return submit(op, input, output, count, dtype, redop, peer, comm, stream, of);
}

static uint64_t members(const nccl_comm *comm) { return comm ? (uint64_t)comm->nranks : 0; }

static bool is(const nccl_comm *comm, int rank) { return comm && comm->rank == rank; }

PH_EXPORT int ncclAllReduce(const void *input, void *output, size_t count, int dtype, int redop, nccl_comm *comm,
                            void *stream) {
    return call(PH_NCCL_ALL_REDUCE, input, output, count, dtype, redop, -1, comm, stream, (shape){1, 1, 1});
}

PH_EXPORT int ncclAllGather(const void *input, void *output, size_t count, int dtype, nccl_comm *comm, void *stream) {
    uint64_t n = members(comm);
    return call(PH_NCCL_ALL_GATHER, input, output, count, dtype, NCCL_SUM, -1, comm, stream, (shape){1, n, n});
}

PH_EXPORT int ncclReduceScatter(const void *input, void *output, size_t count, int dtype, int redop, nccl_comm *comm,
                                void *stream) {
    uint64_t n = members(comm);
    return call(PH_NCCL_REDUCE_SCATTER, input, output, count, dtype, redop, -1, comm, stream, (shape){n, 1, n});
}

PH_EXPORT int ncclBroadcast(const void *input, void *output, size_t count, int dtype, int root, nccl_comm *comm,
                            void *stream) {
    return call(PH_NCCL_BROADCAST, input, output, count, dtype, NCCL_SUM, root, comm, stream,
                (shape){is(comm, root), 1, 1});
}

PH_EXPORT int ncclBcast(void *buffer, size_t count, int dtype, int root, nccl_comm *comm, void *stream) {
    return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}

PH_EXPORT int ncclReduce(const void *input, void *output, size_t count, int dtype, int redop, int root, nccl_comm *comm,
                         void *stream) {
    return call(PH_NCCL_REDUCE, input, output, count, dtype, redop, root, comm, stream, (shape){1, is(comm, root), 1});
}

PH_EXPORT int ncclAlltoAll(const void *input, void *output, size_t count, int dtype, nccl_comm *comm, void *stream) {
    uint64_t n = members(comm);
    return call(PH_NCCL_ALL_TO_ALL, input, output, count, dtype, NCCL_SUM, -1, comm, stream, (shape){n, n, n});
}

PH_EXPORT int ncclGather(const void *input, void *output, size_t count, int dtype, int root, nccl_comm *comm,
                         void *stream) {
    uint64_t n = members(comm);
    return call(PH_NCCL_GATHER, input, output, count, dtype, NCCL_SUM, root, comm, stream,
                (shape){1, is(comm, root) ? n : 0, n});
}

PH_EXPORT int ncclScatter(const void *input, void *output, size_t count, int dtype, int root, nccl_comm *comm,
                          void *stream) {
    uint64_t n = members(comm);
    return call(PH_NCCL_SCATTER, input, output, count, dtype, NCCL_SUM, root, comm, stream,
                (shape){is(comm, root) ? n : 0, 1, n});
}

PH_EXPORT int ncclSend(const void *input, size_t count, int dtype, int peer, nccl_comm *comm, void *stream) {
    return peer < 0 ? NCCL_ERROR_ARGUMENT
                    : call(PH_NCCL_SEND, input, NULL, count, dtype, NCCL_SUM, peer, comm, stream, (shape){1, 0, 1});
}

PH_EXPORT int ncclRecv(void *output, size_t count, int dtype, int peer, nccl_comm *comm, void *stream) {
    return peer < 0 ? NCCL_ERROR_ARGUMENT
                    : call(PH_NCCL_RECV, NULL, output, count, dtype, NCCL_SUM, peer, comm, stream, (shape){0, 1, 1});
}

int nccl_collective(uint32_t op, const void *input, void *output, size_t count, int dtype, int peer, nccl_comm *comm,
                    void *stream) {
    uint64_t n = members(comm);
    shape of = {op == PH_NCCL_REDUCE_SCATTER ? n : 1, op == PH_NCCL_ALL_GATHER ? n : 1, 1};
    of.total = of.input > of.output ? of.input : of.output;
    if (op == PH_NCCL_REDUCE && !is(comm, peer)) of.output = 0;
    if (!input || op == PH_NCCL_RECV) of.input = 0;
    if (!output || op == PH_NCCL_SEND) of.output = 0;
    return submit(op, input, output, count, dtype, NCCL_SUM, peer, comm, stream, of);
}
