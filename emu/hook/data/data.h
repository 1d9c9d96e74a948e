/*
 * data/: the bytes that steer the program. Small copies, sets and collectives really happen, in stream order; they are
 * deferred while an input has not arrived. Device bytes are "known" if something modelled has written them. Large
 * copies and sets move references to sources (sources/), from which bytes are made when somebody reads them.
 *
 *   data.c            copies and sets: done at once or deferred
 *   moves.c           what one of them does to bytes, to what is known of them and to the sources that they refer to
 *   pending.c         deferred actions, in program order, and which blocks which
 *   known.c           which device bytes are known, over the sets of intervals.c
 *   blocks.c          the blocks of PyTorch's allocator
 *   strided.c         the same for the elements of a tensor
 *   snapshots.c       what large tensors refer to, for emu's Python side
 *   reads.c           what emu/reads tells of values that nobody computed
 *   routing.c         what the routing policy chose, for the report
 *   python_actions.c  the functions for emu's Python side, and the thread that runs deferred Python actions
 *
 * Comes in: copies and sets from copies/, collectives' bytes from nccl/ and channel/, control tensors from emu/control.
 * Goes out: bytes in memory; counts of reads of bytes that nothing modelled wrote.
 */
#ifndef PHANTORA_DATA_H
#define PHANTORA_DATA_H

#include "core/base.h"

typedef struct ph_range {
    void *start;
    size_t nbytes;
} ph_range;

/* These return at once. A copy, set or action that overlaps pending writes is deferred until they are done; what it
 * writes is pending until then. */
void ph_data_copy(void *dst, const void *src, size_t nbytes);
void ph_data_set(void *dst, int value, size_t nbytes);
/* run(arg) reads and writes the given ranges. If it is deferred it is called later, on any thread. */
void ph_data_action(const ph_range *reads, int nreads, const ph_range *writes, int nwrites, void (*run)(void *),
                    void *arg);
/* The coordinator will send the bytes of this range under the token. */
void ph_data_expect(uint64_t token, void *dst, size_t nbytes);

enum { PH_ALL_ASSUMED = 1, PH_SOME_KNOWN = 2, PH_ALL_CHECKS = 3 }; /* of the record DATA */
size_t ph_data_mask_nbytes(size_t nbytes); /* of the bits before so many bytes, of which some are known */

/* ph_data_action for Python code, see python_actions.c. */
int phantora_data_action(const uint64_t *reads, int nreads, const uint64_t *writes, int nwrites, void (*run)(uint64_t),
                         uint64_t arg);

/* Gives memory/ and channel/ what they call here. */
void ph_data_connect(void);

/* Blocks, in real time, until no pending write overlaps the range. */
void ph_data_wait(const void *start, size_t nbytes);
/* Blocks, in real time, until no write to host memory is pending: for calls that synchronise and queries that answer
 * "done". One atomic load if nothing is pending. */
void ph_data_wait_host(void);
/* Blocks until no action is pending that tells other ranks what it has read: one that writes nothing. */
void ph_data_wait_told(void);
/* Ends that wait, and every later one: all ranks have ended. */
void ph_data_nobody_listens(void);
/* Is any action pending? */
bool ph_data_any_pending(void);
/* Waits for deferred Python code that runs now, and lets none run any more. From now on the calling thread, which ends
 * the process, waits for no action. */
void ph_data_end_python(void);
/* Is a write to part of the range pending? */
bool ph_data_pending(const void *start, size_t nbytes);

/* The range refers to this source, whose reference passes on, from an offset on; NULL: it becomes unknown. Ordered with
 * pending writes. */
struct ph_source;
void ph_data_refer(void *dst, struct ph_source *source, uint64_t offset, size_t nbytes);
/* Bytes of the range that refer to a source come to lie in device memory and are known. Not ordered. */
void ph_data_settle(const void *start, size_t nbytes);
/* The other way round: known bytes of a large range are put into the store. Does a part of the range refer to a source
 * then? */
bool ph_data_refer_all(void *start, size_t nbytes);
/* Returns how many bytes of the range are unknown and refer to no source. Those that are assumed count if `assumed`. */
size_t ph_data_unknown(const void *start, size_t nbytes, bool assumed);

/* A launch that is not executed writes to the range: its bytes are unknown after the writes that are pending. */
void ph_data_overwrite(const void *start, size_t nbytes);
/* The calling thread's operation does so: see reads.c. */
void ph_data_note_writer(const void *start);
/* PyTorch's allocator gives a block out, or takes it back (nbytes < 0). */
void ph_data_block(const void *start, int64_t nbytes);
/* Bytes from an address within a block to its end; outside of blocks, to the end of the allocation. */
size_t ph_data_block_rest(const void *address);

/* Returns where the block begins that holds the address; 0 if none does. */
uintptr_t ph_data_block_start(const void *address);

/* Is every byte of the range known? See known.c. These functions are not ordered with pending writes. */
bool ph_data_known(const void *start, size_t nbytes);
bool ph_data_known_any(const void *start, size_t nbytes); /* Is at least one byte known? */
bool ph_data_assumed(const void *start, size_t nbytes);   /* Is every byte assumed? */
/* The first piece of the range whose bytes are known or assumed; false if there is none. */
bool ph_data_next_readable(const void *start, size_t nbytes, ph_range *out);
void ph_data_mark_known(const void *start, size_t nbytes);
void ph_data_mark_assumed(const void *start, size_t nbytes);
void ph_data_forget(const void *start, size_t nbytes);
/* The range, which is known, follows from a choice of the program's by the routing policy. */
void ph_data_mark_chosen(const void *start, size_t nbytes);
bool ph_data_chosen(const void *start, size_t nbytes); /* Does a part of it? */

#endif
