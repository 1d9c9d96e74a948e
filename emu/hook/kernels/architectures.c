/*
 * For which architectures a kernel was compiled, and which of them a GPU runs.
 *
 * nvcc puts each source file's device code into one fat binary: a header (`magic, version, header's size, size of all
 * entries`), then entries. An entry is machine code (SASS, a cubin) or PTX for one architecture, most often compressed;
 * its own header tells which. CUDA takes the newest machine code of the GPU's major version that is not newer than the
 * GPU, else compiles the newest PTX that is not newer. That decides more than the code: CUB chooses a kernel's grid by
 * the `ptxVersion` of an empty kernel, and fails if it was not compiled for that one.
 */
#include "kernels/architectures.h"
#include "core/config.h"
#include "op_stream/warn.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRAPPER_MAGIC = 0x466243b1, FATBIN_MAGIC = 0xba55ed50, CUDA_MACHINE = 190 };
enum { PTX = 1, SASS = 2 };
enum { ONE_GPU = 1 << 20 }; /* a flag of sm_90a and the like, which run on that very version alone */

typedef struct fatbin_head {
    uint32_t magic;
    uint16_t version, head_nbytes;
    uint64_t nbytes; /* of the entries */
} fatbin_head;

typedef struct entry_head {
    uint16_t kind, version;
    uint32_t head_nbytes;
    uint64_t nbytes;
    uint32_t compressed_nbytes, options_at;
    uint16_t minor, major;
    uint32_t architecture, name_at, name_nbytes;
    uint64_t flags;
} entry_head;
_Static_assert(sizeof(entry_head) == 48 && offsetof(entry_head, architecture) == 28, "of nvcc");

static int capability(void) { return ph_cfg.cc_major * 10 + ph_cfg.cc_minor; }

const void *ph_fatbin_of(const void *image) {
    struct {
        uint32_t magic, version;
        const void *fatbin, *others;
    } wrapper;
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    if (magic == FATBIN_MAGIC) return image;
    if (magic != WRAPPER_MAGIC) return NULL;
    memcpy(&wrapper, image, sizeof wrapper);
    if (!wrapper.fatbin) return NULL;
    memcpy(&magic, wrapper.fatbin, sizeof magic);
    return magic == FATBIN_MAGIC ? wrapper.fatbin : NULL;
}

static bool runs(const entry_head *code, int on) {
    int made_for = (int)code->architecture;
    if (code->flags & ONE_GPU) return made_for == on;
    if (code->kind == PTX) return made_for <= on;
    return made_for / 10 == on / 10 && made_for <= on;
}

/* The fat binary has no code that the GPU runs. Real kernels fail there. Their times are still worth knowing (PyTorch
 * has warned already that it must be built otherwise), so they are those of the architecture that is the nearest. */
static ph_architecture nearest(int earlier, int later) {
    int chosen = earlier ? earlier : later;
    ph_warn_once("no code for this GPU",
                 "libraries of this environment have no code for a GPU of compute capability %d.%d: a real one ends "
                 "with \"no kernel image is available for execution on the device\". Times are those of a build that "
                 "has it, as the code for %d.%d is launched",
                 ph_cfg.cc_major, ph_cfg.cc_minor, chosen / 10, chosen % 10);
    return (ph_architecture){.binary = chosen, .ptx = chosen};
}

ph_architecture ph_architecture_of_fatbin(const void *fatbin) {
    fatbin_head head;
    memcpy(&head, fatbin, sizeof head);
    const unsigned char *at = (const unsigned char *)fatbin + head.head_nbytes, *end = at + head.nbytes;
    int on = capability(), sass = 0, ptx = 0, earlier = 0, later = 0;
    while (at + sizeof(entry_head) <= end) {
        entry_head code;
        memcpy(&code, at, sizeof code);
        uint64_t left = (uint64_t)(end - at);
        if (code.head_nbytes < sizeof code || code.head_nbytes > left || code.nbytes > left - code.head_nbytes) break;
        at += code.head_nbytes + code.nbytes;
        int made_for = (int)code.architecture;
        if (code.kind != SASS && code.kind != PTX) continue;
        if (made_for < on && made_for > earlier) earlier = made_for;
        if (made_for >= on && (!later || made_for < later)) later = made_for;
        int *best = code.kind == SASS ? &sass : &ptx;
        if (runs(&code, on) && made_for > *best) *best = made_for;
    }
    if (sass) return (ph_architecture){.binary = sass, .ptx = sass};
    if (ptx) return (ph_architecture){.binary = on, .ptx = ptx};
    return earlier || later ? nearest(earlier, later) : (ph_architecture){.binary = on, .ptx = on};
}

/* The flags of a cubin tell it. Up to version 7 of its binary interface they have a byte for the machine code and one
 * for the PTX that it was compiled from; from version 8 on they tell the machine code alone. */
static ph_architecture of_cubin(const void *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    int code = (int)(head.e_ident[EI_ABIVERSION] >= 8 ? head.e_flags >> 8 & 0xff : head.e_flags & 0xff);
    int ptx = (int)(head.e_ident[EI_ABIVERSION] >= 8 ? 0 : head.e_flags >> 16 & 0xff);
    if (head.e_machine != CUDA_MACHINE || !code) return (ph_architecture){.binary = capability(), .ptx = capability()};
    return (ph_architecture){.binary = code, .ptx = ptx ? ptx : code};
}

/* `.target sm_90a` of PTX, which ends with a zero byte. */
static int of_ptx(const char *text) {
    static const char TARGET[] = ".target sm_";
    const char *target = strstr(text, TARGET);
    return target ? atoi(target + sizeof TARGET - 1) : 0;
}

ph_architecture ph_architecture_of_module(const void *image) {
    const void *fatbin = ph_fatbin_of(image);
    if (fatbin) return ph_architecture_of_fatbin(fatbin);
    if (memcmp(image, ELFMAG, SELFMAG) == 0) return of_cubin(image);
    int on = capability(), found = of_ptx(image);
    return (ph_architecture){.binary = on, .ptx = found ? found : on};
}

ph_architecture ph_architecture_of(const ph_kernel *kernel) {
    if (kernel->fatbin && kernel->fatbin->code) return ph_architecture_of_fatbin(kernel->fatbin->code);
    if (kernel->architecture.binary) return kernel->architecture;
    return (ph_architecture){.binary = capability(), .ptx = capability()};
}
