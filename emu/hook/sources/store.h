/* Bytes that programs have given to the device, once for all ranks of the run. See store.c. */
#ifndef PHANTORA_STORE_H
#define PHANTORA_STORE_H

#include "core/base.h"

/* Names the folder where the ranks find the store's process: before they are forked. Without it a process keeps
 * bytes for itself. */
void ph_store_open(const char *folder);
/* Keeps a copy of the bytes, or finds an equal one. A number to read them by, 0 if there is no room. */
uint32_t ph_store_add(const void *bytes, size_t nbytes);
/* One more reference to an entry that another rank has named; false if it has gone. */
bool ph_store_acquire(uint32_t entry, const uint64_t key[2]);
void ph_store_key(uint32_t entry, uint64_t key[2]);
uint64_t ph_store_nbytes(uint32_t entry);
bool ph_store_shared(void); /* by all ranks of the run */
void ph_store_release(uint32_t entry);
/* Reads bytes of an entry. Returns false if they could not be written or read. */
bool ph_store_read(uint32_t entry, uint64_t offset, size_t nbytes, void *dst);

typedef struct ph_store_totals {
    uint64_t used, peak, budget, refused; /* bytes; refused: for lack of room, all ranks together */
} ph_store_totals;
ph_store_totals ph_store_counts(void); /* as the last answer said */

/* ---- host_names.c: names of host memory that ranks map from the same files --------------------------------------- */
/* The key of a range that has a name and to which this process has not written; false if there is none. */
bool ph_host_name_key(const void *bytes, size_t nbytes, uint64_t key[2]);

#endif
