/* cuRAND's Philox 4x32-10 (Salmon et al., SC'11), for emu/control/philox.py. */
#include "data/data.h"

enum { ROUNDS = 10 };

static void philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < ROUNDS; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Draws the numbers of `threads` threads of a launch, from `first` on, by `calls` calls of curand4, after
 * curand_init(seed, thread, offset): out[call][thread][4]. The offset is a multiple of 4, as PyTorch's always are. */
PH_EXPORT void phantora_philox(uint64_t seed, uint64_t offset, uint64_t first, uint64_t threads, uint64_t calls,
                               uint32_t *out) {
    for (uint64_t call = 0; call < calls; call++)
        for (uint64_t thread = first; thread < first + threads; thread++, out += 4) {
            uint64_t at = offset / 4 + call;
            const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)thread,
                                         (uint32_t)(thread >> 32)};
            philox(counter, seed, out);
        }
}
