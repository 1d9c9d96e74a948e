/*
 * calls/: every hooked call by name and class. The lists stand beside each API (<api>/calls.def); lists.c makes the
 * accepted and refused calls and the table, lookup.c answers callers that ask for an address by name.
 * Comes in: the lists. Goes out: entry points.
 */
#ifndef PHANTORA_LISTS_H
#define PHANTORA_LISTS_H

#include <stddef.h>

/* Made from the lists. */
enum { PH_CALL_EMULATED, PH_CALL_ACCEPTED, PH_CALL_REFUSED };

typedef struct ph_call {
    const char *name;
    void *address;
    unsigned char class;
} ph_call;

extern const ph_call ph_calls[];
extern const size_t ph_ncalls;

#endif
