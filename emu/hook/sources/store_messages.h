/* The messages between ranks and the store's process, one a packet. */
#ifndef PHANTORA_STORE_MESSAGES_H
#define PHANTORA_STORE_MESSAGES_H

#include "sources/contents.h"

#define PH_STORE_SOCKET "store"
#define PH_STORE_FILE "contents"
enum { PH_STORE_CHUNK = 64 << 10 }; /* bytes of an entry that one packet may carry */

enum ph_store_what {
    PH_STORE_ADD,     /* key and size; all bytes follow if they are at most a chunk */
    PH_STORE_MORE,    /* the next chunk of what is added; the last one is answered */
    PH_STORE_ACQUIRE, /* number and key */
    PH_STORE_RELEASE, /* number; not answered */
    PH_STORE_COUNTS,
};
typedef struct ph_store_ask {
    uint32_t what, number;
    uint32_t named; /* the key is that of a name (host_names.c), else of the content */
    uint64_t key[2], nbytes;
} ph_store_ask;

enum ph_store_status {
    PH_STORE_GIVEN,   /* the process that asks has a reference to the entry */
    PH_STORE_BUSY,    /* another process is adding it: ask again */
    PH_STORE_GO_ON,   /* send the bytes */
    PH_STORE_REFUSED, /* there is no room, or no such entry */
    PH_STORE_GONE,    /* said by nobody: there is no answer */
};
typedef struct ph_store_answer {
    uint32_t status, number;
    ph_content content;
    ph_store_totals totals;
} ph_store_answer;

#endif
