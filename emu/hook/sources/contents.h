/* Bytes in a file, each once: found by a key of their content, counted, given back when nothing refers to them. The
 * caller sees to it that one thread works with it at a time. */
#ifndef PHANTORA_CONTENTS_H
#define PHANTORA_CONTENTS_H

#include "core/base.h"
#include "sources/store.h"

typedef struct ph_contents ph_contents;
typedef struct ph_content {
    uint64_t key[2], offset, nbytes;
} ph_content;

enum ph_added {
    PH_ADDED_FOUND,   /* it is there: one more reference */
    PH_ADDED_BUSY,    /* somebody is writing it, and has not stalled */
    PH_ADDED_NEW,     /* one reference; its bytes have to be written */
    PH_ADDED_REFUSED, /* there is no room */
};

/* `file`: for reading and writing; `budget`: how many bytes may be kept at a time. */
ph_contents *ph_contents_new(int file, uint64_t budget);
enum ph_added ph_contents_add(ph_contents *contents, const uint64_t key[2], uint64_t nbytes, uint32_t *number);
bool ph_contents_write(ph_contents *contents, uint32_t number, uint64_t offset, const void *bytes, size_t nbytes);
/* All bytes of a new one have been written, or they cannot be: then it is gone. */
void ph_contents_written(ph_contents *contents, uint32_t number, bool well);
bool ph_contents_acquire(ph_contents *contents, uint32_t number, const uint64_t key[2]);
void ph_contents_release(ph_contents *contents, uint32_t number);
ph_content ph_contents_of(const ph_contents *contents, uint32_t number);
/* The key of bytes: in one go, or in parts, each but the last of whole blocks. */
enum { PH_KEY_BLOCK = 64 };
typedef struct ph_key {
    uint64_t lane[4];
} ph_key;
ph_key ph_key_of(uint64_t nbytes);
void ph_key_blocks(ph_key *key, const unsigned char *bytes, size_t nbytes);
void ph_key_end(const ph_key *key, const unsigned char *rest, size_t nbytes, uint64_t out[2]);
void ph_content_key(uint64_t key[2], const void *bytes, size_t nbytes);

ph_store_totals ph_contents_totals(const ph_contents *contents);

#endif
