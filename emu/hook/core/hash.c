/* See hash.h. */
#include "core/hash.h"

#include <string.h>

uint64_t ph_hash(uint64_t seed, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    uint64_t h = ph_mix(seed, n), word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        h = ph_mix(h, word);
    }
    if (n) {
        word = 0;
        memcpy(&word, p, n);
        h = ph_mix(h, word);
    }
    h = ph_mix(h, 0x2545f4914f6cdd1dull);
    return h ? h : 1;
}
