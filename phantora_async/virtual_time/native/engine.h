/*
 * virtual_time/native/: one discrete-event simulation that executes the rows of all ranks in order of virtual time.
 * README.md has the rules in a page; docs/virtual-time.md says why they are so.
 *
 * Rows are facts: they never change. Everything else is derived from them, and may be taken back while the simulation
 * runs ahead of what ranks have said. What a rollback does to a field is said by the part of the structure in which the
 * field stands:
 *
 *   constant   never changes after the thing was made
 *   saved      gets the value back that a checkpoint holds (the SAVED parts, copied as a whole)
 *   logged     is restored by undo entries that its changes append to the checkpoint (`undo_kind` lists them)
 *   kept       stays as it is
 *
 * The network is somebody else's: five functions say when collectives complete.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __int128 wide;

#define NEVER ((int64_t)1 << 62)
#define HOSTS ((int64_t)1 << 40) /* orders of hosts' events begin here; those of streams are below */
enum {
#define CONSTANT(NAME, value) NAME = value,
#include "../../../profiles/gpu_sharing.def"
#undef CONSTANT
    ACCOUNTS = 6, /* of a device's time, without the one that overlaps the others */
    SHARES = 7,
    FULL_PACE = 1000000,
    LOGGED_RANK = 0
};

/* ---- rows: what ranks said ------------------------------------------------------------------------------------ */

/* Kinds are records.def's records; those above 999 stand for no record. */
enum {
#define RECORD_VERSION(number)
#define STRUCT(NAME, ...)
#define UP(NAME, number, ...) NAME = number,
#define ASK UP
#define DOWN(NAME, ...)
#define WORDS(NAME, ...)
#define ENUM(NAME, VALUE, number) NAME##_##VALUE = number,
#include "../../../emu/contract/records.def"
#undef RECORD_VERSION
#undef STRUCT
#undef UP
#undef ASK
#undef DOWN
#undef WORDS
#undef ENUM
    OUTSIDE = 1000, /* sleeps until a gate opens or, without one, for so long */
    OPENS = 1001,   /* opens a gate */
    UNSEEN = 1002   /* time passes, and no record tells of it */
};

/*
 * Values of records are those that ROW names in records.def. ELAPSED, HOST_WAIT and STREAM_WAIT of programs may drop
 * recordings that nobody names any more: values 4 and 5, 0: none. QUERY of programs: see is_marked. Others:
 *   NCCL_LAUNCH of a program: kernel; of other hosts: collectives (one, or a list), their count
 *   COMM_INIT, COMM_SPLIT creation + 1, 0: the next one of the program   COUNTERS how many there were, with this one
 *   CONNECT creation + 1, second one + 1, how many of these (of a program its next ones), 1 if the host waits
 *   TRACE number of the text   HOST_ADVANCE 1 if the program slept   OUTSIDE gate + 1 or 0, for_ns   OPENS gate + 1
 */
typedef struct {
    uint16_t kind, site;
    uint32_t stream;
    uint64_t host_ns;
    uint64_t values[6];
} row;

/* What one member of an NCCL kernel does, without the ranks' own numbers. */
typedef struct {
    int32_t comm; /* among those that the rank uses */
    int32_t pair; /* the ranks that call a send with its receive; 0: it is none */
    int32_t sender, receiver;
} call;

/* A rank's rows, all of them, as a recording has them. Several ranks may have the same ones. */
typedef struct {
    const row *rows;
    int64_t nrows;
    const int32_t *comms, *places; /* of its communicators, by the rank's own number: which, and its place in it */
    int64_t ncomms;
    const int32_t *creations; /* in the order of its rows */
    int64_t ncreations;
} program;

/* What programs refer to. */
typedef struct {
    const int64_t *kernels; /* where each kernel's calls begin; one more for the end */
    const call *calls;
    const int32_t *members; /* of each communicator: how many call */
} tables;

/* ---- pace.c: how fast GPUs and hosts go on ------------------------------------------------------------------- */

typedef struct {
    int64_t start_ns, pace;
    wide done; /* before */
} pace_part;

