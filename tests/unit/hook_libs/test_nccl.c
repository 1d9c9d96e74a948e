/* NCCL: which calls become which records. */
#include "data/action.h"
#include "core/run.h"
#include "fakes.h"
#include "threads/thread.h"

#include <pthread.h>

typedef struct comm comm;
typedef struct unique_id {
    char bytes[128];
} unique_id;
int ncclGetUniqueId(unique_id *);
int ncclCommInitRank(comm **, int, unique_id, int);
int ncclCommInitRankConfig(comm **, int, unique_id, int, void *);
int ncclCommInitAll(comm **, int, const int *);
int ncclCommSplit(comm *, int, int, comm **, void *);
void phantora_comm_members(const void *, const uint32_t *, uint32_t);
void phantora_split_members(const uint32_t *, uint32_t);
void phantora_messages_of(uint32_t);
int ncclCommDestroy(comm *);
int ncclCommAbort(comm *);
int ncclCommCount(const comm *, int *);
int ncclCommUserRank(const comm *, int *);
int ncclCommCuDevice(const comm *, int *);
int ncclCommGetAsyncError(comm *, int *);
int ncclCommShrink(void);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, comm *, void *);
int ncclAllGather(const void *, void *, size_t, int, comm *, void *);
int ncclReduceScatter(const void *, void *, size_t, int, int, comm *, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, comm *, void *);
int ncclSend(const void *, size_t, int, int, comm *, void *);
int ncclRecv(void *, size_t, int, int, comm *, void *);
int ncclRedOpCreatePreMulSum(int *, void *, int, int, comm *);
int ncclRedOpDestroy(int, comm *);
int ncclGetVersion(int *);
const char *ncclGetErrorString(int);
const char *ncclGetLastError(comm *);
int ncclAlltoAll(const void *, void *, size_t, int, comm *, void *);

enum { INT32 = 2, INT64 = 4, HALF = 6, FLOAT = 7, BFLOAT16 = 9, SUM = 0, MAX = 2 };

static comm *make(int nranks, int rank) {
    comm *it;
    unique_id id;
    CHECK(ncclGetUniqueId(&id) == 0 && ncclCommInitRank(&it, nranks, id, rank) == 0);
    fake_reset();
    return it;
}

static const struct ph_NCCL_LAUNCH *launch_of(int record) {
    CHECK(record < fake_nrecords && fake_records[record].kind == PH_KIND_NCCL_LAUNCH);
    return (const void *)fake_records[record].fields;
}

static const struct ph_NCCL_OP *op_of(int record, int index) {
    CHECK((uint32_t)index < launch_of(record)->nops);
    return (const struct ph_NCCL_OP *)(const void *)fake_records[record].payload + index;
}

static const unsigned char *data_of(int record) {
    return (const void *)op_of(record, 0) + launch_of(record)->nops * sizeof(struct ph_NCCL_OP);
}

static void creation_asks(void) {
    comm *it;
    unique_id id;
    int value;
    fake_reset();
    CHECK(ncclGetUniqueId(&id) == 0 && ncclCommInitRankConfig(&it, 4, id, 2, NULL) == 0);
    const struct ph_COMM_INIT *init = (const void *)fake_records[0].fields;
    CHECK(fake_nrecords == 1 && fake_records[0].kind == PH_KIND_COMM_INIT && init->nranks == 4 && init->rank == 2 &&
          init->device == 3);
    CHECK(fake_records[0].payload_nbytes == 128 &&
          memcmp(fake_records[0].payload, id.bytes, 128) == 0); /* passed by value */
    CHECK(ncclCommCount(it, &value) == 0 && value == 4);
    CHECK(ncclCommUserRank(it, &value) == 0 && value == 2);
    CHECK(ncclCommCuDevice(it, &value) == 0 && value == 3);
    CHECK(ncclCommGetAsyncError(it, &value) == 0 && value == 0);
    CHECK(ncclCommInitRank(&it, 2, id, 2) == 4);
}

