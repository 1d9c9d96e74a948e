/* The table of hooked calls, which lists.c makes from the lists. ph_symbol looks names up in it. */
#ifndef PHANTORA_LISTS_H
#define PHANTORA_LISTS_H

#include <stddef.h>

enum { PH_CALL_EMULATED, PH_CALL_ACCEPTED, PH_CALL_REFUSED };

typedef struct ph_call {
    const char *name;
    void *address;
    unsigned char class;
} ph_call;

extern const ph_call ph_calls[];
extern const size_t ph_ncalls;

#endif