typedef struct {
    pace_part *parts;
    int64_t n, room, known_ns; /* what follows known_ns has to be asked for */
    int64_t origin_ns, dead_from_ns, dead_until_ns;
    int32_t number;
} pace;

/* ---- things ---------------------------------------------------------------------------------------------------- */

typedef struct host host;
typedef struct device device;
typedef struct stream stream;
typedef struct recording recording;
typedef struct kernel kernel;
typedef struct collective collective;
typedef struct step_end step_end;
typedef struct creation creation;
typedef struct checkpoint checkpoint;

/* Things that come and go by the thousand. memory.c finds those that nothing refers to any more. */
typedef enum { A_STREAM, A_RECORDING, A_KERNEL, A_COLLECTIVE, A_STEP } object_kind;
typedef struct object {
    struct object *next;
    uint8_t kind;
    bool marked;
} object;

/* An event to come. Each host and stream has one at most. */
typedef struct {
    int64_t at_ns, order, seq;
    int64_t place; /* in the heap, -1 if it is not there */
    bool is_host;
    void *target;
} event;
typedef struct {
    int64_t at_ns, seq;
    bool there;
} saved_event;

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

/* What a stream is given. A segment's work is solo_ns x contended_ns x WORK_UNIT units: alone it does contended_ns x
 * WORK_UNIT of them per nanosecond, beside an NCCL kernel solo_ns x WORK_UNIT, so that a change between these divides
 * nothing. It is not complete before floor_ns: its last kernels are launched that late. */
typedef struct {
    item_kind kind;
    int32_t launches, fill;
    bool copies;  /* between the GPU and others: its engines for copies are busy, its processors are not */
    bool aborted; /* stands for an NCCL kernel that was aborted before its stream came to it */
    int64_t solo_ns, contended_ns, floor_ns;
    object *what; /* a recording, a kernel, a step's end */
} item;

struct step_end {
    object object;
    host *host;
    int64_t number, host_ns, counters;
    int64_t pending; /* logged: streams that have not reached it */
};

#define STREAM_SAVED                                                                                                   \
    stream_state state;                                                                                                \
    bool destroyed, host_waits;    /* host_waits: until the stream is idle */                                          \
    int64_t head, count;           /* places of the first item that is not done, and behind the last */                \
    int64_t launches, queue_limit; /* the host waits until launches <= queue_limit; -1: it does not */                 \
    int64_t updated_ns;                                                                                                \
    wide work_left, rate; /* of the running segment, at updated_ns; units per nanosecond since then */
typedef struct {
    STREAM_SAVED
} stream_saved;
struct stream {
    object object;
    device *device;
    int64_t id;
    event due; /* saved */
    union {
        struct {
            STREAM_SAVED
        };
        stream_saved saved;
    };
    item *items; /* kept: those from `base` on; checkpoints say which count */
    int64_t base, room;
};

#define DEVICE_SAVED                                                                                                   \
    int64_t resident, transferring; /* NCCL kernels that streams have reached, and those of them that move data */     \
    int64_t busy_streams;                                                                                              \
    int64_t busy_until_ns, computing_until_ns; /* with any segment, and with one that is no copies */                  \
    int64_t since_ns;                          /* time is booked up to there; -1: nothing is; NEVER: no more is */     \
    int64_t sample_ns;                         /* when the accounts are noted next */                                  \
    int64_t shares[SHARES]; /* compute, copies, transfer, peers, host bound, idle; communication overlaps them */      \
    int64_t used;           /* how many devices of the host were given work before, with this one; 0: never */         \
    int32_t nrunning;                                                                                                  \
    bool there, host_waits; /* host_waits: until no stream is busy */
typedef struct {
    DEVICE_SAVED
} device_saved;
struct device {
    host *host;
    pace *pace; /* NULL: full */
    int64_t number, parts;
    union {
        struct {
            DEVICE_SAVED
        };
        device_saved saved;
    };
    stream **running; /* saved, nrunning of them: streams with a segment at their head */
    int32_t room;
    int64_t width_ns, nsamples, samples_room, *samples; /* kept: they are written again */
    device *next;
};