static void splits_are_numbered(void) {
    comm *parent = make(4, 1), *child = (comm *)1, *none = (comm *)1;
    int count;
    fake_nranks = 2, fake_rank = 1;
    CHECK(ncclCommSplit(parent, 5, 9, &child, NULL) == 0 && ncclCommSplit(parent, -1, 0, &none, NULL) == 0);
    const struct ph_COMM_SPLIT *first = (const void *)fake_records[0].fields,
                               *second = (const void *)fake_records[1].fields;
    CHECK(first->color == 5 && first->key == 9 && first->seq == 0 && second->color == -1 && second->seq == 1 &&
          none == NULL);
    CHECK(ncclCommCount(child, &count) == 0 && count == 2);
}

static void questions_carry_told_members(void) {
    comm *it;
    unique_id id;
    const uint32_t members[] = {2, 9, 4}, part[] = {1, 2, 9, 4};
    fake_reset();
    CHECK(ncclGetUniqueId(&id) == 0);
    phantora_comm_members(&id, members, 3);
    phantora_split_members(part, 4);
    CHECK(ncclCommInitRank(&it, 3, id, 1) == 0);
    CHECK(fake_records[0].payload_nbytes == 128 + sizeof members &&
          memcmp(fake_records[0].payload + 128, members, sizeof members) == 0);
    CHECK(ncclCommSplit(it, 5, 9, &it, NULL) == 0 && fake_records[1].payload_nbytes == sizeof part);
    CHECK(memcmp(fake_records[1].payload, part, sizeof part) == 0);
    phantora_split_members(NULL, 0);
    CHECK(ncclCommSplit(it, 5, 9, &it, NULL) == 0 && fake_records[2].payload_nbytes == 0);
}

static void creations_of_a_group_go_out_together(void) {
    comm *comms[3];
    fake_reset();
    ncclGroupStart();
    unique_id a, b;
    CHECK(ncclGetUniqueId(&a) == 0 && ncclGetUniqueId(&b) == 0);
    CHECK(ncclCommInitRank(&comms[0], 2, a, 0) == 0 && ncclCommInitRank(&comms[1], 2, b, 1) == 0);
    CHECK(fake_nrecords == 0);
    CHECK(ncclGroupEnd() == 0 && fake_nrecords == 2);
    int devices[3] = {0, 1, 2}, rank;
    fake_reset();
    CHECK(ncclCommInitAll(comms, 3, devices) == 0 && fake_nrecords == 3);
    CHECK(ncclCommUserRank(comms[2], &rank) == 0 && rank == 2);
}

static void small_data_travels(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), *b = fake_device(64), values[3] = {7, 8, 9}, reduced[3] = {10, 11, 12};
    ph_data_copy(a, values, sizeof values);
    CHECK(ncclAllReduce(a, b, 3, INT32, MAX, it, (void *)2) == 0);
    const struct ph_NCCL_OP *op = op_of(0, 0);
    CHECK(fake_nrecords == 1 && launch_of(0)->stream == 3 && op->op == PH_NCCL_ALL_REDUCE && op->redop == MAX &&
          op->count == 3 && op->seq == 0);
    CHECK(op->data_nbytes == 12 && op->token && fake_records[0].payload_nbytes == sizeof *op + 16 &&
          memcmp(data_of(0), values, 12) == 0);
    CHECK(ph_data_pending(b, 12));
    ph_data_arrived(op->token, reduced, sizeof reduced, false);
    CHECK(b[2] == 12 && ph_data_known(b, 12));
    CHECK(ncclAllReduce(b, b, 3, INT32, SUM, it, NULL) == 0 && op_of(1, 0)->seq == 1);
}

