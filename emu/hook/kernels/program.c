/* Programs of Triton's kernels: emu/interpreter/triton_programs.py tells them, see there. */
#include "kernels/kernel.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "data/data.h"
#include "graphs/capture.h"
#include "kernels/registry.h"
#include "memory/memory.h"
#include "threads/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_INTEGER = 22 }; /* characters of an i64, a 'b' and a separator */

/* Counts in device memory that end a program's loops, such as the blocks that a mask of FlexAttention leaves to each
 * row: so many are looked at, and told as so many runs of equal ones. */
enum { COUNTS = 'c', BUFFER = 'b', MOST_COUNTS = 16384, MOST_RUNS = 256 };
enum { STORED = 'w', TABLE = 't', NO_POINTER = '-', MOST_POINTERS = 4096 };

typedef struct counts {
    const int32_t *values;
    size_t n; /* 0: they are not known */
} counts;

static const char *copy_of(const char *text) { return strcpy(ph_allocate(strlen(text) + 1), text); }

/* `widths`: a character for each parameter: '4' or '8', the bytes of an integer that decides the work, 'c' for a
 * pointer to i32 that decide it, 'b' for one behind which so many bytes lie as decide it, or '-'. `written`: a
 * character for each parameter: 'w' for a pointer that the kernel stores through, 't' for one to a table of pointers
 * through which it stores, 'r' for another pointer, or '-'. `computed`, `nbytes`:
 * see ph_program. */
PH_EXPORT void phantora_kernel_program(void *function, const char *text, const char *widths, const char *written,
                                       uint32_t computed, const char *nbytes) {
    ph_kernel *kernel = ph_kernel_of(function);
    if (!kernel || kernel->program) return;
    ph_program *program = ph_allocate(sizeof *program);
    *program = (ph_program){ph_hash(ph_hash(3, text, strlen(text)), widths, strlen(widths)),
                            copy_of(text),
                            copy_of(widths),
                            computed,
                            copy_of(nbytes),
                            copy_of(written)};
    kernel->program = program; /* the kernel stays for as long as the process, and its program with it */
}

static int64_t value_of(char width, const void *parameter) {
    int32_t narrow;
    int64_t wide;
    if (width == '8') return memcpy(&wide, parameter, sizeof wide), wide;
    return memcpy(&narrow, parameter, sizeof narrow), narrow;
}

/* Returns the size in bytes of what is known from the pointer on, at most `most`. */
static size_t known_from(const void *start, size_t most, size_t item) {
    size_t low = 0;
    ph_data_wait(start, most);
    for (size_t high = most / item; low < high;) { /* the longest start of which every byte is known */
        size_t middle = (low + high + 1) / 2;
        if (ph_data_known(start, middle * item))
            low = middle;
        else
            high = middle - 1;
    }
    return low * item;
}

/* Returns the counts that are known from the pointer on: a tensor's counts, as what follows it in its block is not
 * known. Waits, in real time, for values that have yet to arrive. */
static counts counts_at(const void *parameter) {
    counts found = {0};
    memcpy(&found.values, parameter, sizeof found.values);
    if (!ph_is_device_pointer(found.values) || (uintptr_t)found.values % sizeof *found.values) return (counts){0};
    size_t most = ph_data_block_rest(found.values) / sizeof *found.values;
    if (most > MOST_COUNTS) most = MOST_COUNTS;
    found.n = known_from(found.values, most * sizeof *found.values, sizeof *found.values) / sizeof *found.values;
    return found;
}

/* Returns the bytes from the pointer to its block's end, rounded; 0 of a view, whose end is not known. */
static uint64_t behind(const void *parameter) {
    const void *to;
    memcpy(&to, parameter, sizeof to);
    if (!ph_is_device_pointer(to) || ph_data_block_start(to) != (uintptr_t)to) return 0;
    return ph_operands_rounded(ph_data_block_rest(to));
}

/* `VALUExTIMES+...`; the mean, rounded, where there are too many runs. Returns the characters written. */
static size_t tell_counts(counts known, char *text, size_t capacity) {
    size_t used = 0, runs = 0;
    int64_t sum = 0;
    for (size_t at = 0, end; at < known.n; at = end, runs++) {
        for (end = at + 1; end < known.n && known.values[end] == known.values[at];) end++;
        sum += (int64_t)known.values[at] * (int64_t)(end - at);
        if (runs < MOST_RUNS)
            used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId32 "x%zu", used ? "+" : "",
                                     known.values[at], end - at);
    }
    if (runs <= MOST_RUNS) return used;
    int64_t n = (int64_t)known.n;
    return (size_t)snprintf(text, capacity, "%" PRId64 "x%zu", (sum + n / 2) / n, known.n);
}