typedef struct {
    object *target; /* a stream; NULL: the host; see `nobody` */
    bool nobody;    /* it waits no more */
} waiter;

struct recording {
    object object;
    stream *stream;
    uint64_t number;
    int64_t done_ns; /* logged */
    waiter *waiters; /* logged */
    int32_t nwaiters, room;
};

struct kernel {
    object object;
    stream *stream;
    int32_t ncollectives;
    int32_t remaining, active; /* logged: collectives that are not done, those that move data */
    bool beside_compute;       /* logged: its GPU was busy when its stream reached it */
    int64_t arrived_ns;        /* logged */
    collective **collectives;
};

typedef struct {
    kernel *kernel;
    bool told; /* that it is complete, as long as this may be taken back */
    int64_t aborted_ns;
} member;

struct collective {
    object object;
    int64_t number;         /* by which the network and the user know it */
    int32_t needed, weight; /* callers; how many collectives it stands for */
    int64_t comm;
    /* of one that a program calls */
    int64_t seq;
    int32_t sender, receiver, call;
    bool by_program, exchange;
    bool found; /* scratch: see `complete` */
    collective *next;
    /* logged: the transfer */
    bool under_way;  /* some member's stream has reached it, and not all members have been told that it is complete */
    bool in_network; /* it has begun; complete ones stay as long as their completion may move */
    int32_t nmembers, naborted, room, aborted_room;
    int64_t begun_ns, done_ns;
    member *members, *aborted;
};

typedef struct {
    host *host;
    int64_t at_ns;
} arrival;

struct creation {
    int64_t number;
    int32_t size, narrived;
    arrival *arrived;
    bool waiting;
};

typedef struct {
    int64_t at_ns, device, allocated, reserved, handed_out;
} memory_change;

typedef struct {
    int64_t at_ns, gpu, nbytes, child, parent, ended;
} taken_change;

/* A row of the kind BATCH, RESPONSE, KV_BLOCKS or TRAINING, with its values; and MARKER, the end of a step, if there
 * was one of these before. */
typedef struct {
    int64_t at_ns, kind, values[3];
} generation_note;

typedef struct {
    int64_t kind, fact, qid, value, more;
} answer;

/* What listeners are told: kinds as in virtual_time/events.py. */
typedef enum {
    TOLD_TRACE,
    TOLD_BLOCKED,
    TOLD_WOKEN,
    TOLD_REACHED,
    TOLD_COMM_ASKED,
    TOLD_UNSEEN,
    TOLD_STEP_MARKED,
    TOLD_STEP_DONE,
    TOLD_RESTARTED,
    TOLD_STREAM_CREATED,
    TOLD_SEGMENT_LAUNCHED,
    TOLD_SEGMENT_BEGAN,
    TOLD_SEGMENT_RATE,
    TOLD_SEGMENT_ENDED,
    TOLD_STREAM_BLOCKED,
    TOLD_STREAM_UNBLOCKED,
    TOLD_NCCL_LAUNCHED,
    TOLD_NCCL_BEGAN,
    TOLD_COLLECTIVE_DONE,
    TOLD_NCCL_ENDED,
    TOLD_COMPLETED /* a collective, on LOGGED_RANK */
} told_kind;
typedef struct {
    int64_t kind, host, at_ns, values[10];
} told;

typedef enum { FOR_NOTHING, FOR_STREAM, FOR_RECORDING, FOR_DEVICE, FOR_CREATION } wait_kind;

/* The turns of a loop that asks nothing but whether one work is complete: polls.def. */
typedef struct {
    int64_t first_ns, each_ns, count; /* each_ns 0: none has been asked */
    bool then_slower;                 /* after them turns of TURN_NS at least follow, until the work is complete */
} turns;

/* The responses that a program generates, as BATCH rows tell: how many at once, since when, and the most since there
 * were none; the time in which there were any, and fewer than that. */
