/* What launches of kernels may write to that belong to no operation of ATen. See stores.c. */
#ifndef PHANTORA_STORES_H
#define PHANTORA_STORES_H

#include "kernels/kernel.h"

/* The blocks behind the launch's pointers are unknown. params: as cuLaunchKernel gets them. */
void ph_kernel_stores(ph_kernel *kernel, void *const *params, ph_stream *stream);

#endif
