/* Modules that programs load at run time. */
#ifndef PHANTORA_MODULE_H
#define PHANTORA_MODULE_H

#include "kernels/kernel.h"

int ph_module_load(const void *image, void **module);
int ph_module_load_file(const char *path, void **module);
int ph_module_unload(void *module);
int ph_module_function(void *module, const char *name, ph_kernel **out);

#endif