typedef struct {
    int64_t responses, most, since_ns, busy_ns, partial_ns;
} generating;

#define HOST_SAVED                                                                                                     \
    int64_t clock_ns;        /* when it executed its last row, or was woken */                                         \
    int64_t steps, counters; /* done; how many COUNTERS */                                                             \
    int64_t polls, polled_ns;                                                                                          \
    generating batch;                                                                                                  \
    int64_t nmemory, ntaken, nnotes, created, ndevices_used;                                                           \
    int64_t known;        /* so many next questions of a loop are overtaken: the work is complete */                   \
    turns asking;         /* of the next row, questions of a loop */                                                   \
    void *waits_for;      /* a thing as wait_kind says */                                                              \
    creation *awaited[2]; /* of its last row's creations, those that are not complete */                               \
    wait_kind wait;                                                                                                    \
    host_state state;                                                                                                  \
    bool silent;       /* its next row has not come, and the simulation goes on as if it came later */                 \
    bool retry;        /* the next row has been reached already: it is executed once more, at clock_ns */              \
    bool poll_delayed; /* the next row is a question that has been delayed already */
typedef struct {
    HOST_SAVED
} host_saved;

typedef struct {
    uint64_t *keys; /* number + 1; 0: empty */
    recording **values;
    int64_t n, room;
} recording_map;

typedef struct pair_count {
    int32_t comm, sender, receiver;
    int64_t calls;
    struct pair_count *next;
} pair_count;

struct host {
    int64_t rank, order;
    int64_t gpu;            /* the number of its own GPU on its server; -1: not known */
    pace *pace;             /* NULL: full */
    const program *program; /* NULL: rows are fed */
    event due;              /* saved */
    union {
        struct {
            HOST_SAVED
        };
        host_saved saved;
    };
    const row *rows; /* kept: those that are not forgotten */
    row *fed;        /* the same, if they are the host's own */
    int64_t nrows, room, forgotten;
    int64_t cursor; /* logged: a checkpoint holds the count of facts instead, `rows` get fewer */
    /* kept */
    int64_t answered; /* facts from the start whose answers have left */
    bool may_pass;    /* it sleeps where no record tells of it: nothing is simulated ahead while this is set */
    bool heard;       /* somebody listens */
    stream **streams; /* logged: by rising number; destroyed ones until nothing needs them */
    int64_t nstreams, streams_room;
    device *devices;          /* all there ever were; `there` says which count */
    recording_map recordings; /* logged */
    memory_change *memory;    /* kept: `nmemory` says how many count */
    int64_t memory_room;
    taken_change *taken; /* kept: `ntaken` says how many count */
    int64_t taken_room;
    generation_note *notes; /* kept: `nnotes` says how many count */
    int64_t notes_room;
    int64_t *called; /* of a program: collectives, by the rank's communicators */
    pair_count *pairs;
    checkpoint **checkpoints; /* kept: its history since global virtual time, while the simulation is ahead of that */
    int64_t ncheckpoints, checkpoints_room;
    answer *early; /* kept: answers that left before their time */
    int64_t nearly, early_room;
    /* answers of a run that keeps them */
    uint8_t *queries;
    int64_t *elapsed, *clocks;
    int64_t nqueries, nelapsed, nclocks, queries_room, elapsed_room, clocks_room;
};

/* ---- rollback.c -------------------------------------------------------------------------------------------------- */

typedef enum {
    UNDO_STREAM_CREATED, /* one: the stream */
    UNDO_RECORDED,       /* one: the recording */
    UNDO_DROPPED,
    UNDO_WAITER,    /* one: the recording that got a waiter */
    UNDO_UNWAITED,  /* and lost one, at place x */
    UNDO_COMPLETED, /* and was completed, with x waiters */
    UNDO_STEP,      /* one: the step's end; x: pending */
    UNDO_ITEM,      /* one: the stream; x: place; old: the item there */
    UNDO_ARRIVED,   /* one: the collective, two: the kernel */
    UNDO_KERNEL,    /* one: the kernel; x: active, y: remaining */
    UNDO_BEGUN,     /* one: the collective; x: when */
    UNDO_DELIVERED, /* one: the collective, two: the kernel */
    UNDO_WITHDRAWN,
    UNDO_CREATION_ASKED, /* creation, host */
    UNDO_CREATION_ENDED  /* creation; x: when */
} undo_kind;
typedef struct {
    undo_kind kind;
    object *one, *two;
    creation *creation;
    host *host;
    int64_t x, y;
    item old;
} undo;

