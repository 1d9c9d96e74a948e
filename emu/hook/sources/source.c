/* See source.h. */
#include "sources/source.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "sources/remote.h"
#include "sources/store.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ph_source {
    atomic_int refs;
    enum ph_source_kind kind;
    size_t nbytes; /* of a constant: of one item */
    unsigned char item[PH_LONGEST_ITEM];
    uint64_t number;
    int depth;
    uint64_t work;
    unsigned char *recipe;
    size_t recipe_nbytes;
    ph_remote remote;
    _Atomic(ph_told *) told; /* of a remote source: once it has been asked for */
    _Atomic(uint32_t) entry; /* in the store; of a computed source: once it has been computed */
    _Atomic(uint64_t) apart; /* of a computed source: bytes that were made for a part alone */
};

static ph_source *new_source(enum ph_source_kind kind, size_t nbytes) {
    ph_source *source = ph_allocate(sizeof *source);
    source->refs = 1;
    source->kind = kind;
    source->nbytes = nbytes;
    return source;
}

ph_source *ph_source_constant(const void *item, size_t item_nbytes) {
    ph_source *source = new_source(PH_SOURCE_CONSTANT, item_nbytes);
    memcpy(source->item, item, item_nbytes);
    return source;
}

/* The shortest item that the bytes repeat, of a power of two of bytes; 0 if it would be longer than an item may be. */
static size_t period(const unsigned char *bytes, size_t nbytes) {
    for (size_t n = 1; n <= PH_LONGEST_ITEM && n < nbytes; n *= 2)
        if (memcmp(bytes, bytes + n, nbytes - n) == 0) return n;
    return 0;
}

ph_source *ph_source_copy(const void *bytes, size_t nbytes) {
    size_t item = period(bytes, nbytes);
    if (item) return ph_source_constant(bytes, item);
    uint32_t entry = ph_store_add(bytes, nbytes);
    return entry ? ph_source_stored(entry, nbytes) : NULL;
}

ph_source *ph_source_computed(uint64_t number, size_t nbytes, int depth, uint64_t work) {
    ph_source *source = new_source(PH_SOURCE_COMPUTED, nbytes);
    source->number = number;
    source->depth = depth;
    source->work = work;
    return source;
}

ph_source *ph_source_stored(uint32_t entry, uint64_t nbytes) {
    ph_source *source = new_source(PH_SOURCE_STORED, nbytes);
    source->entry = entry;
    return source;
}

ph_source *ph_source_recipe(const void *recipe, size_t recipe_nbytes, uint64_t nbytes) {
    ph_source *source = new_source(PH_SOURCE_COMPUTED, nbytes);
    source->recipe = memcpy(ph_allocate(recipe_nbytes + 1), recipe, recipe_nbytes);
    source->recipe_nbytes = recipe_nbytes;
    return source;
}

ph_source *ph_source_remote(const ph_remote *where) {
    ph_source *source = new_source(PH_SOURCE_REMOTE, 0);
    source->remote = *where;
    return source;
}

int ph_source_depth(const ph_source *source) { return source->entry ? 0 : source->depth; }

uint64_t ph_source_work(const ph_source *source) { return source->entry ? 0 : source->work; }

