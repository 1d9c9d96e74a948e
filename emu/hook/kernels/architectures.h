/* Finds for which architectures a kernel was compiled, and which of them a GPU runs: 90 for compute capability 9.0. */
#ifndef PHANTORA_ARCHITECTURES_H
#define PHANTORA_ARCHITECTURES_H

#include "kernels/kernel.h"

/* The fat binary in what nvcc's stubs register, or in what a module is loaded from; NULL: there is none. */
const void *ph_fatbin_of(const void *image);
/* Returns the architecture in the fat binary that the described GPU runs. */
ph_architecture ph_architecture_of_fatbin(const void *fatbin);
/* image: a fat binary, a cubin or PTX. */
ph_architecture ph_architecture_of_module(const void *image);
/* Reads the kernel's fat binary each time: libraries hold hundreds, and hardly any is asked for. */
ph_architecture ph_architecture_of(const ph_kernel *kernel);

#endif
