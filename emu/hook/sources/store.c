/*
 * Bytes that programs have given to the device, in one file that all ranks of the run share.
 *
 * Equal bytes are kept once: an entry of the index, which all ranks map, has a hash of 128 bits of its content (or of
 * its name, see host_names.c) and
 * counts the sources that refer to it in any rank. The file is sparse and has no name. An entry's space is returned to
 * the file system when nothing refers to it any more. What is kept at any time is bounded: half of what the file
 * system has left at the start, and half of the machine's memory.
 *
 * An entry is found by others while its bytes are still being written, without the lock; readers wait for them.
 */
#define _GNU_SOURCE
#include "sources/store.h"
#include "channel/channel.h"
#include "core/hash.h"
#include "core/warn.h"
#include "sources/host_names.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { ENTRIES = 1 << 18, PROBES = 128, PAGE = 4096 };
enum state { FREE, WRITING, WRITTEN, FAILED };
#define PRIVATE_BUDGET ((uint64_t)1 << 30) /* of a process that shares with nobody */

typedef struct entry {
    uint64_t key[2], offset, nbytes;
    uint32_t refs; /* under the lock */
    _Atomic(uint32_t) state;
    bool used_before; /* a search goes on behind it */
} entry;

typedef struct store_index {
    pthread_mutex_t lock;
    uint64_t end; /* of the file: no place is used twice */
    ph_store_totals totals;
    entry entries[ENTRIES];
} store_index;

static store_index *shared;
static int file = -1;
static bool opened_for_all;
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static pid_t owner; /* a forked child gives nothing back that its parent holds */

static void create(int descriptor, uint64_t budget) {
    pthread_mutexattr_t attributes;
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (descriptor < 0 || at == MAP_FAILED) return;
    file = descriptor;
    shared = at;
    shared->totals.budget = budget;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static void open_private(void) {
    if (!shared) create(memfd_create("phantora", MFD_CLOEXEC), PRIVATE_BUDGET);
}

static bool ready(void) {
    pthread_once(&opened, open_private);
    return shared != NULL;
}

void ph_store_open(const char *folder) {
    struct statvfs disk;
    struct sysinfo machine;
    uint64_t budget = PRIVATE_BUDGET;
    int descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0) { /* a file system without nameless files */
        char path[4096];
        snprintf(path, sizeof path, "%s/contents-XXXXXX", folder);
        descriptor = mkostemp(path, O_CLOEXEC);
        if (descriptor >= 0) unlink(path);
    }
    if (statvfs(folder, &disk) == 0 && sysinfo(&machine) == 0) {
        uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize, memory = (uint64_t)machine.totalram * machine.mem_unit;
        budget = (left < memory ? left : memory) / 2;
    }
    create(descriptor, budget);
    opened_for_all = shared != NULL;
}

/* A rank that dies with the lock leaves counts that are too high, which does no harm. */
static void lock(void) {
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}

static void unlock(void) { pthread_mutex_unlock(&shared->lock); }

/* Four lanes, each with a multiplication of 64 bits for every 16 bytes. */
static void content_key(uint64_t key[2], const unsigned char *bytes, size_t nbytes) {
    uint64_t lane[4] = {0x243f6a8885a308d3ull ^ nbytes, 0x13198a2e03707344ull, 0xa4093822299f31d0ull,
                        0x082efa98ec4e6c89ull};
    size_t i = 0;
    for (; i + 64 <= nbytes; i += 64) {
        uint64_t word[8];
        memcpy(word, bytes + i, sizeof word);
        for (int j = 0; j < 4; j++) lane[j] = ph_mix(word[2 * j] ^ lane[j], word[2 * j + 1] + lane[j]);
    }
    uint64_t rest = ph_hash(lane[0], bytes + i, nbytes - i);
    key[0] = ph_mix(ph_mix(lane[0], lane[1]), ph_mix(lane[2], lane[3] ^ rest));
    key[1] = ph_mix(ph_mix(lane[3] + 1, lane[2]), ph_mix(lane[1] + rest, lane[0]));
}

/* Under the lock: the entry with the key, or a place for it; NULL if there is neither. */
static entry *find(const uint64_t key[2], uint64_t nbytes, bool *found) {
    entry *place = NULL;
    *found = false;
    for (uint32_t i = 0; i < PROBES; i++) {
        entry *at = &shared->entries[1 + (key[0] + i) % (ENTRIES - 1)];
        uint32_t state = at->state;
        if (state == FREE) {
            if (!place) place = at;
            if (!at->used_before) break;
        } else if (state != FAILED && at->key[0] == key[0] && at->key[1] == key[1] && at->nbytes == nbytes) {
            *found = true;
            return at;
        }
    }
    return place;
}

