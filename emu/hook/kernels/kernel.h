/*
 * kernels/: the kernels of the program. Their registration (registry), modules that are loaded at run time (module),
 * programs of Triton's kernels (program), what those of other libraries may write (stores), how element-wise ones walk
 * over their operands (layout), how large operands are (operands), from and to which size others scale images (images),
 * for which GPUs they were compiled (architectures), their launch (launch), their attributes and occupancy (occupancy);
 * launches of the math libraries (library). Comes in: registrations by nvcc's stubs, cubins, launches from cudart/ and
 * driver/, calls of the math libraries. Goes out: launches to streams/.
 */
#ifndef PHANTORA_KERNEL_H
#define PHANTORA_KERNEL_H

#include "cuda/types.h"
#include "streams/stream.h"
#include "threads/thread.h"

typedef struct ph_program ph_program;

/* Compute capabilities, as 90 for 9.0: of the machine code that runs, and of the PTX that it was compiled from. */
typedef struct ph_architecture {
    int binary, ptx;
} ph_architecture;

/* The device code of one source file, as its library registers it. */
typedef struct ph_fatbin {
    const void *code; /* NULL: of a form that is not known, or its library is gone */
} ph_fatbin;

typedef struct ph_kernel {
    uint32_t magic;
    _Atomic uint32_t number; /* among those that have been launched, in order of their first launch; 0: it has not */
    int max_dynamic_shared, carveout, registers, static_shared, local_nbytes, nonportable;
    uint64_t name_hash;
    const char *name;
    const ph_program *program;    /* program.h; NULL: the kernel is known by its name alone */
    const char *stores;           /* stores.c; NULL: not read yet */
    const char *kinds;            /* of its parameters, stores.c; NULL: not read yet */
    bool peers;                   /* peers.h: it works on memory of several processes */
    bool has_layout;              /* layout.c: its operands need not be dense */
    int operands;                 /* layout.c; 0: not read yet */
    int images;                   /* images.c: its parameter from which on they stand; -1: it has none */
    const ph_fatbin *fatbin;      /* architectures.c: of a kernel that a library registered */
    ph_architecture architecture; /* of one in a module; 0: not known */
} ph_kernel;
enum { PH_KERNEL_MAGIC = 0x4b524e4c };

/* Limits that are the same on all GPUs. */
enum {
    PH_WARP_THREADS = 32,
    PH_MAX_BLOCK_THREADS = 1024,
    PH_MAX_BLOCK_Z = 64,
    PH_MAX_GRID_YZ = 65535,
    PH_SHARED_WITHOUT_OPTIN = 48 << 10, /* more dynamic shared memory needs cudaFuncSetAttribute first */
};

/* params: the addresses of the kernel's parameters, or NULL. */
int ph_kernel_launch(ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes, ph_stream *stream,
                     void *const *params);
/* Returns whether all blocks of a cooperative grid fit, which must be resident at once: CUDA_OK, or
 * CUDA_COOPERATIVE_TOO_LARGE. */
int ph_cooperative_fits(const ph_kernel *kernel, dim3 grid, dim3 block, size_t shared_nbytes);

void ph_kernel_attributes(const ph_kernel *kernel, struct cudaFuncAttributes *out);
int ph_kernel_set_attribute(ph_kernel *kernel, int attribute, int value);
int ph_kernel_attribute(const ph_kernel *kernel, int attribute, int *value);
int ph_occupancy_blocks(const ph_kernel *kernel, int block_threads, size_t dynamic_shared);
/* Clusters of the size that a launch's attributes say, on the whole GPU; -1: a size of 0. */
int ph_occupancy_clusters(const ph_kernel *kernel, int block_threads, size_t dynamic_shared, const void *attributes,
                          unsigned nattributes);

/* ---- program.c: kernels that Triton compiled, whose cost depends on what the program does ------------------------ */
struct ph_program {
    uint64_t hash; /* of text and widths */
    const char *text, *widths;
    uint32_t computed;   /* the program's number for emu/compiled, which computes what it stores; 0: it does not */
    const char *nbytes;  /* of each parameter, a character */
    const char *written; /* a character for each parameter: how the kernel stores through it (program.c) */
};

/* Around a launch's ph_program_overwrites: computes what the kernel stores, and stores it. The first returns whether it
 * is known where the kernel stores: then nothing else is overwritten. */
bool ph_program_compute(const ph_program *program, dim3 grid, void *const *params);
void ph_program_store(const ph_program *program);
/* Makes what the kernel's stores may have written unknown. */
void ph_program_overwrites(const ph_program *program, void *const *params, ph_stream *stream);
/* Mixes the values of the parameters that decide the work into `hash`. params: as cuLaunchKernel gets them. */
uint64_t ph_program_mix(const ph_program *program, void *const *params, uint64_t hash);
/* Writes these values, as a `triton` signature has them (emu/contract/signature.def). The caller frees the text. */
char *ph_program_arguments(const ph_program *program, void *const *params);

