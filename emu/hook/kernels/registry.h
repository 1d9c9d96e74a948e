/* Kernels and variables known by their host addresses. */
#ifndef PHANTORA_REGISTRY_H
#define PHANTORA_REGISTRY_H

#include "kernels/kernel.h"

ph_kernel *ph_kernel_of(const void *host_function); /* by address or handle; NULL if unknown */
ph_kernel *ph_kernel_make(const char *name);
void ph_register_kernel(const void *address, const char *name);
void ph_register_variable(const void *address, size_t nbytes);
int ph_variable_of(const void *symbol, void **address, size_t *nbytes);

#endif
