/*
 * Modules that programs load at run time (Triton, Inductor, programs that use NVRTC). A cubin is an ELF file whose
 * sections tell its kernels, their registers and their shared memory. Of other images (PTX, fat binaries) only the
 * architecture is read: any kernel name is found in them.
 */
#include "core/alloc.h"
#include "device/device.h"
#include "kernels/architectures.h"
#include "kernels/registry.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_MAGIC = 0x4d4f4455, CUDA_MACHINE = 190 };

typedef struct function {
    ph_kernel *kernel;
    struct function *next;
} function;

typedef struct module {
    uint32_t magic;
    bool names_known;
    ph_architecture architecture;
    function *functions;
} module;

static function *find(const module *m, const char *name) {
    function *f = m->functions;
    while (f && strcmp(f->kernel->name, name) != 0) f = f->next;
    return f;
}

static function *add(module *m, const char *name) {
    function *f = ph_allocate(sizeof *f);
    *f = (function){.kernel = ph_kernel_make(name), .next = m->functions};
    f->kernel->architecture = m->architecture;
    m->functions = f;
    return f;
}

/* The section `.text.NAME` holds a kernel; the top byte of its sh_info is the number of registers. The size of
 * `.nv.shared.NAME` is the kernel's static shared memory. */
static void read_cubin(module *m, const unsigned char *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    const unsigned char *sections = image + head.e_shoff;
    Elf64_Shdr names, section;
    memcpy(&names, sections + (size_t)head.e_shstrndx * sizeof names, sizeof names);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < head.e_shnum; i++) {
            memcpy(&section, sections + (size_t)i * sizeof section, sizeof section);
            const char *name = (const char *)image + names.sh_offset + section.sh_name;
            if (pass == 0 && strncmp(name, ".text.", 6) == 0)
                add(m, name + 6)->kernel->registers = (int)(section.sh_info >> 24);
            if (pass == 1 && strncmp(name, ".nv.shared.", 11) == 0) {
                function *f = find(m, name + 11);
                if (f) f->kernel->static_shared = (int)section.sh_size;
            }
        }
    m->names_known = true;
}

static bool is_cubin(const unsigned char *image) {
    Elf64_Ehdr head;
    if (memcmp(image, ELFMAG, SELFMAG) != 0 || image[EI_CLASS] != ELFCLASS64) return false;
    memcpy(&head, image, sizeof head);
    return head.e_machine == CUDA_MACHINE && head.e_shentsize == sizeof(Elf64_Shdr) && head.e_shoff != 0;
}

int ph_module_load(const void *image, void **out) {
    *out = NULL;
    if (!image) return CUDA_INVALID_VALUE;
    int status = ph_device_usable();
    if (status) return status;
    module *m = ph_allocate(sizeof *m);
    m->magic = MODULE_MAGIC;
    m->architecture = ph_architecture_of_module(image);
    if (is_cubin(image)) read_cubin(m, image);
    *out = m;
    return CUDA_OK;
}

int ph_module_load_file(const char *path, void **out) {
    *out = NULL;
    FILE *file = fopen(path, "rbe");
    if (!file) return CUDA_FILE_NOT_FOUND;
    int status = CUDA_INVALID_IMAGE;
    fseek(file, 0, SEEK_END);
    long nbytes = ftell(file);
    rewind(file);
    unsigned char *image = nbytes > 0 ? malloc((size_t)nbytes + 64) : NULL;
    if (image && fread(image, 1, (size_t)nbytes, file) == (size_t)nbytes) {
        memset(image + nbytes, 0, 64);
        status = ph_module_load(image, out);
    }
    free(image);
    fclose(file);
    return status;
}

int ph_module_unload(void *handle) {
    module *m = handle;
    if (!m || m->magic != MODULE_MAGIC) return CUDA_INVALID_HANDLE;
    while (m->functions) { /* the kernels stay: a graph may still launch them */
        function *f = m->functions;
        m->functions = f->next;
        free(f);
    }
    m->magic = 0;
    free(m);
    return CUDA_OK;
}

int ph_module_function(void *handle, const char *name, ph_kernel **out) {
    *out = NULL;
    module *m = handle;
    if (!m || m->magic != MODULE_MAGIC) return CUDA_INVALID_HANDLE;
    function *f = find(m, name);
    if (!f && m->names_known) return CUDA_NOT_FOUND;
    *out = (f ? f : add(m, name))->kernel;
    return CUDA_OK;
}
