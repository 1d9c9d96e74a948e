/*
 * NCCL: groups. The calls of a thread between ncclGroupStart and the outermost ncclGroupEnd become one launch per
 * stream, each with an NCCL_LAUNCH record. A call outside a group is a group of one.
 *
 * Bytes travel if the collective is small, which every member decides alike. Then the record carries this rank's input,
 * and the output comes back under a token. Nothing here waits for bytes: for input that is pending itself the record
 * says so (data_nbytes = UINT64_MAX), and the bytes follow in an NCCL_DATA record. So do bytes that are assumed (flags
 * of a check for overflow), because only that record can say so. The calls of a group are concurrent,
 * so all inputs are read before any output is expected; otherwise a buffer that is input and output would wait for
 * itself.
 *
 * Kernels of one communicator run one after the other, whatever their streams: NCCL orders them by events, and so does
 * this, from the first kernel on another stream on.
 */
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "core/config.h"
#include "op_stream/warn.h"
#include "data/data.h"
#include "device/device.h"
#include "graphs/capture.h"
#include "holders/holders.h"
#include "nccl/nccl.h"
#include "core/run.h"
#include "op_stream/trace.h"
#include "streams/event.h"
#include "threads/host.h"
#include "threads/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    int depth, status;
    nccl_call *calls;
    size_t count, capacity;
    unsigned char *payload;
    size_t payload_capacity;
} group;

static atomic_uint_fast64_t last_token;

/* Numbered as this process's questions are: a rank may have several processes. */
static uint64_t next_token(void) { return ((uint64_t)ph_run.process << 40) + ++last_token; }

bool nccl_in_group(void) { return group.depth > 0; }

static size_t padded(size_t nbytes) { return (nbytes + 7) & ~(size_t)7; }

/* Buffers may be known in part: the object collectives of torch.distributed pad theirs, as do pipelines that send
 * shapes, FSDP gathers parameters of several dtypes as bytes, and programs sum a loss and a count at once. Then it is
 * said which bytes are known. Of integers that are reduced and not known as a whole nothing is sent: they are assumed.
 */
typedef enum { NOTHING, ALL_KNOWN, ALL_ASSUMED, ALL_CHECKS, SOME_KNOWN } worth;

static worth worth_of(uint32_t op, uint32_t dtype, const void *input, size_t nbytes) {
    ph_data_settle(input, nbytes);
    if (ph_data_known(input, nbytes)) return ALL_KNOWN;
    if (ph_data_unknown(input, nbytes, false) == 0) return ph_data_chosen(input, nbytes) ? ALL_CHECKS : ALL_ASSUMED;
    bool parts = nccl_dtype_nbytes((int)dtype) == 1 || nccl_moves(op) || nccl_dtype_is_float((int)dtype);
    return parts && ph_data_known_any(input, nbytes) ? SOME_KNOWN : NOTHING;
}

static bool is_local(const nccl_call *call) {
    return call->comm->nranks == 1 && call->op.redop != PH_REDOP_PREMULSUM && call->op.op != PH_NCCL_SEND &&
           call->op.op != PH_NCCL_RECV;
}

/* The root of a broadcast has the output already. */
static bool keeps_own(const nccl_call *call) {
    return call->op.op == PH_NCCL_BROADCAST && call->op.peer == call->comm->rank;
}

/* Decides which bytes of this rank travel, by sizes that all members know. */
static void plan_data(nccl_call *call) {
    bool local = is_local(call);
    if (!call->travels) {
        if (local) return; /* the output is the input */
        if (call->refers) nccl_tell_references(call);
        if (!call->output_refers && !keeps_own(call)) ph_data_overwrite(call->output, call->output_nbytes);
        return;
    }
    if (call->input_nbytes && !local) {
        call->deferred = ph_data_pending(call->input, call->input_nbytes);
        worth found = call->deferred ? NOTHING : worth_of(call->op.op, call->op.dtype, call->input, call->input_nbytes);
        call->deferred |= found != NOTHING && found != ALL_KNOWN;
        if (call->deferred)
            call->op.data_nbytes = UINT64_MAX;
        else if (found == ALL_KNOWN)
            call->op.data_nbytes = call->input_nbytes;
    }
    if (call->output_nbytes && !local && !keeps_own(call)) call->op.token = next_token();
}

