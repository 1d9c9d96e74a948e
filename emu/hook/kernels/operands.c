/*
 * What a launch's parameters tell of its operands: how many bytes lie behind each pointer, and the sizes that are
 * passed as numbers. It is asked for where no model knows a kernel by its name, grid and op: a persistent kernel has
 * the same grid for operands of any size.
 *
 * Pointers are found as stores.c finds them: by the types in a mangled name, in structs word by word; also in tensor
 * maps, which say how large the tensor is (driver/launch.c). Behind a pointer lies what is left of its block, or of
 * its allocation; a pointer into the middle of a block is that of a view, whose end is not known. Numbers are told of
 * kernels alone that are known to take nothing but sizes: a step's number would make each launch another signature.
 */
#include "kernels/kernel.h"
#include "core/hash.h"
#include "data/data.h"
#include "memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 512, LAST_WORDS = 256, LEAST_NBYTES = 1, KEPT_BITS = 5 }; /* CUDA passes at most 4 KiB */

/* Transformer Engine's kernels whose numbers are sizes. Others of it take seeds and steps. */
static const char *const takes_sizes[] = {"transformer_engine13normalization",
                                          "cast_transpose",
                                          "transpose_optimized_kernel",
                                          "transpose_general_kernel",
                                          "amax_kernel",
                                          "gated_act_kernel",
                                          "12unary_kernel",
                                          "unary_grad_kernel",
                                          "fused_rope_",
                                          "fused_router",
                                          "reduce_dbias_kernel",
                                          "moe_permute",
                                          "moe_unpermute",
                                          "mxfp8",
                                          "nvfp4",
                                          "swizzle",
                                          "kuserbuffers_pushsend",
                                          "reduce_bf16_cuda",
                                          "reduce_fp8_in_bf16_out_cuda"};
static const char leads_with_sizes[] = "transformer_engine13normalization"; /* its struct does */

static bool numbers_are_sizes(const char *name) {
    for (size_t i = 0; i < sizeof takes_sizes / sizeof *takes_sizes; i++)
        if (strstr(name, takes_sizes[i])) return true;
    return false;
}

uint64_t ph_operands_rounded(uint64_t nbytes) {
    int bits = 64 - __builtin_clzll(nbytes | 1), cut = bits > KEPT_BITS ? bits - KEPT_BITS : 0;
    uint64_t unit = (uint64_t)1 << cut;
    return (nbytes + unit - 1) / unit * unit;
}

typedef struct found {
    uintptr_t start; /* of the block */
    uintptr_t first; /* the lowest pointer into it */
    uint64_t nbytes; /* from there on */
} found;

typedef struct search {
    found at[PH_MOST_BUFFERS];
    uint32_t n;
} search;

static void note(search *it, uintptr_t address, uint64_t nbytes, uintptr_t start) {
    uint32_t i = 0;
    while (i < it->n && it->at[i].start != start) i++;
    if (i == it->n) {
        if (it->n == PH_MOST_BUFFERS) return;
        it->at[it->n++] = (found){start, address, nbytes};
    } else if (address < it->at[i].first) {
        it->at[i].nbytes += it->at[i].first - address;
        it->at[i].first = address;
    }
}

static void note_pointer(search *it, uintptr_t word) {
    const void *to = (const void *)word;
    if (!word || !ph_is_device_pointer(to)) return;
    uint64_t rest = ph_data_block_rest(to);
    uintptr_t start = ph_data_block_start(to);
    void *begin;
    size_t whole;
    if (!start && ph_memory_range_of(to, &begin, &whole) == CUDA_OK) start = (uintptr_t)begin;
    if (rest >= LEAST_NBYTES && start) note(it, word, rest, start);
}

/* Returns how far a parameter may reach: to the next one behind it, as the caller's compiler lays them out. Behind
 * the last one lies the caller's stack, so less of it is looked at. */
static size_t words_of(void *const *params, size_t i, size_t n) {
    size_t nbytes = MOST_WORDS * sizeof(uintptr_t);
    bool last = true;
    for (size_t j = 0; j < n; j++) {
        uintptr_t at = (uintptr_t)params[i], other = (uintptr_t)params[j];
        if (other <= at || other - at >= nbytes) continue;
        nbytes = other - at;
        last = false;
    }
    if (last) nbytes = LAST_WORDS * sizeof(uintptr_t);
    return (nbytes + sizeof(uintptr_t) - 1) / sizeof(uintptr_t);
}

