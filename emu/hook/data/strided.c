/* The same questions and marks for the elements of a tensor, which may lie apart. emu's Python side calls them. */
#include "data/strided.h"
#include "data/data.h"
#include "sources/source_map.h"

#include <stdlib.h>

enum state { UNKNOWN, KNOWN, PENDING, ASSUMED };
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

PH_EXPORT int phantora_data_strided_state(uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                          const int64_t *strides) {
    ph_runs r;
    int worst = KNOWN;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return KNOWN;
    do {
        int state = state_of(r.start, r.inner);
        if (state == UNKNOWN || state == PENDING) return state;
        if (state == ASSUMED) worst = ASSUMED;
    } while (ph_runs_next(&r));
    return worst;
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
