/*
 * threads/: the threads of a rank (thread), the host time that they take (host, frames), where in the user's program
 * one is (sites), how often it goes round a loop (loop_turns), stacks (stacks), Python's lock (python).
 * Comes in: calls, ops and Python functions. Goes out: instants; the record SITE, the question CLOCK_READ.
 *
 * This header: the calling thread's state, and which of torch's threads only watch.
 */
#ifndef PHANTORA_THREAD_H
#define PHANTORA_THREAD_H

#include "core/base.h"
#include "cuda/types.h"
#include "threads/host.h"

enum { PH_MAX_CONFIGS = 8, PH_MAX_RANGES = 128, PH_THREAD_NAME_NBYTES = 16 };

struct ph_stream;
struct ph_known_op;

typedef struct ph_call_config {
    dim3 grid, block;
    size_t shared_nbytes;
    void *stream;
} ph_call_config;

enum ph_thread_kind {
    PH_THREAD_UNKNOWN, /* not known yet */
    PH_THREAD_PROGRAM,
    PH_THREAD_AUTOGRAD, /* the program's, running backward passes */
    PH_THREAD_WATCHES,  /* watches for finished work, and no other thread of the process does */
    PH_THREAD_HELPS,    /* watches for finished work, as the program's own threads do, too */
};

/* The groups of a grouped product that a thread launches. Their sizes are data: emu/control/routing/groups.py tells
 * them, rounded. Fields as in the `grouped` signature (emu/contract/signature.def). Without groups nothing is known. */
typedef struct ph_groups {
    uint64_t groups, used, rows, longest, tiles64, tiles128;
} ph_groups;

/* The sequences of an attention that a thread launches: emu/control/extensions/ tells them. Fields as in
 * the `sequences` signature (emu/contract/signature.def). Without sequences nothing is known. */
typedef struct ph_sequences {
    uint64_t sequences, queries, keys, rows, columns, tiles, longest, pairs;
} ph_sequences;

/* Where a thread's attention reads how long its sequences are: emu/control/extensions/attention.py tells it. Addresses
 * are those of 32-bit integers in device memory, which each launch reads, and each launch of a graph that has it. */
typedef struct ph_lengths {
    uint64_t sequences; /* 0: none are told */
    uint64_t ends_q;    /* where the queries of each begin, and the end of the last; 0: each has `each` queries */
    uint64_t each;
    uint64_t keys;          /* how many keys each has; if `key_ends`, where they begin, and the end of the last */
    uint64_t key_ends;      /* 0 or 1 */
    uint64_t before, after; /* the keys around its own place that a query sees; UINT64_MAX: all */
    uint64_t joined;        /* the heads that share keys and values and whose queries are in one tile */
} ph_lengths;

/* The Python functions to which a range hands tensors, which are made Python objects for it. */
enum ph_hands {
    PH_HANDS_TO_NONE,
    PH_HANDS_TO_NEXT, /* an operator to the first that it calls: it asks others for hashes and fields */
    PH_HANDS_BOXED,   /* the same of another library's operator that Python calls: both ways through its schema */
    PH_HANDS_TO_ALL,  /* a node to each of its hooks */
};

/* When a thread ran what last, by numbers; 0: never. */
typedef struct ph_ages {
    uint64_t *ran_at;
    size_t n;
} ph_ages;

