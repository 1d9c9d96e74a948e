/* The text of cost signatures: one function for each type of field, and from signature.def one for each kind. */
#include "costs/signature.h"

#include <stdio.h>

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */
static const struct {
    const char *name;
    unsigned nbits;
} dtypes[] = {
#define DTYPE(NAME, text, nbits, cuda, cudnn) {#text, nbits},
#include "../../contract/signature.def"
};

/* The label of a dtype that the library has no number for: one that no caller's number can be. */
#define LABEL(NAME, number) ((number) >= 0 ? (int64_t)(number) : INT64_MIN + PH_DTYPE_##NAME)

ph_dtype ph_dtype_of_cuda(int number) {
    switch ((int64_t)number) {
#define DTYPE(NAME, text, nbits, cuda, cudnn)                                                                          \
    case LABEL(NAME, cuda):                                                                                            \
        return PH_DTYPE_##NAME;
#include "../../contract/signature.def"
    }
    return PH_DTYPE_OTHER;
}

ph_dtype ph_dtype_of_cudnn(int number) {
    switch ((int64_t)number) {
#define DTYPE(NAME, text, nbits, cuda, cudnn)                                                                          \
    case LABEL(NAME, cudnn):                                                                                           \
        return PH_DTYPE_##NAME;
#include "../../contract/signature.def"
    }
    return PH_DTYPE_OTHER;
}

const char *ph_dtype_name(ph_dtype dtype) { return dtypes[dtype].name; }

uint64_t ph_dtype_nbytes(ph_dtype dtype, uint64_t items) { return (items * dtypes[dtype].nbits + 7) / 8; }

/* ---- fields ------------------------------------------------------------------------------------------------------ */
typedef struct line {
    char *text;
    size_t used, capacity; /* used counts on where the text no longer fits */
} line;

static void put_char(line *out, char c) {
    if (out->used < out->capacity) out->text[out->used] = c;
    out->used++;
}

static void put_word(line *out, const char *word) {
    while (*word) put_char(out, *word++);
}

/* Text of the program's may hold the separator of fields, or the tab and the line ends that split a table. */
static void put_text(line *out, const char *text) {
    for (; text && *text; text++) put_char(out, *text == ';' ? ',' : (unsigned char)*text < ' ' ? ' ' : *text);
}

static void put_op(line *out, const char *name) { put_text(out, name); }
static void put_sizes(line *out, const char *sizes) { put_text(out, sizes); }
static void put_bool(line *out, bool value) { put_char(out, value ? '1' : '0'); }
static void put_dtype(line *out, ph_dtype dtype) { put_word(out, ph_dtype_name(dtype)); }

static void put_u64(line *out, uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put_word(out, digits);
}

static void put_grid(line *out, ph_field_grid grid) {
    put_u64(out, grid.x);
    put_char(out, ',');
    put_u64(out, grid.y);
    put_char(out, ',');
    put_u64(out, grid.z);
}

/* A negative one is the program's mistake: the cost model says so. */
static void put_dims(line *out, ph_field_dims dims) {
    for (int64_t i = 0; i < dims.n; i++) {
        if (i) put_char(out, 'x');
        if (dims.at[i] < 0) put_char(out, '-');
        put_u64(out, dims.at[i] < 0 ? -(uint64_t)dims.at[i] : (uint64_t)dims.at[i]);
    }
}

static void put_dims3(line *out, ph_field_dims dims) { put_dims(out, dims); }
static void put_dims4(line *out, ph_field_dims dims) { put_dims(out, dims); }

/* ---- words and flags --------------------------------------------------------------------------------------------- */
#define W(NAME, number, text)                                                                                          \
    case number:                                                                                                       \
        put_word(out, #text);                                                                                          \
        return;
#define WORDS(set, ...)                                                                                                \
    static void put_##set(line *out, unsigned value) {                                                                 \
        switch (value) { __VA_ARGS__ }                                                                                 \
        put_word(out, "other");                                                                                        \
    }
#define OPEN_WORDS WORDS
#include "../../contract/signature.def"

static void put_flag(line *out, const char *name, bool first) {
    if (!first) put_char(out, '_');
    put_word(out, name);
}

#define W(NAME, bit, text)                                                                                             \
    if (left & (bit)) {                                                                                                \
        put_flag(out, #text, none);                                                                                    \
        none = false;                                                                                                  \
        left &= ~(unsigned)(bit);                                                                                      \
    }
#define FLAGS(set, ...)                                                                                                \
    static void put_##set(line *out, unsigned value) {                                                                 \
        unsigned left = value & ~1u;                                                                                   \
        bool none = true;                                                                                              \
        __VA_ARGS__                                                                                                    \
        if (left)                                                                                                      \
            put_flag(out, "other", none);                                                                              \
        else if (none)                                                                                                 \
            put_word(out, "default");                                                                                  \
    }
#include "../../contract/signature.def"

/* ---- kinds ------------------------------------------------------------------------------------------------------- */
#define FIELD(type, name)                                                                                              \
    put_char(&out, ';');                                                                                               \
    put_##type(&out, it->name);
#define FAMILY FIELD
#define SIGNATURE(kind, about, ...)                                                                                    \
    size_t ph_format_##kind(const ph_signature_##kind *it, char *text, size_t capacity) {                              \
        line out = {text, 0, capacity};                                                                                \
        put_word(&out, #kind);                                                                                         \
        __VA_ARGS__                                                                                                    \
        return out.used;                                                                                               \
    }
#include "../../contract/signature.def"
