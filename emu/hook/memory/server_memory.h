/*
 * What all processes of an emulated server hold of its GPUs: a table that they share.
 *
 * Processes run ahead of virtual time and of each other, so the table has the latest changes of each with their
 * instants, and who asks at an instant counts those of until then. A change on another rank's GPU is told at its exact
 * instant: the process asks for the time. One on its own GPU is told at an instant that is known without asking,
 * perhaps somewhat before it happens.
 */
#ifndef PHANTORA_SERVER_MEMORY_H
#define PHANTORA_SERVER_MEMORY_H

#include "core/base.h"

/* Makes the table, which all processes that are forked from the forker share. Called in the forker. */
void ph_server_memory_make(void);
/* The process becomes a rank. Nothing that an earlier process of this rank held counts any more. */
void ph_server_memory_join(void);
/* The process ends: it holds nothing any more, and has no context. */
void ph_server_memory_leave(void);
/* Tells what has changed since the last call. With no lock: it may wait for virtual time. */
void ph_server_memory_tell(void);
/* Notes what PyTorch's allocator had given out and reserved of a device at most: if the process is killed, nobody
 * else knows. */
void ph_server_memory_peak(int device, uint64_t allocated, uint64_t reserved);
/* Bytes of a GPU of the server that other processes hold now, contexts among them. With no lock, likewise. */
uint64_t ph_server_memory_of_others(int gpu);

#endif
