/*
 * sources/: where the bytes of device memory come from, for those that are not there. Large data moves no bytes: a
 * range of device memory refers to a source, from which the bytes are made when somebody reads them.
 *
 *   source.c       sources: a constant, bytes of the store, what emu's Python side computes, or what a collective gives
 *   source_map.c   which range of device memory refers to which part of a source
 *   store.c        bytes that programs gave to the device, once for all ranks: asks store_process.c, which keeps them
 *   contents.c     in a file, each once
 *   table.c        the sources of a range as text, for other ranks
 *   remote.c       what members of a collective tell each other
 *   host_pages.c   large copies to the host: pages that are filled when somebody reads them
 *
 * Comes in: copies and fills from data/, collectives from nccl/, numbers of computations from emu/control. Goes out:
 * bytes for data/; the record NCCL_SOURCES, the question SOURCES_OF.
 */
#ifndef PHANTORA_SOURCE_H
#define PHANTORA_SOURCE_H

#include "core/base.h"

/* Bytes that never change. They may be read on any thread. */
typedef struct ph_source ph_source;

/* `item` bytes again and again, 1 to 16 of them. */
ph_source *ph_source_constant(const void *item, size_t item_nbytes);
/* A copy of the bytes; NULL if there is no room. */
ph_source *ph_source_copy(const void *bytes, size_t nbytes);
/* Makes a source that Python's function computes for this number, see phantora_source_given. `depth`: one more than
 * that of the sources that it is computed from; 0 for others. `work`: elements that are gone through to compute it
 * and them. */
ph_source *ph_source_computed(uint64_t number, size_t nbytes, int depth, uint64_t work);
int ph_source_depth(const ph_source *source);     /* 0 once it has been computed */
uint64_t ph_source_work(const ph_source *source); /* the same */

/* The place where another source's bytes are told: one collective, as one of its members sees its output. */
typedef struct ph_remote {
    uint64_t comm, seq, block; /* block: bytes that a member gives to each other one */
    uint32_t op, root, place, nranks;
} ph_remote;
/* `op` is SEND for a send with its receive: `root` sends to `place`. */
ph_source *ph_source_remote(const ph_remote *where);

ph_source *ph_source_hold(ph_source *source); /* one more reference */
void ph_source_release(ph_source *source);
/* Writes a part of the bytes to `dst`, in host or device memory. False if some cannot be had: these are 0. */
bool ph_source_read(ph_source *source, uint64_t offset, size_t nbytes, void *dst);

/* Adds what a part of the bytes refers to, whose first one is `at` to the list: itself, or what members of a collective
 * have told, which may be less. */
struct ph_pieces;
void ph_source_list(ph_source *source, uint64_t offset, size_t nbytes, uintptr_t at, struct ph_pieces *out);

/* ---- for table.c ---- */
enum ph_source_kind { PH_SOURCE_CONSTANT, PH_SOURCE_STORED, PH_SOURCE_COMPUTED, PH_SOURCE_REMOTE };
enum { PH_LONGEST_ITEM = 16 };

typedef struct ph_source_facts {
    enum ph_source_kind kind; /* a computed source that has been computed is a stored one */
    uint64_t nbytes;
    unsigned char item[PH_LONGEST_ITEM]; /* `nbytes` of them, of a constant */
    uint32_t entry;
    const unsigned char *recipe; /* what Python makes of a computation; it stays as long as the source */
    size_t recipe_nbytes;
    ph_remote remote;
} ph_source_facts;
/* Describes how a source is computed. Returns false if Python cannot say it. */
bool ph_source_describe(ph_source *source, ph_source_facts *out);
/* The entry's reference passes on. */
ph_source *ph_source_stored(uint32_t entry, uint64_t nbytes);
ph_source *ph_source_recipe(const void *recipe, size_t recipe_nbytes, uint64_t nbytes);

#endif
