/*
 * calls/: every hooked call by name and class. The lists stand beside each API (<api>/calls.def); lists.c makes the
 * accepted and refused calls and the table, lookup.c answers callers that ask for an address by name, versions.c asks
 * the real libraries for their version numbers.
 * Comes in: the lists. Goes out: entry points.
 */
#ifndef PHANTORA_LOOKUP_H
#define PHANTORA_LOOKUP_H

/* Our definition of an API symbol by name, NULL if we have none (cudaGetDriverEntryPoint, cuGetProcAddress, dlsym). */
void *ph_symbol(const char *name);

#endif
