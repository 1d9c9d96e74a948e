/* The states of a tensor's bytes, whose elements may lie apart, and marks on them: for emu's Python side. */
#include "data/strided.h"
#include "data/data.h"
#include "memory/memory.h"
#include "memory/pinned.h"
#include "sources/source_map.h"

#include <stdlib.h>

enum state { UNKNOWN, KNOWN, PENDING, ASSUMED, KEPT };
enum mark { MARK_UNKNOWN, MARK_KNOWN, MARK_ASSUMED };

bool ph_runs_begin(ph_runs *r, uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                   const int64_t *strides) {
    int order[PH_MAX_DIMS], n = 0;
    if (ndims > PH_MAX_DIMS) return false;
    for (int i = 0; i < ndims; i++) {
        if (sizes[i] == 0) return false;
        if (sizes[i] == 1 || strides[i] == 0) continue;
        int at = n++;
        for (; at > 0 && strides[order[at - 1]] > strides[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    *r = (ph_runs){.start = (const char *)(uintptr_t)address, .inner = (size_t)item};
    for (int i = 0; i < n; i++) {
        int64_t stride = strides[order[i]] * item;
        if (r->nouter == 0 && stride == (int64_t)r->inner) {
            r->inner *= (size_t)sizes[order[i]];
            continue;
        }
        r->size[r->nouter] = sizes[order[i]];
        r->stride[r->nouter++] = stride;
    }
    return true;
}

bool ph_runs_next(ph_runs *r) {
    for (int i = 0; i < r->nouter; i++) {
        r->start += r->stride[i];
        if (++r->at[i] < r->size[i]) return true;
        r->start -= r->stride[i] * r->size[i];
        r->at[i] = 0;
    }
    return false;
}

/* Returns the state of the bytes, without making bytes of what refers to a source. KEPT: some do, the others are
 * known or assumed. */
static int peek(const void *start, size_t nbytes) {
    if (ph_data_pending(start, nbytes)) return PENDING;
    if (ph_data_known(start, nbytes)) return KNOWN;
    if (ph_data_unknown(start, nbytes, false)) return UNKNOWN;
    return ph_sources_touch(start, nbytes) ? KEPT : ASSUMED;
}

/* So many runs are read one by one, and spans up to this size as a whole. */
enum { FEW_RUNS = 16384, SHORT_SPAN = 64 << 20 };

/* Makes the bytes of a tensor with many runs that refers to sources: the references would become as many pieces as
 * there are runs. */
static void settle_span(const ph_runs *r) {
    size_t runs = 1, span = r->inner;
    for (int i = 0; i < r->nouter; i++) {
        runs *= (size_t)r->size[i];
        span += (size_t)((r->size[i] - 1) * r->stride[i]);
    }
    if (runs > FEW_RUNS && span <= SHORT_SPAN) ph_data_settle(r->start, span);
}

static int state_of(const void *start, size_t nbytes) {
    if (ph_data_pending(start, nbytes)) return PENDING;
    ph_data_settle(start, nbytes);
    if (ph_data_known(start, nbytes)) return KNOWN;
    const char *at = start, *end = at + nbytes;
    for (ph_range piece; at < end && ph_data_next_readable(at, (size_t)(end - at), &piece) && piece.start == at;)
        at += piece.nbytes;
    return at == end ? ASSUMED : UNKNOWN;
}

/* An enum state. ASSUMED: some are, the others are known. */
PH_EXPORT int phantora_data_state(uint64_t address, uint64_t nbytes) {
    return state_of((const void *)(uintptr_t)address, nbytes);
}

/* phantora_data_state that makes no bytes: of a range that refers to a source it returns KEPT. */
PH_EXPORT int phantora_data_peek(uint64_t address, uint64_t nbytes) {
    return peek((const void *)(uintptr_t)address, nbytes);
}

static int strided(int (*ask)(const void *, size_t), uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                   const int64_t *strides) {
    ph_runs r;
    int worst = KNOWN;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return KNOWN;
    if (ask == state_of) settle_span(&r);
    do {
        int state = ask(r.start, r.inner);
        if (state == UNKNOWN || state == PENDING) return state;
        if (state > worst) worst = state;
    } while (ph_runs_next(&r));
    return worst;
}

PH_EXPORT int phantora_data_strided_state(uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                          const int64_t *strides) {
    return strided(state_of, address, item, ndims, sizes, strides);
}

PH_EXPORT int phantora_data_strided_peek(uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                         const int64_t *strides) {
    return strided(peek, address, item, ndims, sizes, strides);
}

/* Has the byte a value, or will it have one? The host's memory has: kernels see pinned memory as the program left it.
 */
PH_EXPORT int phantora_data_begins(uint64_t address) {
    const void *at = (const void *)(uintptr_t)address;
    ph_range piece;
    return ph_sources_touch(at, 1) || ph_data_next_readable(at, 1, &piece) || ph_data_pending(at, 1) ||
           (!ph_is_device_pointer(at) && ph_host_pinned(at));
}

PH_EXPORT void phantora_data_strided_mark(int mark, uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                          const int64_t *strides) {
    ph_runs r;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return;
    do {
        if (mark == MARK_UNKNOWN)
            ph_data_forget(r.start, r.inner);
        else
            (mark == MARK_KNOWN ? ph_data_mark_known : ph_data_mark_assumed)(r.start, r.inner);
    } while (ph_runs_next(&r));
}

/* Bytes of the range that would be read as 0 because nothing gives them a value. */
PH_EXPORT uint64_t phantora_data_unknown(uint64_t address, uint64_t nbytes) {
    return ph_data_unknown((const void *)(uintptr_t)address, nbytes, false);
}

/* Bytes of the range that are not known, assumed ones among them. */
PH_EXPORT uint64_t phantora_data_uncertain(uint64_t address, uint64_t nbytes) {
    return ph_data_unknown((const void *)(uintptr_t)address, nbytes, true);
}

/* An enum state, of bytes that are about to be copied to the host: those that refer to a source count as known. */
PH_EXPORT int phantora_data_read_state(uint64_t address, uint64_t nbytes) {
    const void *start = (const void *)(uintptr_t)address;
    if (ph_data_pending(start, nbytes)) return PENDING;
    if (ph_data_unknown(start, nbytes, true) == 0) return KNOWN;
    return ph_data_unknown(start, nbytes, false) == 0 ? ASSUMED : UNKNOWN;
}

/* Is at least one byte known or assumed, or refers it to a source? */
PH_EXPORT int phantora_data_any(uint64_t address, uint64_t nbytes) {
    ph_range piece;
    if (ph_sources_touch((const void *)(uintptr_t)address, nbytes)) return 1;
    return ph_data_next_readable((const void *)(uintptr_t)address, nbytes, &piece);
}

/* n pairs of address and number of bytes, which a launch that is not executed writes to. */
PH_EXPORT void phantora_data_overwrite(const uint64_t *ranges, int n) {
    for (int i = 0; i < n; i++) ph_data_overwrite((const void *)(uintptr_t)ranges[2 * i], ranges[2 * i + 1]);
}