/* A rank at one instant: its state before, and what it has told the outside since, which is held until final. */
struct checkpoint {
    _Alignas(16) int64_t at_ns; /* what is behind it in memory holds wide numbers */
    int64_t events, facts;
    host_saved host;
    saved_event due;
    int64_t nstreams, ndevices;
    struct saved_stream *streams;
    struct saved_device *devices;
    undo *undo;
    int64_t nundo, undo_room;
    answer *answers;
    int64_t nanswers, answers_room;
    told *told;
    int64_t ntold, told_room;
};
struct saved_stream {
    stream *stream;
    saved_event due;
    stream_saved saved;
};
struct saved_device {
    device *device;
    device_saved saved;
    stream **running;
};

/* ---- the engine -------------------------------------------------------------------------------------------------- */

typedef struct engine engine;
/* The network's functions. A negative result: it could not. `begin` and `retract` tell what moved by vt_revised. */
typedef int64_t (*begin_function)(int64_t number, int64_t at_ns, int32_t beside_compute);
typedef int64_t (*retract_function)(int64_t number);
typedef int64_t (*next_function)(void);                        /* of the next completion, NEVER: none */
typedef int64_t (*complete_function)(int64_t at_ns);           /* tells what is complete by vt_done, in order */
typedef int64_t (*commit_function)(int64_t at_ns);             /* nothing will begin or be taken back before */
typedef int64_t (*shortest_function)(int64_t number);          /* the collective takes at least so long */
typedef int64_t (*sort_function)(int64_t n, int64_t *numbers); /* into the order of collectives */
typedef int64_t (*more_function)(int32_t pace, int64_t at_ns); /* tells by vt_pace what follows, beyond this instant */
typedef struct {
    begin_function begin;
    retract_function retract;
    next_function next;
    complete_function complete;
    commit_function commit;
    shortest_function shortest;
    sort_function sort;
    more_function more;
} functions;

typedef struct {
    void **all;
    int64_t n, first, room; /* `first`: see take_first */
} list;

typedef struct {
    int64_t at_ns;
    collective *of;
} completion;

typedef struct {
    int64_t at_ns, order;
    host *host;
} silence;

typedef struct {
    list waiting;
    bool open;
} gate;

typedef struct {
    collective *of;
    int64_t before_ns, after_ns; /* after_ns NEVER: later than all that is complete */
} revision;

typedef struct {
    int64_t rank, kind, qid, value, more;
} leaving;

typedef struct {
    int64_t rank, facts_done, for_ns, cause, cause_facts; /* cause -1: no answer has ended the wait */
} outside_wait;

typedef enum { STOP_BUDGET, STOP_STARVED, STOP_DRAINED, STOP_LIMIT, STOP_RAISED, STOP_BAD } stop;

