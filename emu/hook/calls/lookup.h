/*
 * calls/: every hooked call by name and class. The lists stand beside each API (<api>/calls.def); lists.c makes the
 * accepted and refused calls and the table, lookup.c answers callers that ask for an address by name, versions.c asks
 * the real libraries for their version numbers.
 * Comes in: the lists. Goes out: entry points.
 */
#ifndef PHANTORA_LOOKUP_H
#define PHANTORA_LOOKUP_H

/* The address of a hooked call by its name; NULL if the call is not hooked. */
void *ph_symbol(const char *name);

#endif