typedef struct ph_thread {
    int device;
    int last_error;
    int capture_mode;
    enum ph_thread_kind kind;
    bool looks_on, daemon; /* it has given the GPU no work yet; Python calls it a daemon: see threads/onlooker.c */
    uint64_t
        waited_for_at;    /* 1 + the program's calls and ops when it was found waiting for this thread; 0: it was not */
    uint64_t handed_over; /* 1 + the work that the GPU had been given when its task was handed over; 0: not known */
    uint16_t site;        /* see ph_site_inherit; 0: its own frames tell its place */
    uint32_t name_checks; /* how often its name has been looked at while its kind was unknown */
    uint64_t clock_ns;    /* host time of this thread */
    uint64_t pass;        /* the backward pass that it last worked for */
    uint64_t modelled_ns; /* what the counts cost */
    uint64_t counts[PH_HOST_KINDS];
    uint64_t age;      /* counts Python functions and operators run */
    uint64_t nccl_age; /* when NCCL launched last */
    ph_ages functions, operators, kernels;
    int ndispatched;      /* operators and nodes that the thread is in */
    uint64_t outer_ops;   /* those that it has left and that were in no other */
    int frame_dispatched; /* ... when the innermost Python function was entered */
    bool serves_us;       /* the innermost function that is not of a library is the emulator's */
    uint64_t nodes;       /* autograd nodes that it had made when they were counted last ... */
    bool nodes_known;     /* ... if ever */
    uint16_t node_module; /* see threads/modules.h: the module of the node that runs, on threads of the backward pass */
    int aside;            /* depth of Python functions whose work is not the program's */
    uint64_t cpu_ns;      /* measured mode: CPU time of the thread that has been charged already */
    bool cpu_started;
    uint64_t own_ns;                     /* measured mode: what the emulation has taken of it, not yet left out */
    int uncounted;                       /* depth of what takes no virtual time at all, see phantora_uncounted */
    uint64_t uncounted_ns;               /* GPU time of the launches since the thread began that were not counted */
    struct ph_asking_loop *loop;         /* of questions whether work is complete; see streams/wait.c */
    struct ph_thread *next, *before;     /* all threads, under the list's lock */
    int npushed, pushed[PH_MAX_CONFIGS]; /* devices of pushed contexts */
    int nconfigs;
    ph_call_config configs[PH_MAX_CONFIGS];
    uint32_t trace_number, correlation; /* for traces: the thread's id; its last API call's number */
    int nranges;                        /* may exceed PH_MAX_RANGES: deeper ranges are counted, not kept */
    const struct ph_known_op *ranges[PH_MAX_RANGES];
    enum ph_hands hands[PH_MAX_RANGES]; /* by range */
    uint32_t launch_turns;              /* how often it has launched a kernel after another thread had */
    int optimizer_depth;                /* index + 1 of the outermost Optimizer.step range, 0 if none */
    ph_groups groups;                   /* of the grouped product that it launches */
    ph_sequences sequences;             /* of the attention that it launches */
    ph_lengths lengths;                 /* of the attention that it launches, in memory */
    int kernel_data_depth;              /* the same for ops that copy tables to the device for their own kernels */
    struct ph_stream *default_streams[PH_MAX_DEVICES];
} ph_thread;

extern __thread ph_thread *ph_this_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));
ph_thread *ph_thread_make(void);
static inline ph_thread *ph_self(void) {
    ph_thread *thread = ph_this_thread;
    return LIKELY(thread != NULL) ? thread : ph_thread_make();
}

/* The calling thread ends, or it calls C's exit; nothing else of that has run yet. `main`: it is the first of its
 * process, which only ends with that. Set by process/. */
extern void (*ph_thread_ends)(bool main);

/* The thread runs it now: how long ago it did so before, in its age; UINT64_MAX if never. */
uint64_t ph_thread_age(ph_thread *thread, ph_ages *ages, uint32_t number);
/* Makes what the thread has run so far count as long ago. */
void ph_thread_grow_old(ph_thread *thread);
/* Makes what all threads have run so far count as long ago. None of them does anything meanwhile. */
void ph_threads_grow_old(void);
/* Sums of all threads' counts. Returns what they cost. */
uint64_t ph_threads_counts(uint64_t totals[PH_HOST_KINDS]);
enum ph_thread_kind ph_thread_kind(void); /* of the calling thread */
/* Returns the calling thread's mode before. */
int ph_thread_exchange_capture_mode(int mode);
/* Is the calling thread one of those that only watch, as NCCL's watchdog and heartbeat do? Such a thread never asks,
 * never waits and never moves the clock. */
bool ph_thread_is_watcher(void);
/* Has this process a thread whose name starts so? */
bool ph_process_has_thread(const char *named);
/* A thread of the program starts (1) or ends (-1) to wait inside the library; how many do so now. */
void ph_thread_blocked(int change);
int ph_threads_blocked(void);
/* The calling thread will wait for another thread of its process that is about to act: from now on nobody takes it for
 * a sleeping one. The coordinator sees it too (phantora_async/liveness/sleep_detector.py). Its name is put into `name`.
 */
void ph_thread_call_awake(char name[PH_THREAD_NAME_NBYTES]);
/* The end of that. */
void ph_thread_rename(const char *name);
/* Is no other thread of this process running, waiting for a processor or called awake? */
bool ph_other_threads_sleep(void);

#endif