static void large_and_unknown_data_stays(void) {
    comm *it = make(2, 0);
    char *a = fake_device(4 << 20), *b = fake_device(4 << 20);
    CHECK(ncclAllGather(a, b, (1 << 20) / 4 + 1, HALF, it, NULL) ==
          0); /* one rank's part is below the limit, the whole is not */
    CHECK(op_of(0, 0)->token == 0 && op_of(0, 0)->data_nbytes == 0);
    CHECK(ncclAllReduce(a, b, 100, FLOAT, SUM, it, NULL) == 0); /* nothing modelled wrote it */
    CHECK(op_of(1, 0)->token != 0 && op_of(1, 0)->data_nbytes == 0);
    ph_data_arrived(op_of(1, 0)->token, NULL, 0, false);
    CHECK(!ph_data_pending(b, 400) && !ph_data_known(b, 4));
    ph_data_set(a, 1, 5000 * 4); /* known, but so many floats are no control data; as many integers may be */
    CHECK(ncclAllReduce(a, b, 5000, FLOAT, SUM, it, NULL) == 0);
    CHECK(op_of(2, 0)->token == 0 && op_of(2, 0)->data_nbytes == 0);
    CHECK(ncclAllReduce(a + (2 << 20), b, 5000, INT32, SUM, it, NULL) == 0 && op_of(3, 0)->token != 0);
    CHECK(ncclAllGather(a + (2 << 20), b, 4000, FLOAT, it, NULL) == 0 && op_of(4, 0)->token != 0); /* of each rank */
}

static void half_written_numbers_do_not_travel(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), *b = fake_device(64), value = 3;
    ph_data_copy(a, &value, 4);
    CHECK(ncclAllReduce(a, b, 2, INT32, 0, it, NULL) == 0 && op_of(0, 0)->data_nbytes == 0);
    ph_data_arrived(op_of(0, 0)->token, NULL, 0, false);
    CHECK(ncclAllReduce(a, b, 1, INT32, 0, it, NULL) == 0 && op_of(1, 0)->data_nbytes == 4);
    ph_data_arrived(op_of(1, 0)->token, &value, 4, false);
}

static void broadcast_root_expects_nothing(void) {
    comm *root = make(2, 0), *other = make(2, 1);
    int *a = fake_device(64), *b = fake_device(64), value = 3;
    ph_data_copy(a, &value, 4);
    CHECK(ncclBroadcast(a, b, 1, INT32, 0, root, NULL) == 0 && b[0] == 3);
    CHECK(op_of(0, 0)->token == 0 && op_of(0, 0)->data_nbytes == 4 && op_of(0, 0)->peer == 0);
    CHECK(ncclBroadcast(b, b, 1, INT32, 0, other, NULL) == 0);
    CHECK(op_of(1, 0)->token != 0 && op_of(1, 0)->data_nbytes == 0);
    ph_data_arrived(op_of(1, 0)->token, &value, 4, false);
}

static void groups_become_one_launch_per_stream(void) {
    comm *it = make(4, 1);
    int *a = fake_device(4096);
    int64_t one = 1;
    ph_data_copy(a, &one, 8);
    ncclGroupStart();
    ncclGroupStart();
    CHECK(ncclSend(a, 1, INT64, 2, it, (void *)3) == 0 && ncclRecv(a + 64, 1, INT64, 0, it, (void *)3) == 0);
    ncclGroupEnd();
    CHECK(ncclSend(a, 1, INT64, 2, it, (void *)3) == 0 && ncclSend(a, 1, INT64, 0, it, (void *)4) == 0);
    CHECK(fake_nrecords == 0);
    CHECK(ncclGroupEnd() == 0 && fake_nrecords == 2 && launch_of(0)->nops == 3 && launch_of(1)->nops == 1);
    CHECK(launch_of(0)->stream == 4 && launch_of(1)->stream == 5);
    CHECK(op_of(0, 0)->op == PH_NCCL_SEND && op_of(0, 0)->peer == 2 && op_of(0, 0)->seq == 0 &&
          op_of(0, 0)->token == 0);
    CHECK(op_of(0, 1)->op == PH_NCCL_RECV && op_of(0, 1)->peer == 0 && op_of(0, 1)->seq == 0 &&
          op_of(0, 1)->token != 0);
    CHECK(op_of(0, 2)->seq == 1 && op_of(1, 0)->seq == 0); /* counted by peer */
    CHECK(data_of(0)[0] == 1 && fake_records[0].payload_nbytes == 3 * sizeof(struct ph_NCCL_OP) + 16);
    CHECK(ncclGroupEnd() == 5);
    int64_t received = 5;
    ph_data_arrived(op_of(0, 1)->token, &received, 8, false);
}

