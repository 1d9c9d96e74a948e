/* The programs of kernels that Triton compiled: their cost depends on what the program does, not on the kernel's name.
 */
#ifndef PHANTORA_PROGRAM_H
#define PHANTORA_PROGRAM_H

#include "kernels/kernel.h"

struct ph_program {
    uint64_t hash; /* of text and widths */
    const char *text, *widths;
    uint32_t computed;   /* the program's number for emu/compiled, which computes what it stores; 0: it does not */
    const char *nbytes;  /* of each parameter, a character */
    const char *written; /* a character for each parameter: 'w' if the kernel stores through this pointer */
};

/* Around a launch's ph_program_overwrites: computes what the kernel stores, and stores it. */
void ph_program_compute(const ph_program *program, dim3 grid, void *const *params);
void ph_program_store(const ph_program *program);
/* What the kernel's stores may have written is unknown afterwards. */
void ph_program_overwrites(const ph_program *program, void *const *params, ph_stream *stream);
/* Mixes the values of the parameters that decide the work into `hash`. params: as cuLaunchKernel gets them. */
uint64_t ph_program_mix(const ph_program *program, void *const *params, uint64_t hash);
/* Writes these values, as a `triton` signature has them (emu/contract/signature.def). The caller frees the text. */
char *ph_program_arguments(const ph_program *program, void *const *params);

#endif
