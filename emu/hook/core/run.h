/* This process's place in the run, counts of what it has done, and its end on an internal error. */
#ifndef PHANTORA_RUN_H
#define PHANTORA_RUN_H

#include "core/base.h"

#include <stdatomic.h>

typedef struct ph_run_state {
    bool in_place; /* programs that open CUDA's libraries by name find this one */
    bool loaded;   /* the device file has been read and device memory reserved */
    bool started;  /* a rank, connected to the coordinator */
    bool ending;   /* BYE is about to be sent, or has been */
    bool finished; /* BYE has been sent, and what other ranks had been promised */
    bool orphan;   /* a child of a rank that had initialised CUDA: it cannot use the device */
    bool alone;    /* PHANTORA_DETACHED=1, for tests without a coordinator: every cost is a fixed value */
    bool timed;    /* PHANTORA_DETACHED=timed: alone, and what the program itself takes is measured: nothing is kept */
    bool in_step;  /* the host really waits where the program waits for the device: see phantora_keep_in_step */
    bool mortal;   /* something may die: watchdogs count virtual time, see streams/watchdog_clock.c */
    uint32_t rank, world_size, server, local_rank;
    uint32_t process;          /* tells the processes of one rank apart: 0 is the first */
    uint32_t child, parent;    /* as in GPU_MEMORY */
    atomic_uint_fast64_t dead; /* GPUs of the server that the process can no longer use, a bit each */
} ph_run_state;
extern ph_run_state ph_run;

/* A GPU of the server is dead between two instants. A process that hears of an instant between them has lost it for
 * good: as with real CUDA, a new process may use it once it is well again. */
void ph_gpu_dies(int gpu, uint64_t from_ns, uint64_t until_ns);
void ph_gpus_at(uint64_t now_ns);

/* Totals so far: those of a COUNTERS record. */
typedef struct ph_counters {
    atomic_uint_fast64_t api_calls, ops, unmodelled_reads, refused_calls;
    /* under the record lock */
    uint64_t launches;
    double flops;
} ph_counters;
extern ph_counters ph_counts;
/* How often streams of this process were given work. */
extern atomic_uint_fast64_t ph_work_given;

/* The number of elements that the calling thread is to read where nobody computed one; negative: there is none. */
int64_t ph_count_read(void);
/* The program was given device memory that nothing modelled wrote. */
void ph_count_unmodelled_read(void);

/* Internal errors: prints the message and ends the process with PH_EXIT_INTERNAL. */
_Noreturn void ph_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A folder that has to call one above it does so through a pointer, which the upper one sets once, before main(). */
#define PH_CONNECT(pointer, function)                                                                                  \
    do {                                                                                                               \
        if (pointer) ph_die("%s is set twice", #pointer);                                                              \
        (pointer) = (function);                                                                                        \
    } while (0)

#endif