static void is_launch(int record, uint32_t stream) { CHECK(launch_of(record)->stream == stream); }

static uint64_t is_recording(int record, uint32_t stream, uint64_t drop) {
    const struct ph_EVENT_RECORD *it = (const void *)fake_records[record].fields;
    CHECK(fake_records[record].kind == PH_KIND_EVENT_RECORD && it->stream == stream && it->drop == drop);
    return it->recording;
}

static void is_wait(int record, uint32_t stream, uint64_t recording) {
    const struct ph_STREAM_WAIT *it = (const void *)fake_records[record].fields;
    CHECK(fake_records[record].kind == PH_KIND_STREAM_WAIT && it->stream == stream && it->recording == recording);
}

static void messages_of_a_scatter_are_marked(void) {
    comm *it = make(3, 0);
    char *a = fake_device(4096);
    phantora_messages_of(PH_MESSAGE_OF_SCATTER);
    ncclGroupStart();
    CHECK(ncclSend(a, 8, INT32, 1, it, NULL) == 0 && ncclSend(a + 64, 8, INT32, 2, it, NULL) == 0);
    CHECK(ncclGroupEnd() == 0 && fake_nrecords == 1);
    CHECK(op_of(0, 0)->op == (PH_NCCL_SEND | PH_MESSAGE_OF_SCATTER) && op_of(0, 0)->peer == 1 &&
          op_of(0, 1)->op == (PH_NCCL_SEND | PH_MESSAGE_OF_SCATTER) && op_of(0, 1)->seq == 0);
    CHECK(ncclBroadcast(a, a, 8, INT32, 0, it, NULL) == 0 && op_of(1, 0)->op == PH_NCCL_BROADCAST);
    phantora_messages_of(0);
    CHECK(ncclSend(a, 8, INT32, 1, it, NULL) == 0 && op_of(2, 0)->op == PH_NCCL_SEND && op_of(2, 0)->seq == 1);
}

static void kernels_of_one_communicator_follow_each_other(void) {
    comm *it = make(2, 0), *other = make(2, 0);
    float *a = fake_device(8 << 20);
    ph_run.started = true;
    CHECK(ncclAllReduce(a, a, 1 << 20, FLOAT, SUM, it, (void *)1) == 0);
    CHECK(ncclAllReduce(a, a, 1 << 20, FLOAT, SUM, it, (void *)1) == 0);
    CHECK(ncclAllReduce(a, a, 1 << 20, FLOAT, SUM, other, (void *)2) == 0); /* has no part in it */
    CHECK(fake_nrecords == 3);                                              /* one stream keeps their order */
    CHECK(ncclAllReduce(a, a, 1 << 20, FLOAT, SUM, it, (void *)2) == 0);
    CHECK(fake_nrecords == 7);
    uint64_t end = is_recording(3, 2, 0);
    is_wait(4, 3, end);
    is_launch(5, 3);
    end = is_recording(6, 3, end);
    CHECK(ncclAllReduce(a, a, 1 << 20, FLOAT, SUM, it, (void *)1) == 0);
    is_wait(7, 2, end);
    is_launch(8, 2);
    end = is_recording(9, 2, end);
    fake_reset();
    /* Calls of a group are one kernel: they wait for none of their own. Its end is behind all of its streams. */
    ncclGroupStart();
    CHECK(ncclSend(a, 1 << 20, FLOAT, 1, it, (void *)3) == 0 && ncclRecv(a, 1 << 20, FLOAT, 1, it, (void *)4) == 0);
    CHECK(ncclGroupEnd() == 0 && fake_nrecords == 7);
    is_wait(0, 4, end);
    is_wait(1, 5, end);
    is_launch(2, 4);
    is_launch(3, 5);
    end = is_recording(4, 4, end);
    is_wait(5, 5, end);
    is_recording(6, 5, end);
    CHECK(ncclCommDestroy(it) == 0 && fake_records[7].kind == PH_KIND_RECORDING_DROP);
    ph_run.started = false;
}