struct engine {
    functions to;
    bool raised; /* one of them could not */
    int64_t nhosts, depth, parts;
    host *hosts;
    pace *paces;
    int64_t npaces;
    int64_t ndevice_paces;
    int32_t *device_paces; /* host, device, pace */
    tables tables;
    bool keeps_answers;
    int64_t limit_ns;
    bool memory_limited;
    int64_t most_memory[3], last_step;
    /* the queue */
    event **heap;
    int64_t nheap, heap_room, seq, now_ns;
    list arrived, woken, ready;
    /* collectives */
    bool stale;
    int64_t network_ns, next_ns, begun;
    completion *completed, *again; /* complete ones that may move; a heap of completions that members are told again */
    int64_t ncompleted, completed_room, nagain, again_room;
    revision *revised;
    int64_t nrevised, revised_room;
    int64_t *done, ndone, done_room;
    collective **numbered;
    int64_t nnumbered, numbered_room;
    int64_t *free_numbers, nfree, free_room;
    collective **table; /* of programs */
    int64_t table_room, ntable;
    creation **creations;
    int64_t ncreations, creations_room;
    gate *gates;
    int64_t ngates;
    /* history */
    bool log;           /* is on */
    checkpoint *acting; /* to which undo entries go; NULL: none are written */
    struct {
        host *host;
        int64_t at_ns;
    } *demands;
    int64_t ndemands, demands_room;
    list restored;
    int64_t rollbacks, events_back, facts_back, kept, most_kept;
    /* ahead of what ranks have said */
    silence *silent;
    int64_t nsilent, silent_room;
    list heard;
    int64_t looked, guessed_ns, final_ns;
    int64_t strict_ns; /* nothing at this instant is simulated ahead; -1: there is none */
    bool disordered;   /* at this instant an abort and a begin came in an order that may be wrong */
    bool passing;
    list passed_over;
    int64_t answers_before;
    /* out */
    leaving *leaving;
    int64_t nleaving, leaving_room;
    told *told;
    int64_t ntold, told_room;
    outside_wait *waits;
    int64_t nwaits, waits_room;
    int64_t answers_sent, latest, answered_early;
    /* figures */
    int64_t facts, events, starved; /* events with those that were taken back */
    /* things */
    object *objects;
    int64_t nobjects, collect_at;
    int64_t *gone, ngone, gone_room; /* numbers of collectives that are no more */
    /* a row that no working rank sends */
    int64_t bad_rank;
    char bad[160];
};

/* ---- memory.c ---- */
void *take(size_t nbytes);
void *grown(void *at, int64_t n, int64_t *room, size_t each);
void put(list *to, void *what);
void *take_first(list *from);
object *make(engine *e, object_kind kind, size_t nbytes);
void collect(engine *e); /* frees things that nothing refers to, if there may be many */
void free_all(engine *e);

/* ---- queue.c ---- */
void push(engine *e, int64_t at_ns, event *due);
void drop(engine *e, event *due);
void put_back(engine *e, event *due, const saved_event *as);
saved_event save_event(const event *due);
bool push_at_death(engine *e, host *it, const device *on);

/* ---- pace.c: `it` may be NULL, then nanoseconds are counted, else FULL_PACE parts of them ---- */
void set_pace(pace *it, const int64_t *starts, const int64_t *paces, int64_t n, int64_t known_ns);
wide paced_work(engine *e, pace *it, int64_t from_ns, int64_t to_ns);
int64_t paced_end(engine *e, pace *it, int64_t from_ns, wide work);
int64_t paced(engine *e, pace *it, int64_t from_ns, int64_t for_ns); /* the end of what takes so long at full pace */
int64_t pace_at(engine *e, pace *it, int64_t at_ns);                 /* from this instant on */
int64_t part_behind(engine *e, pace *it, int64_t at_ns);             /* place of the first part that begins later */
bool is_dead(const pace *it, int64_t at_ns);
int64_t dies_ns(const pace *it);

/* ---- devices.c ---- */
void account(device *it, int64_t now_ns);
void shares_of(const host *it, int64_t now_ns, int64_t shares[SHARES]);
void device_shares(const device *it, int64_t now_ns, int64_t shares[SHARES]);
void reset_samples(device *it);

/* ---- streams.c ---- */
#define ITEM(it, place) ((it)->items[(place) - (it)->base])
void submit(engine *e, stream *to, item what);
void finish_segment(engine *e, stream *it);
void finish_kernel(engine *e, kernel *it);
void await_recording(engine *e, recording *it, stream *who); /* who NULL: the host */
void step_done(engine *e, step_end *it);
int32_t fill_of(int64_t solo_ns, int64_t contended_ns);
wide left_of(engine *e, const stream *it);
int64_t needed_from(const stream *it); /* place of the first item that may be needed again */

