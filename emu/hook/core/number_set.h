/* A set of 64-bit numbers that only grows. Not thread-safe: the caller must serialise the calls. */
#ifndef PHANTORA_NUMBER_SET_H
#define PHANTORA_NUMBER_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t *slots; /* open addressing, 0 marks a free slot */
    size_t capacity, n;
} ph_number_set;

bool ph_number_set_has(const ph_number_set *set, uint64_t number);
/* Returns false if the set had the number before. 0 counts as a number that every set has. */
bool ph_number_set_add(ph_number_set *set, uint64_t number);

#endif
