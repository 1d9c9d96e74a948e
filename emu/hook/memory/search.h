/* A search that the sorted arrays of memory/ share. */
#ifndef PHANTORA_SEARCH_H
#define PHANTORA_SEARCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The index of the last item that begins at or below the address, -1 if there is none. Each item's first member is
 * where it begins, in 8 bytes; the items are sorted by it. */
static inline ptrdiff_t ph_last_at_or_below(const void *items, size_t n, size_t item_nbytes, uintptr_t address) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uintptr_t begin;
        memcpy(&begin, (const char *)items + middle * item_nbytes, sizeof begin);
        if (begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return (ptrdiff_t)low - 1;
}

#endif