static void overwrite(const void *parameter, ph_stream *stream) {
    void *to;
    memcpy(&to, parameter, sizeof to);
    if (ph_is_device_pointer(to)) ph_overwrite_on(stream, to, ph_data_block_rest(to));
}

/* What the pointers of a table lead to is overwritten. Returns false if the table is not known. */
static bool overwrite_behind(const void *parameter, ph_stream *stream) {
    const char *table;
    memcpy(&table, parameter, sizeof table);
    if (!ph_is_device_pointer(table)) return false;
    size_t most = ph_data_block_rest(table), nbytes;
    if (most > MOST_POINTERS * sizeof(void *)) most = MOST_POINTERS * sizeof(void *);
    nbytes = known_from(table, most, sizeof(void *));
    for (size_t at = 0; at < nbytes; at += sizeof(void *)) overwrite(table + at, stream);
    return nbytes > 0;
}

void ph_program_overwrites(const ph_program *program, void *const *params, ph_stream *stream) {
    bool anywhere = false;
    for (size_t i = 0; params && program->written[i]; i++) {
        if (program->written[i] == STORED) overwrite(params[i], stream);
        if (program->written[i] == TABLE && !overwrite_behind(params[i], stream)) anywhere = true;
    }
    for (size_t i = 0; anywhere && program->written[i]; i++)
        if (program->written[i] != NO_POINTER) overwrite(params[i], stream);
}

static struct {
    int (*compute)(uint32_t number, const int64_t *values, int n); /* the grid's three, then the parameters */
    void (*store)(void);
} python;

PH_EXPORT void phantora_compute_programs(int (*compute)(uint32_t, const int64_t *, int), void (*store)(void)) {
    python.compute = compute;
    python.store = store;
}

/* A compiler that tries candidates launches them on the program's own tensors. */
static bool is_computed(const ph_program *program) { return program->computed && !ph_self()->uncounted; }

bool ph_program_compute(const ph_program *program, dim3 grid, void *const *params) {
    if (LIKELY(!is_computed(program)) || !params) return false;
    size_t nparams = strlen(program->nbytes);
    int64_t *values = ph_allocate((nparams + 3) * sizeof *values);
    values[0] = grid.x, values[1] = grid.y, values[2] = grid.z;
    for (size_t i = 0; i < nparams; i++) {
        int8_t byte;
        int16_t half;
        switch (program->nbytes[i]) {
        case '1':
            values[3 + i] = (memcpy(&byte, params[i], 1), byte);
            break;
        case '2':
            values[3 + i] = (memcpy(&half, params[i], 2), half);
            break;
        default:
            values[3 + i] = value_of(program->nbytes[i], params[i]);
        }
    }
    bool all_known = python.compute(program->computed, values, (int)nparams + 3);
    free(values);
    return all_known;
}

void ph_program_store(const ph_program *program) {
    if (UNLIKELY(is_computed(program))) python.store();
}

uint64_t ph_program_mix(const ph_program *program, void *const *params, uint64_t hash) {
    hash = ph_mix(hash, program->hash);
    for (size_t i = 0; params && program->widths[i]; i++) {
        if (program->widths[i] == COUNTS) {
            counts known = counts_at(params[i]);
            hash = ph_mix(hash, ph_hash(7, known.values, known.n * sizeof *known.values));
        } else if (program->widths[i] == BUFFER)
            hash = ph_mix(hash, behind(params[i]));
        else if (program->widths[i] != '-')
            hash = ph_mix(hash, (uint64_t)value_of(program->widths[i], params[i]));
    }
    return hash;
}

char *ph_program_arguments(const ph_program *program, void *const *params) {
    size_t nparams = strlen(program->widths), used = 0, capacity = nparams * LONGEST_INTEGER + 2;
    for (size_t i = 0; i < nparams; i++)
        if (program->widths[i] == COUNTS) capacity += (size_t)2 * MOST_RUNS * LONGEST_INTEGER;
    char *text = ph_allocate(capacity);
    text[used++] = '-'; /* of a kernel without parameters */
    for (size_t i = 0; i < nparams; i++) {
        used = i ? used : 0;
        if (i) text[used++] = ',';
        counts known = {0};
        if (params && program->widths[i] == COUNTS) known = counts_at(params[i]);
        if (known.n)
            used += tell_counts(known, text + used, capacity - used);
        else if (params && program->widths[i] == BUFFER)
            used += (size_t)snprintf(text + used, capacity - used, "%" PRIu64 "b", behind(params[i]));
        else if (params && program->widths[i] != '-' && program->widths[i] != COUNTS)
            used += (size_t)snprintf(text + used, capacity - used, "%" PRId64, value_of(program->widths[i], params[i]));
        else
            text[used++] = '-';
    }
    text[used] = 0;
    return text;
}
