/*
 * How PyTorch's `elementwise_kernel` walks over its operands: the kernel that it launches where they are not all dense.
 *
 * Its second parameter is a functor that begins with the sizes and strides of TensorIterator's loop, the innermost
 * dimension first (ATen/cuda/detail/OffsetCalculator.cuh): `int dims; struct {uint32_t divisor, magic, shift;}
 * sizes[25]; uint32_t strides[25][operands]`, in bytes, the output first, and goes on with `char *data[operands]`. How
 * many operands there are the kernel's name tells, by what it computes; that pointers follow where they should confirms
 * it.
 */
#include "kernels/kernel.h"
#include "core/hash.h"
#include "memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEM_NBYTES = 16, DIVIDER_NBYTES = 12, NOT_KNOWN = -1, UNREAD = 0 };

/* `at::native::elementwise_kernel<`; names of its relatives, which take dense operands, have other lengths. */
static const char NAME[] = "native18elementwise_kernelI";

bool ph_has_layout(const char *mangled) { return strstr(mangled, NAME) != NULL; }

/* Returns the length of the text from the functor's name up to the '>' that closes its list. */
static size_t length_of(const char *functor) {
    int depth = 0;
    size_t n = 0;
    for (; functor[n]; n++) {
        if (strchr("<([{", functor[n])) depth++;
        if (strchr(">)]}", functor[n]) && depth-- == 0) break;
    }
    return n;
}

/* Parameters of the last lambda in the text; NOT_KNOWN: there is none. */
static int lambda_inputs(const char *text, size_t n) {
    static const char LAMBDA[] = "{lambda(";
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, LAMBDA)) && at < text + n;) last = at += sizeof LAMBDA - 1;
    if (!last) return NOT_KNOWN;
    int depth = 0, commas = 0;
    for (const char *at = last; *at && !(*at == ')' && depth == 0); at++) {
        depth += strchr("<([", *at) ? 1 : strchr(">)]", *at) ? -1 : 0;
        commas += *at == ',' && depth == 0;
    }
    return *last == ')' ? 0 : commas + 1;
}

/* Outputs and inputs of the functor that a kernel applies; NOT_KNOWN: its name does not tell. */
static int operands_of(const char *mangled) {
    static const struct {
        const char *part;
        int inputs;
    } named[] = {{"FillFunctor", 0}, {"UnaryFunctor", 1},  {"OnSelf_add", 1},      {"OnOther_add", 1},
                 {"AbsFunctor", 1},  {"BinaryFunctor", 2}, {"CUDAFunctor_add", 2}, {"CompareFunctor", 2}};
    int inputs = NOT_KNOWN;
    char *text = ph_demangled(mangled);
    const char *found = text ? strstr(text, "gpu_kernel_impl") : NULL;
    const char *functor = found ? strchr(found, '<') : NULL;
    if (functor) {
        size_t n = length_of(++functor), head = strcspn(functor, "<");
        bool is_lambda = n && functor[n - 1] != '>' && memchr(functor, '{', n);
        if (is_lambda) inputs = lambda_inputs(functor, n);
        for (size_t i = 0; !is_lambda && i < sizeof named / sizeof *named; i++) {
            const char *part = strstr(functor, named[i].part);
            if (part && part < functor + (head < n ? head : n)) inputs = named[i].inputs;
        }
    }
    free(text);
    return inputs == NOT_KNOWN ? NOT_KNOWN : inputs + 1;
}

/* Is an operand read or written otherwise than item by item along the innermost dimension? */
static bool jumps(uint32_t nbytes) { return nbytes > MOST_ITEM_NBYTES || (nbytes & (nbytes - 1)); }

bool ph_layout_of(ph_kernel *kernel, void *const *params, ph_layout *out) {
    if (kernel->operands == UNREAD) kernel->operands = operands_of(kernel->name);
    if (kernel->operands < 1 || kernel->operands > PH_MOST_OPERANDS || !params) return false;
    const char *functor = params[1];
    uint32_t operands = (uint32_t)kernel->operands, strides[PH_MOST_DIMS * PH_MOST_OPERANDS];
    int32_t dims;
    memcpy(&dims, functor, sizeof dims);
    if (dims < 1 || dims > PH_MOST_DIMS) return false;
    /* ATen's OffsetCalculator: the number of dimensions, a divider for each size, the strides; then the operands'
     * pointers. */
    size_t behind_sizes = sizeof dims + (size_t)PH_MOST_DIMS * DIVIDER_NBYTES;
    size_t data = (behind_sizes + (size_t)PH_MOST_DIMS * operands * sizeof *strides + 7) & ~(size_t)7;
    for (uint32_t i = 0; i < operands; i++) {
        const void *pointer;
        memcpy(&pointer, functor + data + i * sizeof pointer, sizeof pointer);
        if (!ph_is_device_pointer(pointer)) return false;
    }
    memcpy(strides, functor + behind_sizes, (size_t)dims * operands * sizeof *strides);
    bool turned = false;
    for (uint32_t i = 0; i < operands; i++) turned |= jumps(strides[i]);
    if (!turned) return false;
    out->dims = (uint32_t)dims;
    out->operands = operands;
    for (int32_t d = 0; d < dims; d++) {
        uint32_t size;
        memcpy(&size, functor + sizeof dims + (size_t)d * DIVIDER_NBYTES, sizeof size);
        out->extent[d] = size;
    }
    memcpy(out->strides, strides, (size_t)dims * operands * sizeof *strides);
    return true;
}

uint64_t ph_layout_mix(const ph_layout *layout, uint64_t hash) {
    hash = ph_mix(hash, ph_hash(layout->operands, layout->extent, layout->dims * sizeof *layout->extent));
    return ph_mix(hash, ph_hash(6, layout->strides, layout->dims * layout->operands * sizeof *layout->strides));
}

void ph_layout_strides(const ph_layout *layout, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < layout->operands; i++)
        for (uint32_t d = 0; d < layout->dims && used < capacity; d++)
            used += (size_t)snprintf(text + used, capacity - used, "%s%u",
                                     d   ? "x"
                                     : i ? ","
                                         : "",
                                     layout->strides[d * layout->operands + i]);
}
