/* See versions.h. */
#define _GNU_SOURCE
#include "device/versions.h"
#include "core/lock.h"
#include "core/config.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* A folder with a slash at its end, of a library's path. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

typedef struct search {
    const char *pattern, *ours; /* the path of this library, beside which shells of others' names lie */
    char path[4096];
} search;

static int match(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    search *it = arg;
    size_t folder = folder_length(info->dlpi_name);
    const char *base = info->dlpi_name + folder;
    if (strncmp(base, it->pattern, strlen(it->pattern)) != 0 || strlen(info->dlpi_name) >= sizeof it->path) return 0;
    if (folder == folder_length(it->ours) && strncmp(info->dlpi_name, it->ours, folder) == 0) return 0;
    strcpy(it->path, info->dlpi_name);
    return 1;
}

/* The function of the loaded library whose file name begins with the pattern. The process's own search would find the
 * definition in this library first. */
static void *real_function(const char *pattern, const char *function) {
    Dl_info about;
    search it = {.pattern = pattern, .ours = ""};
    if (dladdr((void *)(uintptr_t)&real_function, &about) && about.dli_fname) it.ours = about.dli_fname;
    if (!dl_iterate_phdr(match, &it)) return NULL;
    void *library = dlopen(it.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) return NULL;
    void *address = dlsym(library, function);
    dlclose(library);
    return address;
}

/* The major version of the runtime that a loaded library is linked with: the real one is not loaded for it, since a
 * shell of this library has its name. */
static int needed_major(struct dl_phdr_info *info, size_t size, void *major) {
    static const char RUNTIME[] = "libcudart.so.";
    (void)size;
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const char *strings = NULL;
    for (const ElfW(Dyn) *at = dynamic; at && at->d_tag != DT_NULL; at++)
        if (at->d_tag == DT_STRTAB && at->d_un.d_ptr >= info->dlpi_addr) strings = (const char *)at->d_un.d_ptr;
    for (const ElfW(Dyn) *at = dynamic; strings && at->d_tag != DT_NULL; at++) {
        if (at->d_tag != DT_NEEDED) continue;
        const char *name = strings + at->d_un.d_val;
        if (strncmp(name, RUNTIME, sizeof RUNTIME - 1) == 0) *(int *)major = atoi(name + sizeof RUNTIME - 1);
    }
    return *(int *)major != 0;
}

/* The answers. Each version is asked once, in the forker if possible: cuDNN loads another large library to answer,
 * which ranks then share. */
enum { MAX_ANSWERS = 16 };

static struct {
    int n;
    struct {
        const char *function;
        size_t value;
    } answers[MAX_ANSWERS];
} known;

typedef size_t (*ask_real)(void *address, size_t otherwise);

static size_t once(const char *pattern, const char *function, size_t otherwise, ask_real ask) {
    ph_lock(PH_LOCK_VERSIONS);
    int i = 0;
    while (i < known.n && strcmp(known.answers[i].function, function) != 0) i++;
    bool is_known = i < known.n;
    size_t value = is_known ? known.answers[i].value : otherwise;
    ph_unlock(PH_LOCK_VERSIONS);
    void *address = is_known ? NULL : real_function(pattern, function);
    if (!address) return value;
    value = ask(address, otherwise); /* without the lock: it may load a library */
    ph_lock(PH_LOCK_VERSIONS);
    if (known.n < MAX_ANSWERS) {
        known.answers[known.n].function = function;
        known.answers[known.n++].value = value;
    }
    ph_unlock(PH_LOCK_VERSIONS);
    return value;
}

static size_t returned(void *address, size_t otherwise) {
    (void)otherwise;
    return ((size_t (*)(void))address)();
}

static size_t written(void *address, size_t otherwise) {
    int value;
    return ((int (*)(int *))address)(&value) == 0 ? (size_t)value : otherwise;
}

size_t ph_real_version(const char *pattern, const char *function, size_t otherwise) {
    return once(pattern, function, otherwise, returned);
}

int ph_real_version_out(const char *pattern, const char *function, int otherwise) {
    return (int)once(pattern, function, (size_t)otherwise, written);
}

int ph_runtime_version(void) {
    enum { WITHOUT_A_LIBRARY = 13000, OF_A_MAJOR = 1000 };
    static _Atomic int needed; /* 0: not looked up, or nothing is linked with a runtime yet */
    if (ph_cfg.runtime_version) return ph_cfg.runtime_version;
    if (needed) return needed;
    int version = ph_real_version_out("libcudart", "cudaRuntimeGetVersion", 0), major = 0;
    if (version) return version;
    dl_iterate_phdr(needed_major, &major);
    needed = major * OF_A_MAJOR;
    return needed ? needed : WITHOUT_A_LIBRARY;
}
