/* See source.h. */
#include "sources/source.h"
#include "core/alloc.h"
#include "sources/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum kind { CONSTANT, STORED, COMPUTED };
enum { LONGEST_ITEM = 16 };

struct ph_source {
    atomic_int refs;
    enum kind kind;
    size_t nbytes; /* of a constant: of one item */
    unsigned char item[LONGEST_ITEM];
    uint64_t number;
    int depth;
    _Atomic(uint32_t) entry; /* in the store; of a computed source: once it has been computed */
};

static ph_source *new_source(enum kind kind, size_t nbytes) {
    ph_source *source = ph_allocate(sizeof *source);
    source->refs = 1;
    source->kind = kind;
    source->nbytes = nbytes;
    return source;
}

ph_source *ph_source_constant(const void *item, size_t item_nbytes) {
    ph_source *source = new_source(CONSTANT, item_nbytes);
    memcpy(source->item, item, item_nbytes);
    return source;
}

/* The shortest item that the bytes repeat, of a power of two of bytes; 0 if it would be longer than an item may be. */
static size_t period(const unsigned char *bytes, size_t nbytes) {
    for (size_t n = 1; n <= LONGEST_ITEM && n < nbytes; n *= 2)
        if (memcmp(bytes, bytes + n, nbytes - n) == 0) return n;
    return 0;
}

ph_source *ph_source_copy(const void *bytes, size_t nbytes) {
    size_t item = period(bytes, nbytes);
    if (item) return ph_source_constant(bytes, item);
    uint32_t entry = ph_store_add(bytes, nbytes);
    if (!entry) return NULL;
    ph_source *source = new_source(STORED, nbytes);
    source->entry = entry;
    return source;
}

ph_source *ph_source_computed(uint64_t number, size_t nbytes, int depth) {
    ph_source *source = new_source(COMPUTED, nbytes);
    source->number = number;
    source->depth = depth;
    return source;
}

int ph_source_depth(const ph_source *source) { return source->entry ? 0 : source->depth; }

ph_source *ph_source_hold(ph_source *source) {
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

/* ---- computed by Python ------------------------------------------------------------------------------------------ */
static struct {
    pthread_mutex_t lock;
    uint64_t *numbers;
    size_t n, capacity;
} dropped = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The calling thread may not hold Python's lock, so Python asks later which computations nobody needs any more. */
static void drop(uint64_t number) {
    pthread_mutex_lock(&dropped.lock);
    dropped.numbers = ph_room_for_one(dropped.numbers, dropped.n, &dropped.capacity, sizeof *dropped.numbers);
    dropped.numbers[dropped.n++] = number;
    pthread_mutex_unlock(&dropped.lock);
}

void ph_source_release(ph_source *source) {
    if (!source || atomic_fetch_sub(&source->refs, 1) != 1) return;
    if (source->kind == COMPUTED) drop(source->number);
    if (source->entry) ph_store_release(source->entry);
    free(source);
}

typedef struct request {
    struct request *outer;
    ph_source *source;
    uint64_t offset;
    size_t nbytes;
    void *dst;
    bool done;
} request;
static _Thread_local request *asked;
static void (*_Atomic compute)(uint64_t);

/* Two threads may compute the same source at a time: no lock is held while Python runs, which has one of its own. */
static bool read_computed(ph_source *source, uint64_t offset, size_t nbytes, void *dst) {
    void (*run)(uint64_t) = compute;
    request it = {.outer = asked, .source = source, .offset = offset, .nbytes = nbytes, .dst = dst};
    if (!run) return false;
    asked = &it;
    run(source->number);
    asked = it.outer;
    return it.done;
}

static void repeat(const ph_source *source, uint64_t offset, size_t nbytes, unsigned char *dst) {
    size_t first = nbytes < source->nbytes ? nbytes : source->nbytes;
    for (size_t i = 0; i < first; i++) dst[i] = source->item[(offset + i) % source->nbytes];
    for (size_t done = first; done < nbytes;) { /* the beginning again: a whole number of items */
        size_t n = done < nbytes - done ? done : nbytes - done;
        memcpy(dst + done, dst, n);
        done += n;
    }
}

bool ph_source_read(ph_source *source, uint64_t offset, size_t nbytes, void *dst) {
    if (source->kind == CONSTANT) {
        repeat(source, offset, nbytes, dst);
        return true;
    }
    if (source->entry) return ph_store_read(source->entry, offset, nbytes, dst);
    return read_computed(source, offset, nbytes, dst);
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* run(number) is called for a source that is read; it calls phantora_source_given with the bytes before it returns. */
PH_EXPORT void phantora_source_compute(void (*run)(uint64_t)) { compute = run; }

PH_EXPORT void phantora_source_given(const void *bytes, uint64_t nbytes) {
    request *it = asked;
    if (!it || it->offset + it->nbytes > nbytes) return;
    memcpy(it->dst, (const unsigned char *)bytes + it->offset, it->nbytes);
    it->done = true;
    uint32_t entry = it->source->entry ? 0 : ph_store_add(bytes, nbytes), none = 0;
    if (entry && !atomic_compare_exchange_strong(&it->source->entry, &none, entry)) ph_store_release(entry);
}

/* Numbers of computed sources that nothing refers to any more, at most `capacity`; returns how many. */
PH_EXPORT uint64_t phantora_sources_dropped(uint64_t *numbers, uint64_t capacity) {
    pthread_mutex_lock(&dropped.lock);
    size_t n = dropped.n < capacity ? dropped.n : capacity;
    dropped.n -= n;
    if (n) memcpy(numbers, dropped.numbers + dropped.n, n * sizeof *numbers);
    pthread_mutex_unlock(&dropped.lock);
    return n;
}
