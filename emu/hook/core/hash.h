/* Hashes that are the same on every rank and in every run. */
#ifndef PHANTORA_HASH_H
#define PHANTORA_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t ph_mix(uint64_t a, uint64_t b) {
    __uint128_t m = (__uint128_t)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd6e8feb86659fd93ull);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Never 0. */
uint64_t ph_hash(uint64_t seed, const void *bytes, size_t n);

#endif
