/*
 * data/: the bytes that steer the program. Small copies, sets and collectives really happen, in stream order, deferred
 * while an input has not arrived; and it is known which device bytes something modelled has written.
 *
 *   data.c            decides between doing at once, deferring and forgetting
 *   pending.c         the actions that wait, in program order, and who waits for whom
 *   known.c           which device bytes something modelled has written
 *   python_actions.c  the same for emu's Python side, and the thread that runs its actions
 *
 * Comes in: copies and sets from memory/, collectives' bytes from nccl/ and channel/, control tensors from emu/control.
 * Goes out: bytes in memory; counts of reads of bytes that nothing modelled wrote.
 */
#ifndef PHANTORA_DATA_H
#define PHANTORA_DATA_H

#include "core/base.h"

typedef struct ph_range {
    void *start;
    size_t nbytes;
} ph_range;

/* Each returns at once. Ranges that overlap a pending write become pending themselves; the action runs when its inputs
 * are there. */
void ph_data_copy(void *dst, const void *src, size_t nbytes);
void ph_data_set(void *dst, int value, size_t nbytes);
/* An action over ranges given by the caller (control tensors): run(arg) is called later, from any thread, if something
 * is pending. */
void ph_data_action(const ph_range *reads, int nreads, const ph_range *writes, int nwrites, void (*run)(void *),
                    void *arg);
/* Bytes that will arrive from the coordinator under this token. */
void ph_data_expect(uint64_t token, void *dst, size_t nbytes);
/* DATA records arrive on the channel's reader thread, which calls this. */
void ph_data_arrived(uint64_t token, const void *bytes, size_t nbytes);

/* Blocks in real time until nothing pending overlaps the range. */
void ph_data_wait(const void *start, size_t nbytes);
/* The same for every pending write to host memory (asynchronous device-to-host copies go through ph_data_copy too):
 * called by cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize and queries that answer "done". One load
 * if nothing is pending. */
void ph_data_wait_host(void);
/* Is a write to part of the range pending? */
bool ph_data_pending(const void *start, size_t nbytes);

/* Is every byte of the range written by something modelled? (interval set; large ranges answer false) */
bool ph_data_known(const void *start, size_t nbytes);
bool ph_data_known_any(const void *start, size_t nbytes); /* ... or at least one byte of it? */
void ph_data_mark_known(const void *start, size_t nbytes);
void ph_data_forget(const void *start, size_t nbytes);

#endif
