/* The programs of kernels that Triton compiled: their cost depends on what the program does, not on the kernel's name.
 */
#ifndef PHANTORA_PROGRAM_H
#define PHANTORA_PROGRAM_H

#include "kernels/kernel.h"

struct ph_program {
    uint64_t hash; /* of text and widths */
    const char *text, *widths;
    const char *written; /* a character for each parameter: 'w' if the kernel stores through this pointer */
};

/* What the kernel's stores may have written is unknown afterwards. */
void ph_program_overwrites(const ph_program *program, void *const *params, ph_stream *stream);
/* Mixes the values of the parameters that decide the work into `hash`. params: as cuLaunchKernel gets them. */
uint64_t ph_program_mix(const ph_program *program, void *const *params, uint64_t hash);
/* Writes these values, as a `triton` signature has them (emu/contract/signature.def). The caller frees the text. */
char *ph_program_arguments(const ph_program *program, void *const *params);

#endif