/* Pairs of 32 bits ahead of a struct's first pointer: Transformer Engine's parameters begin with rows and columns. */
static void note_leading(ph_operands *out, const uintptr_t *words, size_t n) {
    for (size_t i = 0; i < n && i < 4 && !ph_is_device_pointer((const void *)words[i]); i++)
        for (int half = 0; half < 2 && out->numbers < PH_MOST_NUMBERS; half++)
            out->number[out->numbers++] = (uint32_t)(words[i] >> 32 * half);
}

static void note_struct(search *it, ph_operands *out, void *const *params, size_t i, size_t n, bool leading) {
    uintptr_t words[MOST_WORDS];
    size_t has = ph_words_at(params[i], words, words_of(params, i, n));
    if (leading) note_leading(out, words, has);
    for (size_t j = 0; j < has; j++) {
        if (j + 2 < has && words[j + 1] == PH_TENSOR_MAP && ph_is_device_pointer((const void *)words[j])) {
            note(it, words[j], words[j + 2], words[j]);
            j += 15;
        } else
            note_pointer(it, words[j]);
    }
}

bool ph_operands_of(ph_kernel *kernel, void *const *params, ph_operands *out) {
    const char *kinds = ph_parameter_kinds(kernel);
    bool numbers = numbers_are_sizes(kernel->name), leading = strstr(kernel->name, leads_with_sizes) != NULL;
    search it = {.n = 0};
    memset(out, 0, sizeof *out);
    if (!kinds) { /* untyped: extern "C" */
        uintptr_t parameters[PH_MOST_PARAMETERS], word;
        size_t n = ph_words_at(params, parameters, PH_MOST_PARAMETERS);
        for (size_t i = 0; i < n && parameters[i] && ph_words_at((const void *)parameters[i], &word, 1) == 1; i++)
            note_pointer(&it, word);
    } else {
        size_t n = strlen(kinds);
        for (size_t i = 0; i < n; i++) {
            uintptr_t word = 0;
            uint32_t narrow;
            switch (kinds[i]) {
            case PH_PARAMETER_STRUCT:
                note_struct(&it, out, params, i, n, leading);
                break;
            case PH_PARAMETER_INT:
                memcpy(&narrow, params[i], sizeof narrow);
                if (numbers && out->numbers < PH_MOST_NUMBERS) out->number[out->numbers++] = narrow;
                break;
            case PH_PARAMETER_LONG:
                memcpy(&word, params[i], sizeof word);
                if (numbers && out->numbers < PH_MOST_NUMBERS) out->number[out->numbers++] = word;
                break;
            case PH_PARAMETER_WRITTEN:
            case PH_PARAMETER_CONST:
                memcpy(&word, params[i], sizeof word);
                note_pointer(&it, word);
            }
        }
    }
    for (uint32_t i = 0; i < it.n; i++) {
        out->nbytes[out->n] = ph_operands_rounded(it.at[i].nbytes);
        out->view[out->n++] = it.at[i].first != it.at[i].start;
    }
    return out->n || out->numbers;
}

uint64_t ph_operands_mix(const ph_operands *it, uint64_t hash) { return ph_mix(hash, ph_hash(13, it, sizeof *it)); }

void ph_operands_numbers(const ph_operands *it, char *text, size_t capacity) {
    size_t used = (size_t)snprintf(text, capacity, "%s", it->numbers ? "" : "-");
    for (uint32_t i = 0; i < it->numbers && used < capacity; i++)
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%llu", i ? "," : "", (unsigned long long)it->number[i]);
}

void ph_operands_buffers(const ph_operands *it, char *text, size_t capacity) {
    size_t used = (size_t)snprintf(text, capacity, "%s", it->n ? "" : "-");
    for (uint32_t i = 0; i < it->n && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s%llu", i ? "," : "", it->view[i] ? "~" : "",
                                 (unsigned long long)it->nbytes[i]);
}
