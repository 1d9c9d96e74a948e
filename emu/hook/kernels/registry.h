/* Kernels and variables known by their host addresses, and modules that programs load at run time. */
#ifndef PHANTORA_REGISTRY_H
#define PHANTORA_REGISTRY_H

#include "kernels/kernel.h"

ph_kernel *ph_kernel_of(const void *host_function); /* by address or handle; NULL if unknown */
ph_kernel *ph_kernel_make(const char *name);
void ph_register_kernel(const void *address, const char *name);
void ph_register_variable(const void *address, size_t nbytes);
int ph_variable_of(const void *symbol, void **address, size_t *nbytes);

/* ---- module.c ---------------------------------------------------------------------------------------------------- */
int ph_module_load(const void *image, void **module);
int ph_module_load_file(const char *path, void **module);
int ph_module_unload(void *module);
int ph_module_function(void *module, const char *name, ph_kernel **out);

#endif