ph_source *ph_source_hold(ph_source *source) {
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

/* ---- computed by Python ------------------------------------------------------------------------------------------ */
static struct {
    uint64_t *numbers;
    size_t n, capacity;
} dropped;

/* The calling thread may not hold Python's lock, so Python asks later which computations nobody needs any more. */
static void drop(uint64_t number) {
    ph_lock(PH_LOCK_DROPPED);
    dropped.numbers = ph_room_for_one(dropped.numbers, dropped.n, &dropped.capacity, sizeof *dropped.numbers);
    dropped.numbers[dropped.n++] = number;
    ph_unlock(PH_LOCK_DROPPED);
}

void ph_source_release(ph_source *source) {
    if (!source || atomic_fetch_sub(&source->refs, 1) != 1) return;
    if (source->number) drop(source->number);
    if (source->told) ph_told_free(source->told);
    free(source->recipe);
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

static const ph_told *told_of(ph_source *source) {
    ph_told *told = source->told, *none = NULL;
    if (!told) {
        told = ph_remote_ask(&source->remote);
        if (!atomic_compare_exchange_strong(&source->told, &none, told)) {
            ph_told_free(told);
            told = none;
        }
    }
    return told;
}

bool ph_source_read(ph_source *source, uint64_t offset, size_t nbytes, void *dst) {
    if (source->kind == PH_SOURCE_CONSTANT) {
        repeat(source, offset, nbytes, dst);
        return true;
    }
    if (source->kind == PH_SOURCE_REMOTE) return ph_told_read(told_of(source), offset, nbytes, dst);
    if (source->entry ? ph_store_read(source->entry, offset, nbytes, dst) : read_computed(source, offset, nbytes, dst))
        return true;
    memset(dst, 0, nbytes);
    return false;
}

void ph_source_list(ph_source *source, uint64_t offset, size_t nbytes, uintptr_t at, ph_pieces *out) {
    if (source->kind == PH_SOURCE_REMOTE)
        ph_told_list(told_of(source), offset, nbytes, at, out);
    else
        ph_pieces_add(out, (ph_piece){at, at + nbytes, ph_source_hold(source), offset});
}

/* ---- for other ranks --------------------------------------------------------------------------------------------- */
static void (*_Atomic make_recipe)(uint64_t);
static _Thread_local ph_source *asked_for_recipe;

bool ph_source_describe(ph_source *source, ph_source_facts *out) {
    *out = (ph_source_facts){.kind = source->kind, .nbytes = source->nbytes, .remote = source->remote};
    memcpy(out->item, source->item, sizeof out->item);
    out->entry = source->entry;
    if (source->kind == PH_SOURCE_COMPUTED && out->entry) out->kind = PH_SOURCE_STORED;
    if (out->kind != PH_SOURCE_COMPUTED) return true;
    void (*run)(uint64_t) = make_recipe;
    if (!source->recipe && run) {
        ph_source *outer = asked_for_recipe;
        asked_for_recipe = source;
        run(source->number);
        asked_for_recipe = outer;
    }
    out->recipe = source->recipe;
    out->recipe_nbytes = source->recipe_nbytes;
    return source->recipe != NULL;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* run(number) is called for a source that is read; it calls phantora_source_given with the bytes before it returns. */
PH_EXPORT void phantora_source_compute(void (*run)(uint64_t)) { compute = run; }

/* run(number) is called for a source that another rank refers to; it calls phantora_recipe_given with a text by which
 * the computation can be made there. */
PH_EXPORT void phantora_source_recipes(void (*run)(uint64_t)) { make_recipe = run; }

PH_EXPORT void phantora_recipe_given(const void *text, uint64_t nbytes) {
    ph_source *source = asked_for_recipe;
    if (!source || source->recipe) return;
    source->recipe_nbytes = nbytes;
    source->recipe = memcpy(ph_allocate(nbytes + 1), text, nbytes);
}

/* Copies the text of the source that is computed, within run(0). Returns its length. */
PH_EXPORT uint64_t phantora_recipe(void *text, uint64_t capacity) {
    const ph_source *source = asked ? asked->source : NULL;
    if (!source || !source->recipe) return 0;
    if (text && source->recipe_nbytes <= capacity) memcpy(text, source->recipe, source->recipe_nbytes);
    return source->recipe_nbytes;
}

PH_EXPORT void phantora_source_given(const void *bytes, uint64_t nbytes) {
    request *it = asked;
    if (!it || it->offset + it->nbytes > nbytes) return;
    memcpy(it->dst, (const unsigned char *)bytes + it->offset, it->nbytes);
    it->done = true;
    uint32_t entry = it->source->entry ? 0 : ph_store_add(bytes, nbytes), none = 0;
    if (entry && !atomic_compare_exchange_strong(&it->source->entry, &none, entry)) ph_store_release(entry);
}

/* Tells, within run(), which bytes of the source are read, where from, and how many were made before for parts
 * alone. */
PH_EXPORT void phantora_source_range(uint64_t *offset, uint64_t *nbytes, uint64_t *apart) {
    const request *it = asked;
    *offset = it ? it->offset : 0;
    *nbytes = it ? it->nbytes : 0;
    *apart = it ? it->source->apart : 0;
}

/* Gives bytes from `offset` on, which are what is read or more, in place of phantora_source_given. They are not
 * kept. */
PH_EXPORT void phantora_source_part_given(const void *bytes, uint64_t offset, uint64_t nbytes) {
    request *it = asked;
    if (!it || it->offset < offset || it->offset + it->nbytes > offset + nbytes) return;
    memcpy(it->dst, (const unsigned char *)bytes + (it->offset - offset), it->nbytes);
    it->source->apart += nbytes;
    it->done = true;
}

/* Numbers of computed sources that nothing refers to any more, at most `capacity`; returns how many. */
PH_EXPORT uint64_t phantora_sources_dropped(uint64_t *numbers, uint64_t capacity) {
    ph_lock(PH_LOCK_DROPPED);
    size_t n = dropped.n < capacity ? dropped.n : capacity;
    dropped.n -= n;
    if (n) memcpy(numbers, dropped.numbers + dropped.n, n * sizeof *numbers);
    ph_unlock(PH_LOCK_DROPPED);
    return n;
}