static void pending_input_follows(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), seven = 7, nine = 9;
    CHECK(ncclRecv(a, 1, INT32, 1, it, NULL) == 0 && ncclSend(a, 1, INT32, 1, it, NULL) == 0);
    CHECK(ncclAllReduce(a, a, 1, INT32, SUM, it, NULL) == 0); /* in place, after the send in the stream */
    CHECK(fake_nrecords == 3 && op_of(1, 0)->data_nbytes == UINT64_MAX && op_of(2, 0)->data_nbytes == UINT64_MAX);
    ph_data_arrived(op_of(2, 0)->token, &nine, 4, false); /* cannot overtake what came before */
    CHECK(ph_data_pending(a, 4));
    ph_data_arrived(op_of(0, 0)->token, &seven, 4, false);
    CHECK(fake_nrecords == 5 && fake_records[3].kind == PH_KIND_NCCL_DATA && fake_records[3].out_of_band);
    const struct ph_NCCL_DATA *late = (const void *)fake_records[3].fields,
                              *second = (const void *)fake_records[4].fields;
    CHECK(late->op == PH_NCCL_SEND && late->peer == 1 && late->seq == 0 &&
          memcmp(fake_records[3].payload, &seven, 4) == 0);
    CHECK(second->op == PH_NCCL_ALL_REDUCE && memcmp(fake_records[4].payload, &seven, 4) == 0);
    CHECK(a[0] == 9 && !ph_data_pending(a, 4));
}

static void assumed_input_follows(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), one = 1;
    *a = 0;
    ph_data_mark_assumed(a, 4);
    CHECK(ncclAllReduce(a, a, 1, INT32, SUM, it, NULL) == 0 && fake_nrecords == 2);
    CHECK(op_of(0, 0)->data_nbytes == UINT64_MAX && fake_records[1].kind == PH_KIND_NCCL_DATA);
    CHECK(((const struct ph_NCCL_DATA *)(const void *)fake_records[1].fields)->assumed == 1);
    ph_data_arrived(op_of(0, 0)->token, &one, 4, true);
    CHECK(a[0] == 1 && !ph_data_known(a, 4) && ph_data_assumed(a, 4));
}

static void integers_may_have_an_unwritten_end(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), three = 3;
    ph_data_copy(a, &three, 4);
    CHECK(ncclSend(a, 4, INT32, 1, it, NULL) == 0 && op_of(0, 0)->data_nbytes == UINT64_MAX);
    CHECK(((const struct ph_NCCL_DATA *)(const void *)fake_records[1].fields)->assumed == PH_SOME_KNOWN);
    const uint64_t known = 0xf;
    CHECK(memcmp(fake_records[1].payload, &known, 8) == 0 && memcmp(fake_records[1].payload + 8, &three, 4) == 0);
    CHECK(ncclAllReduce(a, a, 4, INT32, SUM, it, NULL) == 0 && op_of(2, 0)->data_nbytes == 0);
    ph_data_arrived(op_of(2, 0)->token, NULL, 0, 0);
}

static void what_has_arrived_may_be_known_in_part(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64);
    const struct {
        uint64_t known;
        int values[4];
    } arrived = {0xf0f0, {0, 5, 0, 7}};
    CHECK(ncclRecv(a, 4, INT32, 1, it, NULL) == 0);
    ph_data_arrived(op_of(0, 0)->token, &arrived, sizeof arrived, PH_SOME_KNOWN);
    CHECK(a[1] == 5 && a[3] == 7 && ph_data_known(a + 1, 4) && ph_data_known(a + 3, 4));
    CHECK(!ph_data_known_any(a, 4) && !ph_data_known_any(a + 2, 4));
}

static void one_rank_copies(void) {
    comm *it = make(1, 0);
    int *a = fake_device(64), *b = fake_device(64), four = 4;
    ph_data_copy(a, &four, 4);
    CHECK(ncclReduceScatter(a, b, 1, INT32, SUM, it, NULL) == 0 && b[0] == 4 && op_of(0, 0)->token == 0 &&
          op_of(0, 0)->data_nbytes == 0);
}