typedef struct late_input {
    uint32_t dtype, part;
    struct ph_NCCL_DATA fields;
    const void *input;
    size_t nbytes;
} late_input;

/* The input, and before it which of its bytes are known. */
static unsigned char *masked(const late_input *it, size_t *nbytes) {
    size_t before = ph_data_mask_nbytes(it->nbytes);
    unsigned char *made = ph_allocate(before + it->nbytes);
    const char *start = it->input;
    ph_range piece;
    memset(made, 0, before + it->nbytes);
    for (size_t at = 0; ph_data_next_readable(start + at, it->nbytes - at, &piece); at += piece.nbytes) {
        at = (size_t)((char *)piece.start - start);
        if (!ph_data_known(piece.start, piece.nbytes)) continue;
        for (size_t i = at; i < at + piece.nbytes; i++) made[i / 8] |= (unsigned char)(1 << i % 8);
        memcpy(made + before + at, piece.start, piece.nbytes);
    }
    *nbytes = before + it->nbytes;
    return made;
}

static void send_late_input(void *arg) {
    late_input *it = arg;
    static const uint64_t says[] = {
        [ALL_ASSUMED] = PH_ALL_ASSUMED, [ALL_CHECKS] = PH_ALL_CHECKS, [SOME_KNOWN] = PH_SOME_KNOWN};
    worth found = worth_of(it->fields.op, it->dtype, it->input, it->nbytes);
    size_t nbytes = found == NOTHING ? 0 : it->nbytes;
    unsigned char *made = found == SOME_KNOWN ? masked(it, &nbytes) : NULL;
    it->fields.assumed = says[found];
    it->fields.op |= it->part;
    ph_emit_out_of_band(PH_KIND_NCCL_DATA, &it->fields, sizeof it->fields, made ? made : it->input, nbytes);
    free(made);
    free(it);
}

static void follow_up(const nccl_call *call) {
    late_input *it = ph_allocate(sizeof *it);
    ph_range read = {call->input, call->input_nbytes};
    it->fields =
        (struct ph_NCCL_DATA){.comm = call->op.comm, .seq = call->op.seq, .op = call->op.op, .peer = call->op.peer};
    it->part = call->part;
    it->dtype = call->op.dtype;
    it->input = call->input;
    it->nbytes = call->input_nbytes;
    ph_data_action(&read, 1, NULL, 0, send_late_input, it);
}

static void emit(const nccl_call *calls, size_t ncalls, ph_stream *stream) {
    struct ph_NCCL_LAUNCH fields = {.stream = ph_stream_id(stream)};
    size_t nbytes = 0;
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].stream == stream)
            nbytes += sizeof(struct ph_NCCL_OP) + (calls[i].deferred ? 0 : padded(calls[i].op.data_nbytes));
    if (nbytes > group.payload_capacity)
        group.payload = ph_reallocate(group.payload, group.payload_capacity = 2 * nbytes);
    unsigned char *at = group.payload;
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].stream == stream) {
            struct ph_NCCL_OP op = calls[i].op;
            op.op |= calls[i].part;
            memcpy(at, &op, sizeof op);
            at += sizeof op;
            fields.nops++;
        }
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].stream == stream && !calls[i].deferred && calls[i].op.data_nbytes) {
            memcpy(at, calls[i].input, calls[i].op.data_nbytes);
            memset(at + calls[i].op.data_nbytes, 0, padded(calls[i].op.data_nbytes) - calls[i].op.data_nbytes);
            at += padded(calls[i].op.data_nbytes);
        }
    if (UNLIKELY(ph_tracing)) ph_trace_nccl(fields.stream);
    ph_emit_here(PH_KIND_NCCL_LAUNCH, &fields, sizeof fields, group.payload, nbytes);
}

