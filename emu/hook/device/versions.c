/* See versions.h. */
#define _GNU_SOURCE
#include "device/versions.h"
#include "core/lock.h"
#include "core/config.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

typedef struct search {
    const char *pattern;
    char path[4096];
} search;

static int match(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    search *it = arg;
    const char *base = strrchr(info->dlpi_name, '/');
    base = base ? base + 1 : info->dlpi_name;
    if (strncmp(base, it->pattern, strlen(it->pattern)) != 0 || strlen(info->dlpi_name) >= sizeof it->path) return 0;
    strcpy(it->path, info->dlpi_name);
    return 1;
}

/* The function of the loaded library whose file name begins with the pattern. The process's own search would find the
 * definition in this library first. */
static void *real_function(const char *pattern, const char *function) {
    search it = {.pattern = pattern};
    if (!dl_iterate_phdr(match, &it)) return NULL;
    void *library = dlopen(it.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) return NULL;
    void *address = dlsym(library, function);
    dlclose(library);
    return address;
}

/* Each is asked once, in the forker if possible: cuDNN loads another large library to answer, which ranks then share.
 */
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
    enum { WITHOUT_A_LIBRARY = 13000 };
    if (ph_cfg.runtime_version) return ph_cfg.runtime_version;
    return ph_real_version_out("libcudart", "cudaRuntimeGetVersion", WITHOUT_A_LIBRARY);
}