static void made_operators_carry_their_factor(void) {
    comm *it = make(2, 0);
    int redop, *a = fake_device(64);
    float quarter = 0.25f;
    uint16_t half = 0x3800, bfloat = 0x3e80;
    CHECK(ncclRedOpCreatePreMulSum(&redop, &quarter, FLOAT, 1, it) == 0 &&
          ncclAllReduce(a, a, 1, FLOAT, redop, it, NULL) == 0);
    CHECK(op_of(0, 0)->redop == PH_REDOP_PREMULSUM && op_of(0, 0)->scale == 0.25);
    ph_data_arrived(op_of(0, 0)->token, NULL, 0, false);
    CHECK(ncclRedOpDestroy(redop, it) == 0 && ncclAllReduce(a, a, 1, FLOAT, redop, it, NULL) == 4);
    CHECK(ncclRedOpCreatePreMulSum(&redop, &half, HALF, 1, it) == 0 &&
          ncclAllReduce(a, a, 1, HALF, redop, it, NULL) == 0);
    CHECK(op_of(1, 0)->scale == 0.5);
    ph_data_arrived(op_of(1, 0)->token, NULL, 0, false);
    CHECK(ncclRedOpCreatePreMulSum(&redop, &bfloat, BFLOAT16, 1, it) == 0 &&
          ncclAllReduce(a, a, 1, BFLOAT16, redop, it, NULL) == 0);
    CHECK(op_of(2, 0)->scale == 0.25);
    ph_data_arrived(op_of(2, 0)->token, NULL, 0, false);
}

static void graphs_replay(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64), value = 1;
    fake_capturing = true;
    CHECK(ncclAllReduce(a, a, 1, INT32, SUM, it, (void *)2) == 0 && fake_nrecords == 0);
    fake_capturing = false;
    fake_replay((void *)5, 2);
    CHECK(fake_nrecords == 2 && op_of(0, 0)->seq == 0 && op_of(1, 0)->seq == 1 && launch_of(1)->stream == 6);
    ph_data_arrived(op_of(0, 0)->token, &value, 4, false);
    ph_data_arrived(op_of(1, 0)->token, &value, 4, false);
    CHECK(!ph_data_pending(a, 4));
}

static void *calls(void *it) {
    int *a = fake_device(64);
    CHECK(ncclAllReduce(a, a, 1, FLOAT, SUM, it, NULL) == 0);
    return NULL;
}

/* This thread and another one call in turns, so often each. */
static void in_turns(comm *it, int times) {
    for (int i = 0; i < times; i++) {
        pthread_t other;
        calls(it);
        CHECK(pthread_create(&other, NULL, calls, it) == 0 && pthread_join(other, NULL) == 0);
    }
}

static void threads_in_turns_are_told(void) {
    in_turns(make(2, 0), 1);
    CHECK(!*fake_warned); /* one that hands over to the other is no race */
    in_turns(make(2, 0), 2);
    CHECK(strcmp(fake_warned, "threads call collectives in turns") == 0);
    comm *one = make(2, 0), *other = make(2, 0);
    fake_reset();
    in_turns(one, 1);
    in_turns(other, 1);
    CHECK(!*fake_warned); /* each communicator has an order of its own */
    comm *backward = make(2, 0);
    fake_kind = PH_THREAD_AUTOGRAD;
    in_turns(backward, 3);
    CHECK(!*fake_warned);
}