/* ---- collectives.c ---- */
collective *new_collective(engine *e, int64_t comm, int32_t needed, int32_t weight);
kernel *fed_kernel(engine *e, stream *on, const row *what);
kernel *called_kernel(engine *e, host *of, stream *on, int64_t number);
int64_t refresh(engine *e);
void arrive(engine *e, kernel *it);
bool complete(engine *e); /* false: what is complete belongs to processes that have ended */
void commit_collectives(engine *e, int64_t at_ns);
void abort_kernels(engine *e, host *of, int64_t comm);
void forget_collectives(engine *e);
int64_t collective_not_before(engine *e, collective *it);
void undo_arrived(engine *e, collective *it, kernel *who);
void undo_begun(engine *e, collective *it, int64_t begun_ns);
void undo_delivered(engine *e, collective *it, kernel *who);
void undo_withdrawn(collective *it, kernel *who);
int64_t held_collectives(const engine *e);
void leave_table(engine *e, collective *it); /* of what programs call: it is no more */

/* ---- creations.c ---- */
bool join_creation(engine *e, host *who, creation *of); /* false: it has to wait for others */
void undo_creation_asked(creation *of, host *who);
void undo_creation_ended(engine *e, creation *of, int64_t at_ns);

/* ---- hosts.c ---- */
typedef enum { STOPS, GOES_ON, BAD } outcome;
outcome execute_row(engine *e, host *it, const row *what);
void block(engine *e, host *it, host_state state, wait_kind wait, void *waits_for);
void set_state(engine *e, host *it, host_state state);
void wake(engine *e, host *it);
int64_t next_of(engine *e, const host *it);
void note_generation(host *it, int64_t now_ns, int64_t kind, const uint64_t *values);
generating generated_until(generating it, int64_t now_ns);
int64_t facts_done(const host *it);
stream *stream_of(const host *it, uint32_t id);
void forget_rows(host *it, int64_t needed);
void free_rows(const host *it, int64_t from, int64_t until); /* what they hold */

/* ---- recordings.c ---- */
recording *recording_of(const host *it, uint64_t number);
void keep_recording(host *it, recording *what);
void lose_recording(host *it, uint64_t number);

/* ---- rollback.c ---- */
checkpoint *checkpoint_of(engine *e, host *it);
checkpoint *act(engine *e, host *it);
checkpoint *reach(engine *e, host *it);
undo *write_undo(checkpoint *to, undo_kind kind);
void demand(engine *e, host *it, int64_t at_ns);
bool go_back(engine *e, host *it, int64_t at_ns);
void settle(engine *e);
void free_checkpoint(checkpoint *it);

/* ---- speculation.c ---- */
void fall_silent(engine *e, host *it);
void hear(engine *e);
host *first_silent(engine *e);
bool waits_before(engine *e, int64_t at_ns, int64_t order);
void event_executed(engine *e, bool ahead);
void found_disorder(engine *e);
int64_t global_ns(engine *e);
int64_t furthest_ns(const engine *e);
void commit(engine *e);
void stop_speculation(engine *e);

/* ---- output.c ---- */
void tell(engine *e, host *it, told_kind kind, int64_t at_ns, int64_t n, const int64_t *values);
#define TELL(e, it, kind, ...)                                                                                         \
    tell(e, it, kind, (e)->now_ns, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
int64_t turn_ns(const row *what); /* how long a turn of a loop of questions takes */
void give_answer(engine *e, host *it, int64_t kind, int64_t qid, int64_t value, int64_t more);
void release_answers(engine *e, host *it, const checkpoint *what);
void release(engine *e, host *it, const checkpoint *what);
bool delay_poll(engine *e, host *it);
int64_t poll_ns(int64_t polls); /* how long question number `polls` in a row takes */
bool foresee(engine *e, host *it, int64_t due_ns);

/* ---- engine.c ---- */
void follow_up(engine *e);
void return_all(engine *e);
stop execute(engine *e, int64_t *budget, bool ahead);

/* ---- restart.c ---- */
void end_process(engine *e, host *it);

#endif