/* The stream goes on when the communicator's kernel before is done. */
static void wait_for_kernel_before(nccl_comm *comm, ph_stream *stream) {
    if (!comm->stream || comm->stream == stream) return;
    if (!comm->end && comm->stream->magic == PH_STREAM_MAGIC) comm->end = ph_record_on(comm->stream, 0);
    if (comm->end) ph_recording_wait(stream, comm->end);
}

static void forget_stream(nccl_comm *comm, ph_stream *stream) {
    (void)stream;
    comm->stream = NULL;
}

/* A group's calls on several streams are one kernel: its end is behind all of them. */
static void note_end(nccl_comm *comm, ph_stream *stream) {
    if (comm->stream && comm->stream != stream) {
        if (!comm->end) comm->end = ph_record_on(comm->stream, 0);
        ph_recording_wait(stream, comm->end);
    }
    comm->stream = stream;
    if (comm->end) comm->end = ph_record_on(stream, comm->end);
}

void nccl_forget_end(nccl_comm *comm) {
    ph_record_lock();
    if (comm->end && ph_run.started) ph_recording_drop(comm->end);
    comm->end = 0;
    comm->stream = NULL;
    ph_record_unlock();
}

/* `act` for each communicator and stream of the calls. */
static void for_kernels(const nccl_call *calls, size_t ncalls, void (*act)(nccl_comm *, ph_stream *)) {
    if (!ph_run.started) return;
    ph_record_lock();
    for (size_t i = 0; i < ncalls; i++) {
        size_t j = 0;
        while (j < i && (calls[j].stream != calls[i].stream || calls[j].comm != calls[i].comm)) j++;
        if (j == i && !calls[i].comm->unordered) act(calls[i].comm, calls[i].stream);
    }
    ph_record_unlock();
}

/* Gives the call its number on its communicator. Every member calls in the same order, so the numbers agree. */
static void number(nccl_call *call) {
    nccl_comm *comm = call->comm;
    call->op.comm = comm->id;
    call->op.seq = call->op.op == PH_NCCL_SEND   ? comm->sent[call->op.peer]++
                   : call->op.op == PH_NCCL_RECV ? comm->received[call->op.peer]++
                                                 : comm->collectives++;
}

static void settle(const nccl_call *call) {
    if (!call->output_nbytes) return;
    if (call->output_refers)
        nccl_settle_references(call);
    else if (!call->travels && !is_local(call) && !keeps_own(call))
        return;
    else if (call->op.token)
        ph_data_expect(call->op.token, call->output, call->output_nbytes);
    else if (call->input_nbytes)
        ph_data_copy(call->output, call->input, call->output_nbytes); /* the only rank, or the root of a broadcast */
}

static bool first_of_stream(const nccl_call *calls, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (calls[j].stream == calls[i].stream) return false;
    return true;
}

static void launch_now(nccl_call *calls, size_t ncalls) {
    for (size_t i = 0; i < ncalls; i++) {
        number(&calls[i]);
        plan_data(&calls[i]);
    }
    for_kernels(calls, ncalls, wait_for_kernel_before);
    for_kernels(calls, ncalls, forget_stream);
    for (size_t i = 0; i < ncalls; i++)
        if (first_of_stream(calls, i)) {
            ph_stream_touch(calls[i].stream);
            emit(calls, ncalls, calls[i].stream);
        }
    for_kernels(calls, ncalls, note_end);
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].deferred) follow_up(&calls[i]);
    for (size_t i = 0; i < ncalls; i++) settle(&calls[i]);
}

/* ---- in a CUDA graph: the calls are kept, numbered and sent anew at each launch of the graph --------------------- */
typedef struct captured {
    size_t ncalls;
    nccl_call calls[];
} captured;

static void replay(ph_stream *stream, void *arg) {
    const captured *kept = arg;
    nccl_call *calls = ph_allocate(kept->ncalls * sizeof *calls);
    memcpy(calls, kept->calls, kept->ncalls * sizeof *calls);
    bool alive = true;
    for (size_t i = 0; i < kept->ncalls; i++) {
        calls[i].stream = stream;
        alive = alive && !calls[i].comm->dead;
    }
    if (alive)
        launch_now(calls, kept->ncalls);
    else
        ph_warn_once("graph of a dead communicator", "a CUDA graph was launched after one of its NCCL communicators "
                                                     "had been destroyed; its collectives are left out");
    free(calls);
}

