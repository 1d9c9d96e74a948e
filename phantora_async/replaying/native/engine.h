/*
 * replay/native/: executes the rows of a recording in virtual time. All facts are known from the start, so that events
 * follow each other in their total order and nothing is ever taken back. What each row does is what the classes of
 * phantora_async/virtual_time do; names are theirs. docs/virtual-time.md has the rules.
 *
 * The network stays in Python: BEGIN tells it that a collective begins, COMPLETE asks it what completes.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __int128 wide;

#define NEVER ((int64_t)1 << 62)
enum {
#define CONSTANT(NAME, value) NAME = value,
#include "../../../profiles/gpu_sharing.def"
#undef CONSTANT
    ACCOUNTS = 5,
    APART = 65536,
    FULL_PACE = 1000000
};

/* ---- input, laid out as numpy has it ------------------------------------------------------------------------------
 */

/* Kinds of rows: the numbers of records.def, and two that no record has. */
enum {
    BYE = 2,
    MEMORY = 4,
    COUNTERS = 5,
    MARKER = 6,
    STEPS_DONE = 12,
    STREAM_CREATE = 16,
    STREAM_DESTROY = 17,
    SEGMENT = 18,
    EVENT_RECORD = 19,
    STREAM_WAIT = 21,
    HOST_WAIT = 22,
    HOST_ADVANCE = 23,
    NCCL_LAUNCH = 32,
    COMM_DESTROY = 33,
    COMM_INIT = 64,
    COMM_SPLIT = 65,
    CLOCK_READ = 66,
    ELAPSED = 67,
    QUERY = 68,
    OUTSIDE = 1000,
    OPENS = 1001
};
enum { SCOPE_STREAM = 1, SCOPE_EVENT = 2, SCOPE_DEVICE = 3, MARKER_STEP = 1 };

typedef struct {
    uint16_t kind, site;
    uint32_t stream;
    uint64_t host_ns;
    uint64_t values[6];
} row;

typedef struct {
    int32_t comm; /* among those that the rank uses */
    int32_t pair; /* a send with its receive */
    int32_t sender, receiver;
} call;

typedef struct {
    const row *rows;
    int64_t nrows;
    const int32_t *comms, *places; /* of its communicators, by the rank's own number: which, and its place in it */
    int32_t ncomms, nrecordings;
    const int32_t *creations; /* in the order of its rows */
    int64_t ncreations;
} program;

typedef struct {
    int64_t nranks, depth, limit_ns, parts;
    const program *programs; /* by rank */
    const int64_t *kernels;  /* where each kernel's calls begin; one more for the end */
    const call *calls;
    const int32_t *members; /* of each communicator: how many */
    const int32_t *sizes;   /* of each creation: how many ranks ask */
    int64_t ncreations, ngates;
    int64_t npaces;
    const int32_t *host_paces; /* of each rank: its number, -1 for none */
    int64_t ndevice_paces;
    const int32_t *device_paces; /* rank, device, pace */
    const int32_t *gpus;         /* of each rank: the number of its own GPU on its server; -1: not known */
} input;

/* ---- state --------------------------------------------------------------------------------------------------------
 */

/* How fast something goes on from an instant on, and what has been done before. */
typedef struct {
    int64_t start_ns, pace;
    wide done;
} pace_part;

typedef struct {
    pace_part *parts;
    int64_t n, room, known_ns; /* what follows known_ns has to be asked for */
    int32_t number;
} pace;

typedef struct host host;
typedef struct stream stream;
typedef struct device device;
typedef struct kernel kernel;

/* An event to come: its place in the heap, -1 if there is none. */
typedef struct {
    int64_t at_ns, order, seq;
    int32_t place;
    bool is_host;
    void *target;
} event;

typedef enum {
    RUNNING,
    WAITS_STREAM,
    WAITS_EVENT,
    WAITS_DEVICE,
    WAITS_QUEUE,
    WAITS_COMM_CREATION,
    PASSED_OVER,
    FINISHED,
    ENDED,
    HELD
} host_state;
typedef enum { IDLE, BUSY, BLOCKED, COLLECTIVE } stream_state;
typedef enum { ITEM_SEGMENT, ITEM_EVENT, ITEM_WAIT, ITEM_KERNEL, ITEM_STEP } item_kind;

typedef struct {
    host *host;
    int64_t number, host_ns, device_ns, counters, pending, shares[6];
} step_end;

typedef struct {
    item_kind kind;
    int32_t launches, fill, recording;
    int64_t solo_ns, contended_ns, floor_ns;
    void *what; /* a kernel, a step's end */
} item;

struct stream {
    device *device;
    int64_t id;
    stream_state state;
    item *items;
    int64_t head, count, room, launches, queue_limit;
    bool host_waits;
    wide work_left, rate;
    int64_t updated_ns;
    event due;
    stream *next; /* of the host, by rising id */
    bool destroyed;
};

struct device {
    host *host;
    pace *pace; /* NULL: full */
    int64_t number, resident, transferring, busy_streams, busy_until_ns, since_ns, sample_ns;
    stream **running;
    int32_t nrunning, room;
    bool host_waits, used;
    int64_t compute_ns, transfer_ns, peers_ns, host_bound_ns, idle_ns, communication_ns;
    int64_t room_parts, width_ns, nsamples, samples_room, *samples;
    device *next;
};

typedef struct waiter {
    struct waiter *next;
    void *target;
    bool is_host;
} waiter;

typedef struct {
    int64_t done_ns;
    stream *stream;
    waiter *waiters;
} recording;

