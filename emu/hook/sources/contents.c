/* Bytes in a file, each once, found by a key of their content: see contents.h. */
#define _GNU_SOURCE
#include "sources/contents.h"
#include "core/alloc.h"
#include "core/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1 << 16, MOST_ENTRIES = 1 << 20, PAGE = 4096 };
#define STALLED_NS ((uint64_t)1000000000) /* whose writer may have been stopped, and is not waited for */

typedef struct entry {
    ph_content is;
    uint32_t refs, next; /* of the bucket, or of the free ones */
    bool written;
    uint64_t moved_ns; /* real time of the last bytes, while it is written */
} entry;

struct ph_contents {
    int file;
    uint64_t end; /* of the file: no place is used twice */
    ph_store_totals totals;
    entry *entries; /* by number; number 0 is none */
    size_t n, capacity;
    uint32_t free, buckets[BUCKETS];
};

ph_contents *ph_contents_new(int file, uint64_t budget) {
    ph_contents *made = ph_allocate(sizeof *made);
    made->file = file;
    made->totals.budget = budget;
    made->entries = ph_room_for_one(made->entries, 0, &made->capacity, sizeof *made->entries);
    made->n = 1;
    return made;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t room_of(uint64_t nbytes) { return (nbytes + PAGE - 1) / PAGE * PAGE; }

static uint32_t *bucket(ph_contents *contents, const uint64_t key[2]) { return &contents->buckets[key[0] % BUCKETS]; }

static uint32_t new_number(ph_contents *contents) {
    uint32_t number = contents->free;
    if (number) {
        contents->free = contents->entries[number].next;
    } else if (contents->n < MOST_ENTRIES) {
        contents->entries =
            ph_room_for_one(contents->entries, contents->n, &contents->capacity, sizeof *contents->entries);
        number = (uint32_t)contents->n++;
    }
    return number;
}

enum ph_added ph_contents_add(ph_contents *contents, const uint64_t key[2], uint64_t nbytes, uint32_t *number) {
    uint32_t *head = bucket(contents, key);
    for (uint32_t i = *head; i; i = contents->entries[i].next) {
        entry *it = &contents->entries[i];
        if (it->is.key[0] != key[0] || it->is.key[1] != key[1] || it->is.nbytes != nbytes) continue;
        if (!it->written && now_ns() - it->moved_ns > STALLED_NS) continue;
        if (!it->written) return PH_ADDED_BUSY;
        it->refs++;
        *number = i;
        return PH_ADDED_FOUND;
    }
    ph_store_totals *totals = &contents->totals;
    bool fits = nbytes <= totals->budget && room_of(nbytes) <= totals->budget - totals->used;
    if (!fits || !(*number = new_number(contents))) {
        totals->refused += nbytes;
        return PH_ADDED_REFUSED;
    }
    contents->entries[*number] =
        (entry){.is = {{key[0], key[1]}, contents->end, nbytes}, .refs = 1, .next = *head, .moved_ns = now_ns()};
    *head = *number;
    contents->end += room_of(nbytes);
    totals->used += room_of(nbytes);
    if (totals->used > totals->peak) totals->peak = totals->used;
    return PH_ADDED_NEW;
}

bool ph_contents_write(ph_contents *contents, uint32_t number, uint64_t offset, const void *bytes, size_t nbytes) {
    const unsigned char *from = bytes;
    offset += contents->entries[number].is.offset;
    contents->entries[number].moved_ns = now_ns();
    for (ssize_t n; nbytes; from += n, offset += (uint64_t)n, nbytes -= (size_t)n) {
        n = pwrite(contents->file, from, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR) n = 0;
        if (n < 0) return false;
    }
    return true;
}

static void drop(ph_contents *contents, uint32_t number) {
    entry *it = &contents->entries[number];
    uint32_t *at = bucket(contents, it->is.key);
    while (*at != number) at = &contents->entries[*at].next;
    *at = it->next;
    contents->totals.used -= room_of(it->is.nbytes);
    fallocate(contents->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)it->is.offset,
              (off_t)room_of(it->is.nbytes));
    *it = (entry){.next = contents->free};
    contents->free = number;
}

void ph_contents_written(ph_contents *contents, uint32_t number, bool well) {
    if (well)
        contents->entries[number].written = true;
    else
        drop(contents, number);
}

bool ph_contents_acquire(ph_contents *contents, uint32_t number, const uint64_t key[2]) {
    if (!number || number >= contents->n) return false;
    entry *it = &contents->entries[number];
    if (!it->written || it->is.key[0] != key[0] || it->is.key[1] != key[1]) return false;
    it->refs++;
    return true;
}

void ph_contents_release(ph_contents *contents, uint32_t number) {
    if (--contents->entries[number].refs == 0) drop(contents, number);
}

ph_content ph_contents_of(const ph_contents *contents, uint32_t number) { return contents->entries[number].is; }

ph_store_totals ph_contents_totals(const ph_contents *contents) { return contents->totals; }

/* ---- keys -------------------------------------------------------------------------------------------------------- */
ph_key ph_key_of(uint64_t nbytes) {
    return (ph_key){
        {0x243f6a8885a308d3ull ^ nbytes, 0x13198a2e03707344ull, 0xa4093822299f31d0ull, 0x082efa98ec4e6c89ull}};
}

/* Four lanes, each with a multiplication of 64 bits for every 16 bytes. */
void ph_key_blocks(ph_key *key, const unsigned char *bytes, size_t nbytes) {
    ph_key it = *key;
    for (size_t i = 0; i + PH_KEY_BLOCK <= nbytes; i += PH_KEY_BLOCK) {
        uint64_t word[8];
        memcpy(word, bytes + i, sizeof word);
        for (int j = 0; j < 4; j++) it.lane[j] = ph_mix(word[2 * j] ^ it.lane[j], word[2 * j + 1] + it.lane[j]);
    }
    *key = it;
}

void ph_key_end(const ph_key *key, const unsigned char *rest, size_t nbytes, uint64_t out[2]) {
    const uint64_t *lane = key->lane;
    uint64_t last = ph_hash(lane[0], rest, nbytes);
    out[0] = ph_mix(ph_mix(lane[0], lane[1]), ph_mix(lane[2], lane[3] ^ last));
    out[1] = ph_mix(ph_mix(lane[3] + 1, lane[2]), ph_mix(lane[1] + last, lane[0]));
}

void ph_content_key(uint64_t key[2], const void *bytes, size_t nbytes) {
    ph_key made = ph_key_of(nbytes);
    size_t whole = nbytes / PH_KEY_BLOCK * PH_KEY_BLOCK;
    ph_key_blocks(&made, bytes, whole);
    ph_key_end(&made, (const unsigned char *)bytes + whole, nbytes - whole, key);
}
