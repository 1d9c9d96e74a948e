/*
 * holders/: who holds device memory when most of it is allocated (holders), block by block, as PyTorch's allocator
 * reports them (allocator), in groups that are held for the same reason (groups), over the step that has the peak
 * (over_step), and how much is needed at least (least); what blocks are for (purpose).
 * Comes in: blocks that PyTorch's allocator gives out and takes back; which tensors Python has; collectives.
 * Goes out: the record MEMORY_HELD.
 */
#ifndef PHANTORA_HOLDERS_H
#define PHANTORA_HOLDERS_H

#include "channel/channel.h"
#include "core/base.h"
#include "threads/thread.h"

/* PyTorch's allocator has given out (nbytes > 0) or taken back a block; it holds `reserved` bytes now. */
void ph_holders_block(int device, const void *start, int64_t nbytes, uint64_t reserved);
/* The allocator found no memory for so many bytes, even without its cache. */
void ph_holders_missing(int device, uint64_t nbytes, uint64_t reserved);
/* NCCL found no memory for so many bytes. The allocator's cache is of no use to it. */
void ph_holders_missing_outside(int device, uint64_t nbytes);
/* The calling thread launches collectives, for whose end nobody may wait: first so, then each of them, whose input and
 * output may be in blocks of the allocator. Is it the first one on one of its blocks? */
void ph_holders_launch(void);
bool ph_holders_collective(int device, const void *input, const void *output);

enum { PH_HELD_PURPOSES = PH_HELD_TEMPORARIES + 1 };

/* ---- purpose.c: the calling thread --------------------------------------------------------------------------------
 */
/* Guesses what the thread asks for a block for: a number of ENUM(HELD). */
uint8_t ph_first_guess(const ph_thread *thread);
/* Tells whether the thread is in an operator of c10d's. Nothing frees blocks there but a process group that lets go
 * of what earlier collectives kept. */
bool ph_in_process_group(void);

/* ---- groups.c: blocks that are held for the same reason, by category, line of the script and operation ------------
 */
enum { PH_MOST_HOLDER_GROUPS = 64 };

typedef struct {
    uint64_t nbytes;
    uint32_t blocks;
    uint16_t site;
    uint8_t held_as;
    const char *op; /* NULL: none */
} ph_holder_group;

typedef struct {
    ph_holder_group *slots; /* open addressing; a slot without blocks is free */
    size_t capacity, n;
} ph_holder_groups;

/* Makes an empty set of groups, with room for those of so many blocks. */
ph_holder_groups ph_holder_groups_make(size_t blocks);
/* Adds one block. `op` must stay where it is. */
void ph_holder_groups_add(ph_holder_groups *to, uint64_t nbytes, uint8_t held_as, uint16_t site, const char *op);
/* The largest first. Those that are too many are added up, one group for each category. Returns how many there are, and
 * frees the groups. */
size_t ph_holder_groups_take(ph_holder_groups *from, ph_holder_group largest[PH_MOST_HOLDER_GROUPS]);

/* ---- growth.c: what stays after each step -------------------------------------------------------------------------
 */
typedef struct ph_growth ph_growth;

typedef struct {
    uint64_t nbytes; /* that each of the last steps has left, in the mean; 0: memory does not grow */
    uint32_t steps;  /* in a row that have left any */
    bool equal;      /* the last ones have left equally much */
    uint16_t site;   /* where most of it was asked for */
    const char *op;
} ph_grown;

ph_growth *ph_growth_make(void);
/* A step ends with so many bytes allocated. True: ph_growth_held is to follow, with who holds them, whatever for. */
bool ph_growth_step(ph_growth *it, uint64_t live);
void ph_growth_held(ph_growth *it, ph_holder_groups held); /* which it keeps, and frees one day */
ph_grown ph_growth_found(const ph_growth *it);

/* ---- over_step.c: what is allocated over one step -----------------------------------------------------------------
 */
enum { PH_MOST_STEP_POINTS = 128 };
typedef struct ph_over_step ph_over_step; /* of one device */

/* A step that begins after the allocation of this number, with nothing allocated. */
ph_over_step *ph_over_step_make(uint64_t before);
/* So much more (or less, if negative) is held after the allocation of this number, which is not before earlier ones. */
void ph_over_step_change(ph_over_step *step, uint64_t number, int64_t nbytes, uint8_t held_as);
/* The block that the allocation of this number gave is held for something else than was said. */
void ph_over_step_move(ph_over_step *step, uint64_t number, uint64_t nbytes, uint8_t from, uint8_t to);
/* The next step begins after the allocation of this number. */
void ph_over_step_next(ph_over_step *step, uint64_t before);
/* Returns how many points there are. */
size_t ph_over_step_points(const ph_over_step *step, struct ph_MEMORY_POINT points[PH_MOST_STEP_POINTS]);
/* Returns how many allocations the step had, those of other devices included. */
uint64_t ph_over_step_allocations(const ph_over_step *step);

/* ---- least_peak.c: the peak if no collective keeps a block longer than the program does --------------- */
typedef struct ph_least ph_least; /* of one device */

ph_least *ph_least_make(void);
/* So much more (or less, if negative) is held. */
void ph_least_change(ph_least *it, int64_t nbytes);
/* Collectives are launched. */
void ph_least_launch(ph_least *it);
/* The number of the latest launch. */
uint64_t ph_least_launched(const ph_least *it);
/* A block that is held need not have been since the launch after this one. */
void ph_least_since(ph_least *it, uint64_t launched, uint64_t nbytes);
uint64_t ph_least_peak(const ph_least *it);

#endif
