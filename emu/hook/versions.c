/* See versions.h. */
#define _GNU_SOURCE
#include "versions.h"

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

/* The function in the loaded library whose file name begins so; never our own definition, which precedes it in the
 * process. */
static void *real_function(const char *pattern, const char *function) {
    search it = {.pattern = pattern};
    if (!dl_iterate_phdr(match, &it)) return NULL;
    void *library = dlopen(it.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) return NULL;
    void *address = dlsym(library, function);
    dlclose(library);
    return address;
}

size_t ph_real_version(const char *pattern, const char *function, size_t otherwise) {
    size_t (*ask)(void) = (size_t (*)(void))real_function(pattern, function);
    return ask ? ask() : otherwise;
}

int ph_real_version_out(const char *pattern, const char *function, int otherwise) {
    int (*ask)(int *) = (int (*)(int *))real_function(pattern, function), value = otherwise;
    return ask && ask(&value) == 0 ? value : otherwise;
}

int ph_real_property(const char *pattern, const char *function, int property, int otherwise) {
    int (*ask)(int, int *) = (int (*)(int, int *))real_function(pattern, function), value = otherwise;
    return ask && ask(property, &value) == 0 ? value : otherwise;
}
