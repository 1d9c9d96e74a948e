/*
 * For recordings of runs: every launch and every record of the op stream, with the work that the host did before it.
 * From these another GPU's and another host's times follow, which a segment's own figures cannot tell.
 */
#ifndef PHANTORA_HISTORY_H
#define PHANTORA_HISTORY_H

#include "core/base.h"

/* All under the record lock. */

/* A launch on this stream, whose cost has this key. queued: it takes a place in the launch queue. */
void ph_history_launch(uint32_t stream, uint64_t key, bool queued);
/* The host is about to wait itself for as long as the work with this key takes. */
void ph_history_wait(uint64_t key);
/* The open segments end here. */
void ph_history_close(void);
/* A record of the op stream with this instant; the first is HELLO. Segments are in the history by their launches. */
void ph_history_record(uint16_t kind, uint64_t at_ns);
/* Sends the records that have gathered. */
void ph_history_flush(void);

/* Without the record lock: the calling thread is about to ask a question of the op stream. */
void ph_history_asks(void);
/* Does PyTorch's own C++ code ask, which may hold its allocator's lock? */
bool ph_torch_asks(void);
/* Is there C++ code of PyTorch's, its allocators' included, not of its Python side? */
bool ph_history_is_torchs(const void *address);
/* Is this code of PyTorch's CUDA allocators? */
bool ph_is_allocator(const void *caller);
/* Without the record lock: the program asks how much memory is free. */
void ph_history_looked(int device);
/* Without the record lock: somebody reads what kind of GPU this is. Told if it is the script itself. */
void ph_history_reads(const char *attribute);
/* A call that C++ code makes all the time, too: it counts as read where Python has the binding, from `caller`. */
void ph_history_binding_reads(const void *caller, const char *attribute);
/* An attribute that is read by its number in CUDA; its name is then `attr.39`. */
void ph_history_binding_reads_attribute(const void *caller, int attribute);
/* Notes a read. Used in an entry point of an API. */
#define PH_READS(attribute) ph_history_binding_reads(__builtin_return_address(0), attribute)

#endif
