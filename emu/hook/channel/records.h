/*
 * C structs of the records, made from records.def: struct ph_SEGMENT and the constant PH_KIND_SEGMENT, PH_SCOPE_STREAM
 * ...
 */
#ifndef PHANTORA_RECORDS_H
#define PHANTORA_RECORDS_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t ph_u32;
typedef int32_t ph_i32;
typedef uint64_t ph_u64;
typedef int64_t ph_i64;
typedef double ph_f64;

#define F(type, name) ph_##type name;
#define STRUCT(NAME, ...)                                                                                              \
    struct ph_##NAME {                                                                                                 \
        __VA_ARGS__                                                                                                    \
    };
#define RECORD_VERSION(n) enum { PH_RECORD_VERSION = n };
#define UP(NAME, number, ...)                                                                                          \
    enum { PH_KIND_##NAME = number };                                                                                  \
    STRUCT(NAME, ##__VA_ARGS__)
#define ASK(NAME, number, REPLY, ...)                                                                                  \
    enum { PH_KIND_##NAME = number };                                                                                  \
    STRUCT(NAME, ##__VA_ARGS__)
#define DOWN(NAME, number, ...)                                                                                        \
    enum { PH_KIND_##NAME = number };                                                                                  \
    STRUCT(NAME, ##__VA_ARGS__)
#define ENUM(NAME, VALUE, number) enum { PH_##NAME##_##VALUE = number };
#include "../../contract/records.def"
#undef F
#undef STRUCT
#undef RECORD_VERSION
#undef UP
#undef ASK
#undef DOWN
#undef ENUM

/* Headers of the two directions; last is host_ns upward, the question's qid downward, where site is 0. */
struct ph_header {
    uint16_t kind, site;
    uint32_t nbytes; /* header, fields and payload; zeros follow up to a multiple of 8, counted or not */
    uint64_t last;
};

#endif
