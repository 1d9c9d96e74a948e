/* Version numbers that a real library of this process tells of itself. */
#ifndef PHANTORA_VERSIONS_H
#define PHANTORA_VERSIONS_H

#include <stddef.h>

/*
 * PyTorch compares the versions it was built with against the ones it runs with, and chooses code by them, so the hook
 * must tell those of the wheels that are installed. The real libraries are loaded anyway (libtorch_cuda names them) and
 * these functions of theirs only return a constant. If a library is not loaded (a C test), `otherwise` is returned.
 */
size_t ph_real_version(const char *soname_pattern, const char *function, size_t otherwise); /* size_t f(void) */
int ph_real_version_out(const char *soname_pattern, const char *function, int otherwise);   /* int f(int *version) */
int ph_real_property(const char *soname_pattern, const char *function, int property,
                     int otherwise); /* int f(int property, int *value) */

#endif