/* Moves the calls on one captured stream from the array into its graph; returns how many are left. */
static size_t capture(nccl_call *calls, size_t ncalls, ph_stream *stream) {
    captured *kept = ph_allocate(sizeof *kept + ncalls * sizeof *calls);
    size_t left = 0;
    kept->ncalls = 0;
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].stream == stream)
            kept->calls[kept->ncalls++] = calls[i];
        else
            calls[left++] = calls[i];
    if (!ph_capture_call(stream, replay, free, kept))
        ph_die("an NCCL group on a stream whose capture ended within the group");
    return left;
}

static int launch(nccl_call *calls, size_t ncalls) {
    for (size_t i = 0; i < ncalls; i++)
        if (calls[i].comm->dead || !calls[i].comm->id) return NCCL_ERROR_ARGUMENT;
    for (size_t i = 0; i < ncalls; i++) {
        int status = nccl_memory_connect(&calls[i]);
        if (status != NCCL_OK) return status;
    }
    nccl_connect_peers(calls, ncalls);
    for (size_t i = 0; i < ncalls;)
        if (ph_stream_capturing(calls[i].stream)) {
            ncalls = capture(calls, ncalls, calls[i].stream);
            i = 0;
        } else {
            i++;
        }
    for (size_t i = 0; i < ncalls; i++) ph_watch_launch(calls[i].comm->watch);
    if (ncalls) {
        bool first_on_blocks = false;
        ph_holders_launch();
        for (size_t i = 0; i < ncalls; i++)
            first_on_blocks |= ph_holders_collective(calls[i].comm->device, calls[i].input, calls[i].output);
        launch_now(calls, ncalls);
        ph_watch_launched(calls[ncalls - 1].comm->watch, calls[ncalls - 1].stream, first_on_blocks);
    }
    return NCCL_OK;
}

/* Charges the launch of a kernel. In a loop of collectives it takes the host much less than between the layers of a
 * model, whatever its size: laboratory/notes/host-model.md has both. */
void nccl_launches(void) {
    ph_thread *thread = ph_self();
    bool hot = thread->age - thread->nccl_age <= ph_cfg.hot_within_functions;
    thread->nccl_age = thread->age;
    ph_host_call_of(hot ? PH_CALL_HOT_NCCL : PH_CALL_NCCL, "ncclLaunchKernel");
}

/* A kernel for each communicator. */
static void group_launches(void) {
    for (size_t i = 0; i < group.count; i++) {
        size_t j = 0;
        while (j < i && group.calls[j].comm != group.calls[i].comm) j++;
        if (j == i) nccl_launches();
    }
}

int nccl_submit(const nccl_call *call) {
    if (UNLIKELY(ph_run.dead) && ph_run.dead >> ph_visible_gpu(call->comm->device) & 1) return NCCL_ERROR_CUDA;
    if (group.depth == 0) {
        nccl_call alone = *call;
        return launch(&alone, 1);
    }
    group.calls = ph_room_for_one(group.calls, group.count, &group.capacity, sizeof *group.calls);
    group.calls[group.count++] = *call;
    return NCCL_OK;
}

PH_EXPORT int ncclGroupStart(void) {
    group.depth++;
    return NCCL_OK;
}

PH_EXPORT int ncclGroupEnd(void) {
    if (group.depth == 0) return NCCL_ERROR_USAGE;
    if (--group.depth > 0) return NCCL_OK;
    group_launches();
    int status = nccl_create_communicators();
    size_t count = group.count;
    group.count = 0;
    return status == NCCL_OK && count ? launch(group.calls, count) : status;
}

/* Durations are known to the scheduler only. As in NCCL the group's calls are dropped. */
PH_EXPORT int ncclGroupSimulateEnd(void *information) {
    (void)information;
    if (group.depth > 0 && --group.depth == 0) group.count = 0;
    return ph_refuse("ncclGroupSimulateEnd", NCCL_ERROR_USAGE);
}
