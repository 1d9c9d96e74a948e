/*
 * process/: the process that the library is loaded in. Its life and its place in the run (process), its threads
 * (thread), where in the user's program a thread is (sites), how often it goes round a loop (loop_turns), Python's lock
 * (python), its end before the script's (stop).
 * Comes in: phantora_load, phantora_start and phantora_finish, called by emu's Python side. Goes out: the records
 * HELLO, BYE, MEMORY, STEPS_DONE and SITE; state that other folders read.
 */
#ifndef PHANTORA_PROCESS_H
#define PHANTORA_PROCESS_H

#include "core/base.h"

typedef struct ph_run_state {
    bool loaded;   /* the device file has been read and device memory reserved */
    bool started;  /* a rank, connected to the coordinator */
    bool ending;   /* BYE is about to be sent, or has been */
    bool finished; /* BYE has been sent, and what other ranks had been promised */
    bool orphan;   /* a child that a rank forked: as with real CUDA, it cannot use the device */
    bool alone;    /* PHANTORA_DETACHED=1, for tests without a coordinator: every cost is a fixed value */
    bool in_step;  /* the host really waits where the program waits for the device: see phantora_keep_in_step */
    uint32_t rank, world_size, server, local_rank;
    uint32_t process; /* tells the processes of one rank apart: 0 is the first */
} ph_run_state;
extern ph_run_state ph_run;

uint32_t ph_rank(void);
/* The coordinator has said STOP. */
void ph_stop(void);
/* The program uses this device: a process that is not a rank yet may become one now. */
void ph_join(int device);

#endif
