/*
 * C structs and constants made from records.def. Of the record SEGMENT: struct ph_SEGMENT and PH_KIND_SEGMENT. Of an
 * ENUM: PH_SCOPE_STREAM.
 */
#ifndef PHANTORA_RECORDS_H
#define PHANTORA_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t ph_u32;
typedef int32_t ph_i32;
typedef uint64_t ph_u64;
typedef int64_t ph_i64;
typedef double ph_f64;
typedef uint32_t ph_rank_number, ph_server_number, ph_stream_number, ph_device_number, ph_scoped_number;
typedef uint64_t ph_recording_number, ph_comm_number;
typedef int32_t ph_peer_number;

#define F(type, name) ph_##type name;
#define RECORD_VERSION(n) enum { PH_RECORD_VERSION = n };
#define STRUCT(NAME, ...)                                                                                              \
    struct ph_##NAME {                                                                                                 \
        __VA_ARGS__                                                                                                    \
    };
#define RECORD(NAME, number, ...)                                                                                      \
    enum { PH_KIND_##NAME = number };                                                                                  \
    STRUCT(NAME, ##__VA_ARGS__)
#define UP(NAME, number, payload, use, ...) RECORD(NAME, number, ##__VA_ARGS__)
#define ASK(NAME, number, payload, use, REPLY, ...) RECORD(NAME, number, ##__VA_ARGS__)
#define DOWN(NAME, number, payload, ...) RECORD(NAME, number, ##__VA_ARGS__)
#define WORDS(NAME, ...)
#define ENUM(NAME, VALUE, number) enum { PH_##NAME##_##VALUE = number };
#include "../../contract/records.def"
#undef F
#undef RECORD_VERSION
#undef STRUCT
#undef RECORD
#undef UP
#undef ASK
#undef DOWN
#undef WORDS
#undef ENUM

/* The header of both directions. To the coordinator `last` is host_ns; from it `last` is the question's qid and site 0.
 */
struct ph_header {
    uint16_t kind, site;
    uint32_t nbytes; /* of header, fields and payload; zeros up to a multiple of 8 follow, and may be counted */
    uint64_t last;
};

/* Does the definition have such a record, with fields and payload of so many bytes? */
static inline bool ph_record_fits(uint16_t kind, size_t nbytes) {
    enum { NO_PAYLOAD, PAYLOAD };
    switch (kind) {
#define RECORD_VERSION(n)
#define STRUCT(NAME, ...)
#define UP(NAME, number, payload, ...)                                                                                 \
    case number:                                                                                                       \
        return nbytes == sizeof(struct ph_##NAME) || (payload == PAYLOAD && nbytes > sizeof(struct ph_##NAME));
#define ASK UP
#define DOWN UP
#define WORDS(NAME, ...)
#define ENUM(NAME, VALUE, number)
#include "../../contract/records.def"
#undef RECORD_VERSION
#undef STRUCT
#undef UP
#undef ASK
#undef DOWN
#undef WORDS
#undef ENUM
    }
    return false;
}

/* Does the definition mark this kind of record, which a rank sends, with this word? */
static inline bool ph_record_is_marked(uint16_t kind, const char *word) {
    const char *marks = "";
    switch (kind) {
#define RECORD_VERSION(n)
#define STRUCT(NAME, ...)
#define UP(NAME, number, payload, use, ...)                                                                            \
    case number:                                                                                                       \
        marks = #use;                                                                                                  \
        break;
#define ASK UP
#define DOWN(NAME, ...)
#define WORDS(NAME, ...)
#define ENUM(NAME, VALUE, number)
#include "../../contract/records.def"
#undef RECORD_VERSION
#undef STRUCT
#undef UP
#undef ASK
#undef DOWN
#undef WORDS
#undef ENUM
    }
    return strstr(marks, word);
}

#endif