/* ---- layout.c: how element-wise kernels walk over operands that are not dense ------------------------------------ */
enum { PH_MOST_DIMS = 25, PH_MOST_OPERANDS = 8, PH_LAYOUT_CHARACTERS = 12 * PH_MOST_DIMS * PH_MOST_OPERANDS };

typedef struct ph_layout {
    uint32_t dims, operands, extent[PH_MOST_DIMS];     /* the innermost dimension first */
    uint32_t strides[PH_MOST_DIMS * PH_MOST_OPERANDS]; /* in bytes, of all operands by dimension, the output first */
} ph_layout;

bool ph_has_layout(const char *mangled);
/* Finds the layout of a launch's operands. Returns false where all operands are dense or repeated along the
 * innermost dimension, and where it is not known. */
bool ph_layout_of(ph_kernel *kernel, void *const *params, ph_layout *out);
uint64_t ph_layout_mix(const ph_layout *layout, uint64_t hash);
/* Writes the strides in the form of a `strided` signature (emu/contract/signature.def). */
void ph_layout_strides(const ph_layout *layout, char *text, size_t capacity);

/* ---- images.c: the gradient of an upsampling, whose op does not tell from which size ----------------------------- */
typedef struct ph_images {
    int32_t before[2], after[2]; /* height and width */
} ph_images;

/* The first of a kernel's four parameters that are sizes of images; -1: it has none. */
int ph_images_at(const char *mangled);
/* Finds the sizes of images. Returns false where there are no parameters. */
bool ph_images_of(const ph_kernel *kernel, void *const *params, ph_images *out);

/* ---- lengths.c: how long the sequences of an attention are ------------------------------------------------------- */
/* Reads the lengths and counts what attention computes. Returns false if they are not known. Waits, in real time, for
 * values that have yet to arrive. */
bool ph_sequences_of(const ph_lengths *lengths, ph_sequences *out);

/* ---- stores.c: what launches may write to that belong to no operation of ATen ------------------------------------ */
/* The blocks behind the launch's pointers are unknown. params: as cuLaunchKernel gets them. */
void ph_kernel_stores(ph_kernel *kernel, void *const *params, ph_stream *stream);
/* The readable name, which the caller frees; NULL if there is none. */
char *ph_demangled(const char *name);
/* Kinds of parameters: a pointer that the kernel may store through, one to const, an integer of 32 and of 64 bits,
 * another number, a struct. */
enum {
    PH_PARAMETER_WRITTEN = 'w',
    PH_PARAMETER_CONST = 'c',
    PH_PARAMETER_INT = 'i',
    PH_PARAMETER_LONG = 'l',
    PH_PARAMETER_NUMBER = '-',
    PH_PARAMETER_STRUCT = 's'
};
enum { PH_MOST_PARAMETERS = 256 };
/* A character for each parameter; NULL: the name tells no types. */
const char *ph_parameter_kinds(ph_kernel *kernel);
/* Words from an address on, as many as can be read. */
size_t ph_words_at(const void *address, uintptr_t *out, size_t most);

/* ---- operands.c: what parameters tell of the operands of a kernel that no model knows by its grid ------------------
 */
enum { PH_MOST_BUFFERS = 24, PH_MOST_NUMBERS = 16, PH_OPERANDS_CHARACTERS = 22 * PH_MOST_BUFFERS };
enum { PH_TENSOR_MAP = 0x7068746d };

typedef struct ph_operands {
    uint32_t n, numbers;
    uint64_t nbytes[PH_MOST_BUFFERS], number[PH_MOST_NUMBERS];
    bool view[PH_MOST_BUFFERS]; /* the pointer does not begin the block */
} ph_operands;

/* Finds a launch's operands. Returns false if nothing is known of them. params: as cuLaunchKernel gets them. */
bool ph_operands_of(ph_kernel *kernel, void *const *params, ph_operands *out);
/* Rounds up to some 3 %, so that operands that differ little share a signature. */
uint64_t ph_operands_rounded(uint64_t nbytes);
uint64_t ph_operands_mix(const ph_operands *operands, uint64_t hash);
/* Write the operands in the form of a `sized` signature (emu/contract/signature.def). */
void ph_operands_numbers(const ph_operands *operands, char *text, size_t capacity);
void ph_operands_buffers(const ph_operands *operands, char *text, size_t capacity);

#endif