typedef struct {
    int64_t at_ns, device, allocated, reserved, handed_out;
} memory_change;

typedef struct pair_count {
    int32_t comm, sender, receiver;
    int64_t calls;
    struct pair_count *next;
} pair_count;

/* The turns of a loop that asks nothing but whether one work is complete: virtual_time/polls.py. */
typedef struct {
    int64_t first_ns, each_ns, count;
    bool then_slower; /* after them turns of TURN_NS at least follow, until the work is complete */
} turns;

struct host {
    int64_t rank, gpu, cursor, clock_ns, steps, counters, polls, polled_ns, created;
    const program *program;
    pace *pace; /* NULL: full */
    host_state state;
    bool retry, poll_delayed;
    int64_t known;      /* so many next questions of a loop have been overtaken: the work is complete */
    turns asking;       /* of the next row, questions of a loop; each_ns 0: none has been asked */
    recording *awaited; /* by a loop's questions; NULL: none */
    event due;
    stream *streams;
    stream **by_id; /* those with small numbers */
    device *devices;
    recording *recordings;
    int64_t *called; /* collectives, by the rank's communicators */
    pair_count *pairs;
    memory_change *memory;
    int64_t nmemory, memory_room;
    uint8_t *queries;
    int64_t *elapsed, *clocks; /* answers; elapsed: nanoseconds and ready */
    int64_t nqueries, nelapsed, nclocks, queries_room, elapsed_room, clocks_room;
};

typedef struct collective {
    int64_t seq;
    int32_t comm, sender, receiver, number, call;
    int32_t needed, arrived;
    bool exchange;
    kernel **kernels;
    struct collective *next; /* in the table */
} collective;

struct kernel {
    stream *stream;
    int32_t ncollectives, remaining, active;
    bool beside_compute;
    collective **collectives;
};

typedef struct {
    waiter *waiting;
    bool open;
} gate;

typedef struct {
    int32_t arrived;
    host **hosts;
} creation;

/* Both return the instant of the next completion, NEVER if nothing moves; negative: Python has raised an exception.
 * COMPLETE tells what is complete by rp_done. */
typedef int64_t (*begin_function)(int32_t number, int32_t comm, int32_t call, int64_t seq, int32_t exchange,
                                  int64_t at_ns, int32_t beside_compute);
typedef int64_t (*complete_function)(int64_t at_ns);
/* Tells by rp_pace what follows, beyond this instant. Negative: Python has raised an exception. */
typedef int64_t (*more_function)(int32_t pace, int64_t at_ns);

typedef struct {
    void **all;
    int64_t n, first, room;
} list;

typedef struct {
    input in;
    begin_function begin;
    complete_function complete;
    more_function more;
    bool raised; /* by `more` */
    pace *paces;
    host *hosts;
    event **heap;
    int64_t nheap, heap_room, seq, now_ns, network_ns, begun, executed;
    list arrived, woken, ended, ready, streams;
    list collectives; /* by number */
    collective **table;
    int64_t table_room;
    creation *creations;
    gate *gates;
    step_end **steps;
    int64_t nsteps, steps_room;
    int32_t *done;
    int64_t ndone, done_room;
    int64_t bad_rank, bad_row; /* of the row that could not be executed */
    const char *bad;
    void **owned; /* memory, given back at the end */
    int64_t nowned, owned_room;
} engine;

/* ---- memory.c: everything lives until the engine ends -------------------------------------------------------------
 */
void *take(engine *e, size_t nbytes);
void *grown(void *at, int64_t n, int64_t *room, size_t each);
void put(list *to, void *what);
void *take_first(list *from);

/* ---- queue.c ------------------------------------------------------------------------------------------------------
 */
void push(engine *e, int64_t at_ns, event *due, int64_t order);
void drop(engine *e, event *due);

/* ---- pace.c: `it` may be NULL, then nanoseconds are counted, else FULL_PACE parts of them ---------------------------
 */
void set_pace(pace *it, const int64_t *starts, const int64_t *paces, int64_t n, int64_t known_ns);
wide paced_work(engine *e, pace *it, int64_t from_ns, int64_t to_ns);
int64_t paced_end(engine *e, pace *it, int64_t from_ns, wide work);
int64_t paced(engine *e, pace *it, int64_t from_ns, int64_t for_ns); /* the end of what takes so long at full pace */

/* ---- devices.c ----------------------------------------------------------------------------------------------------
 */
void account(device *it, int64_t now_ns);
void shares_of(const host *it, int64_t now_ns, int64_t shares[6]);

/* ---- streams.c ----------------------------------------------------------------------------------------------------
 */
void submit(engine *e, stream *to, item what);
void finish_segment(engine *e, stream *it);
void finish_kernel(engine *e, kernel *it);
void await_recording(engine *e, recording *it, void *target, bool is_host);
int32_t fill_of(int64_t solo_ns, int64_t contended_ns);

/* ---- collectives.c ------------------------------------------------------------------------------------------------
 */
kernel *make_kernel(engine *e, host *of, stream *on, int64_t number);
bool arrive(engine *e, kernel *it);
bool complete(engine *e);

/* ---- hosts.c ------------------------------------------------------------------------------------------------------
 */
/* Does the host go on to its next row at this instant? -1: the row cannot be executed. */
int execute_row(engine *e, host *it, const row *what);
void wake(engine *e, host *it);
int64_t next_of(engine *e, const host *it);
int64_t poll_ns(int64_t polls); /* how long question number `polls` in a row takes */

#endif