static bool write_all(const unsigned char *bytes, size_t nbytes, uint64_t offset) {
    for (ssize_t n; nbytes; bytes += n, offset += (uint64_t)n, nbytes -= (size_t)n) {
        n = pwrite(file, bytes, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR) n = 0;
        if (n < 0) return false;
    }
    return true;
}

static uint64_t room_of(size_t nbytes) { return (nbytes + PAGE - 1) / PAGE * PAGE; }

uint32_t ph_store_add(const void *bytes, size_t nbytes) {
    uint64_t key[2];
    bool found;
    if (!ready()) return 0;
    if (!owner) owner = getpid();
    if (!ph_host_name_key(bytes, nbytes, key)) content_key(key, bytes, nbytes);
    lock();
    entry *at = find(key, nbytes, &found);
    if (!found) {
        ph_store_totals *totals = &shared->totals;
        if (!at || room_of(nbytes) > totals->budget - totals->used) {
            totals->refused += nbytes;
            unlock();
            return 0;
        }
        *at = (entry){.key = {key[0], key[1]}, .offset = shared->end, .nbytes = nbytes, .used_before = true};
        at->state = WRITING;
        shared->end += room_of(nbytes);
        totals->used += room_of(nbytes);
        if (totals->used > totals->peak) totals->peak = totals->used;
    }
    at->refs++;
    unlock();
    uint32_t number = (uint32_t)(at - shared->entries);
    if (found) return number;
    bool written = write_all(bytes, nbytes, at->offset);
    at->state = written ? WRITTEN : FAILED;
    if (written) return number;
    ph_store_release(number);
    return 0;
}

bool ph_store_acquire(uint32_t number, const uint64_t key[2]) {
    if (!shared || !number || number >= ENTRIES) return false;
    entry *at = &shared->entries[number];
    lock();
    uint32_t state = at->state;
    bool same = (state == WRITING || state == WRITTEN) && at->refs && at->key[0] == key[0] && at->key[1] == key[1];
    if (same) at->refs++;
    unlock();
    if (!owner) owner = getpid();
    return same;
}

void ph_store_key(uint32_t number, uint64_t key[2]) {
    key[0] = shared->entries[number].key[0];
    key[1] = shared->entries[number].key[1];
}

uint64_t ph_store_nbytes(uint32_t number) { return shared->entries[number].nbytes; }

bool ph_store_shared(void) { return opened_for_all; }

void ph_store_release(uint32_t number) {
    entry *at = &shared->entries[number];
    if (owner != getpid()) return;
    lock();
    bool last = --at->refs == 0;
    if (last) {
        at->state = FREE;
        shared->totals.used -= room_of(at->nbytes);
    }
    uint64_t offset = at->offset, nbytes = room_of(at->nbytes);
    unlock();
    if (last) fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)nbytes);
}

bool ph_store_read(uint32_t number, uint64_t offset, size_t nbytes, void *dst) {
    const entry *at = &shared->entries[number];
    for (int turns = 0; at->state == WRITING; turns++) usleep(turns < 100 ? 100 : 10000);
    if (at->state != WRITTEN) return false;
    unsigned char *to = dst;
    for (ssize_t n; nbytes; to += n, offset += (uint64_t)n, nbytes -= (size_t)n) {
        n = pread(file, to, nbytes, (off_t)(at->offset + offset));
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            return false;
    }
    return true;
}

ph_store_totals ph_store_counts(void) {
    if (!shared) return (ph_store_totals){0};
    lock();
    ph_store_totals totals = shared->totals;
    unlock();
    return totals;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */
PH_EXPORT void phantora_store_open(const char *folder) { ph_store_open(folder); }

PH_EXPORT int phantora_store_descriptor(void) { return file; }

PH_EXPORT void phantora_store_move(int descriptor) { file = descriptor; }

/* Sends a KEPT record. */
PH_EXPORT void phantora_kept(void) {
    ph_store_totals totals = ph_store_counts();
    struct ph_KEPT record = {.peak = totals.peak, .budget = totals.budget, .refused = totals.refused};
    if (totals.budget) ph_emit_out_of_band(PH_KIND_KEPT, &record, sizeof record, NULL, 0);
}
