/* Version numbers of the real libraries that are loaded in this process. */
#ifndef PHANTORA_VERSIONS_H
#define PHANTORA_VERSIONS_H

#include <stddef.h>

/*
 * PyTorch compares these numbers with the versions that it was built for and chooses code by them, so they must be
 * those of the installed wheels. The real libraries are loaded anyway, because libtorch_cuda links to them, and the
 * functions that are asked only return a constant. `otherwise` is returned if the library is not loaded, as in a C
 * test.
 */
size_t ph_real_version(const char *soname_pattern, const char *function, size_t otherwise); /* size_t f(void) */
int ph_real_version_out(const char *soname_pattern, const char *function, int otherwise);   /* int f(int *version) */

/*
 * The CUDA version that the process's libraries were built for, as CUDA numbers it: 12080. The device file may state
 * it. Some functions have other parameters, and some structs other members, in CUDA 13 than in CUDA 12: callers differ
 * by this number.
 */
int ph_runtime_version(void);

#endif