/* Sizes in bytes that differ in their digits; kernels come with the first communicator and the first message. */
static void memory_is_taken_when_it_is_needed(void) {
    enum { KERNELS = 356 << 20, MESSAGES = 58 << 20 };
    fake_memory = (struct ph_COMM){.made_nbytes = 1,
                                   .ring_nbytes = 20,
                                   .tree_nbytes = 300,
                                   .multicast_nbytes = 4000,
                                   .send_nbytes = 50000,
                                   .receive_nbytes = 600000,
                                   .net_send_nbytes = 7000000,
                                   .net_receive_nbytes = 80000000,
                                   .tree_sizes = 1 << 2,       /* 4 to 7 bytes */
                                   .multicast_sizes = 1 << 10, /* 1 to 2 KiB */
                                   .gather_sizes = 1 << 11,
                                   .first_near = 0,
                                   .near = 2};
    int *a = fake_device(1 << 14), *b = fake_device(1 << 14);
    comm *it = make(4, 0);
    CHECK(fake_taken == KERNELS + 1);
    CHECK(ncclAllReduce(a, b, 2, INT32, SUM, it, NULL) == 0 && fake_taken == KERNELS + 21);
    CHECK(ncclAllReduce(a, b, 1, INT32, SUM, it, NULL) == 0 && fake_taken == KERNELS + 321);
    CHECK(ncclAllReduce(a, b, 256, INT32, SUM, it, NULL) == 0 && fake_taken == KERNELS + 4321);
    CHECK(ncclSend(a, 1, INT32, 1, it, NULL) == 0 && fake_taken == KERNELS + MESSAGES + 54321);
    CHECK(ncclSend(a, 1, INT32, 1, it, NULL) == 0 && fake_taken == KERNELS + MESSAGES + 54321);
    CHECK(ncclRecv(a, 1, INT32, 1, it, NULL) == 0 && fake_taken == KERNELS + MESSAGES + 654321);
    CHECK(ncclSend(a, 1, INT32, 2, it, NULL) == 0 && fake_taken == KERNELS + MESSAGES + 7654321);
    CHECK(ncclAlltoAll(a, b, 1, INT32, it, NULL) == 0 && fake_taken == KERNELS + MESSAGES + 87654321);
    comm *gathers = make(4, 1);
    CHECK(ncclAllGather(a, b, 128, INT32, gathers, NULL) == 0); /* of 4 ranks: 2 KiB, by multicast */
    CHECK(fake_taken == KERNELS + MESSAGES + 87654321 + 4001);
    CHECK(ncclCommDestroy(it) == 0 && fake_taken == KERNELS + MESSAGES + 4001);
    fake_capacity = fake_taken + 1;
    CHECK(*ncclGetLastError(NULL) == 0);
    comm *last = make(2, 0);
    CHECK(ncclAllReduce(a, b, 2, INT32, SUM, last, NULL) == 1 && strstr(ncclGetLastError(last), "out of memory"));
    fake_memory = (struct ph_COMM){0};
    fake_capacity = UINT64_MAX;
}

/* The peers of a CONNECT as one number: a digit each, what this rank does with the peer of that place. */
static unsigned connected(int index, bool waits) {
    CHECK(index < fake_nconnects);
    const struct ph_CONNECT *it = (const void *)fake_connects[index].fields;
    const struct ph_CONNECT_PEER *peers = (const void *)fake_connects[index].payload;
    unsigned digits = 0;
    CHECK(it->waits == waits && fake_connects[index].payload_nbytes == it->npeers * sizeof *peers);
    for (uint32_t i = 0; i < it->npeers; i++) {
        unsigned place = 1;
        for (int k = 0; k < peers[i].peer; k++) place *= 10;
        digits += peers[i].ends * place;
    }
    return digits;
}

static void first_messages_connect(void) {
    enum { TO = PH_END_SENDS, FROM = PH_END_RECEIVES, BOTH = TO | FROM };
    comm *it = make(4, 0);
    int *a = fake_device(64), *b = fake_device(64);
    CHECK(ncclAllReduce(a, a, 1, INT32, SUM, it, NULL) == 0 && fake_nconnects == 0);
    CHECK(ncclSend(a, 1, INT32, 2, it, NULL) == 0 && connected(0, true) == 100 * TO);
    CHECK(ncclSend(a, 1, INT32, 2, it, NULL) == 0 && fake_nconnects == 1);
    ncclGroupStart(); /* its calls are on two streams: NCCL connects the group once */
    CHECK(ncclSend(a, 1, INT32, 2, it, (void *)2) == 0 && ncclSend(a, 1, INT32, 3, it, (void *)2) == 0);
    CHECK(ncclRecv(b, 1, INT32, 2, it, (void *)3) == 0 && ncclSend(a, 1, INT32, 0, it, (void *)3) == 0);
    CHECK(ncclRecv(b, 1, INT32, 0, it, (void *)3) == 0 && ncclGroupEnd() == 0);
    CHECK(fake_nconnects == 2 && connected(1, true) == 1000 * TO + 100 * FROM);
    CHECK(ncclAlltoAll(a, b, 1, INT32, it, NULL) == 0 && fake_nconnects == 3);
    CHECK(connected(2, true) == 1000 * FROM + 10 * BOTH);
    CHECK(ncclRecv(b, 1, INT32, 1, it, NULL) == 0 && fake_nconnects == 3);
}

static void a_capture_connects(void) {
    comm *it = make(2, 0);
    int *a = fake_device(64);
    fake_capturing = true;
    CHECK(ncclSend(a, 1, INT32, 1, it, (void *)2) == 0);
    CHECK(fake_nrecords == 0 && fake_nconnects == 1 && connected(0, true) == 10 * PH_END_SENDS);
    fake_capturing = false;
    fake_replay((void *)5, 1);
    CHECK(fake_nrecords == 1 && fake_nconnects == 1);
}

static void *connects(void *it) {
    CHECK(ncclSend(fake_device(64), 1, INT32, 1, it, NULL) == 0);
    return NULL;
}

/* NCCL connects several communicators side by side; what threads beside the main one wait for stops no other. */
static void some_only_take_part(void) {
    comm *first = make(2, 0), *second = make(2, 0);
    int *a = fake_device(64);
    ncclGroupStart();
    CHECK(ncclSend(a, 1, INT32, 1, first, NULL) == 0 && ncclRecv(a, 1, INT32, 1, second, NULL) == 0);
    CHECK(ncclGroupEnd() == 0 && fake_nconnects == 2);
    CHECK(connected(0, false) == 10 * PH_END_SENDS && connected(1, false) == 10 * PH_END_RECEIVES);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, connects, second) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(fake_nconnects == 3 && connected(2, false) == 10 * PH_END_SENDS);
    comm *of_backward = make(2, 0);
    fake_kind = PH_THREAD_AUTOGRAD;
    CHECK(pthread_create(&thread, NULL, connects, of_backward) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(fake_nconnects == 1 && connected(0, true) == 10 * PH_END_SENDS);
}

static void ends_and_errors(void) {
    comm *it = make(2, 0), *other = make(2, 0);
    int *a = fake_device(64), version = 0;
    CHECK(ncclAllReduce(a, a, 1, 99, SUM, it, NULL) == 4 && ncclSend(a, 1, INT32, 2, it, NULL) == 4 &&
          ncclSend(a, 1, INT32, -1, it, NULL) == 4);
    CHECK(ncclAllReduce(a, a, 1, INT32, SUM, NULL, NULL) == 4 && fake_nrecords == 0);
    CHECK(ncclCommDestroy(it) == 0 && fake_records[0].kind == PH_KIND_COMM_DESTROY &&
          ncclAllReduce(a, a, 1, INT32, SUM, it, NULL) == 4);
    CHECK(ncclCommAbort(other) == 0 &&
          ((const struct ph_COMM_DESTROY *)(const void *)fake_records[1].fields)->aborted == 1);
    CHECK(ncclCommShrink() == 5 && strcmp(fake_refused, "ncclCommShrink") == 0);
    CHECK(ncclGetVersion(&version) == 0 && version > 22000 && strstr(ncclGetErrorString(5), "usage"));
}

int main(void) {
    creation_asks();
    splits_are_numbered();
    questions_carry_told_members();
    creations_of_a_group_go_out_together();
    small_data_travels();
    large_and_unknown_data_stays();
    half_written_numbers_do_not_travel();
    broadcast_root_expects_nothing();
    groups_become_one_launch_per_stream();
    messages_of_a_scatter_are_marked();
    kernels_of_one_communicator_follow_each_other();
    pending_input_follows();
    assumed_input_follows();
    integers_may_have_an_unwritten_end();
    what_has_arrived_may_be_known_in_part();
    one_rank_copies();
    made_operators_carry_their_factor();
    graphs_replay();
    threads_in_turns_are_told();
    memory_is_taken_when_it_is_needed();
    first_messages_connect();
    a_capture_connects();
    some_only_take_part();
    ends_and_errors();
    return 0;
}
