/*
 * Who opens a CUDA library by a path, or by a name that no loaded library has, gets the hook library's functions. The
 * dynamic linker compares a path with files that are loaded, not with their names, so a stand-in that has the name of
 * the real library is not found; and what a program asks a handle for is searched in that library first.
 *
 * Comes in: the libraries, from the hook library (process/process.c); calls of dlopen of the whole process, since this
 * library comes before the C library. Goes out: the C library's handles.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { MOST = 16, HASHED = 8 };

static struct {
    char name[32];   /* the file name up to its version: `libnccl.so`, with that end */
    char ours[4096]; /* what is opened instead */
    char only[32];   /* the one version that a name without a folder finds; empty: each */
} libraries[MOST];
static atomic_size_t n; /* written by one thread, in the forker */

/* From now on who opens a library of this name, of any version and in any folder, gets the other one. Without a folder
 * the loader is asked for versions other than `only`, if that is told: it finds those that are installed. */
__attribute__((visibility("default"))) void phantora_open_instead(const char *name, const char *ours,
                                                                  const char *only) {
    size_t at = n;
    if (at == MOST || strlen(name) >= sizeof libraries[at].name || strlen(ours) >= sizeof libraries[at].ours) return;
    if (strlen(only) >= sizeof libraries[at].only) return;
    strcpy(libraries[at].name, name);
    strcpy(libraries[at].ours, ours);
    strcpy(libraries[at].only, only);
    n = at + 1;
}

/* Returns how much of a file's name comes before its version, if it is that of the library; 0 if it is another's. A
 * wheel that brings a library of its own puts a hash into its name: `libcudart.faf08d9a.so.13`. */
static size_t length_of_name(const char *base, const char *name) {
    static const char END[] = ".so";
    size_t stem = strlen(name) - strlen(END), length = stem;
    if (strncmp(base, name, stem) != 0) return 0;
    if ((base[stem] == '.' || base[stem] == '-') && strspn(base + stem + 1, "0123456789abcdef") == HASHED)
        length += 1 + HASHED;
    if (strncmp(base + length, END, strlen(END)) != 0) return 0;
    length += strlen(END);
    return base[length] == 0 || base[length] == '.' ? length : 0;
}

static const char *instead_of(const char *path, int mode) {
    const char *slash = path ? strrchr(path, '/') : NULL, *base = slash ? slash + 1 : path;
    if (!path || (slash && mode & RTLD_NOLOAD)) return path; /* is this very file loaded? */
    for (size_t i = 0, known = n; i < known; i++) {
        size_t length = length_of_name(base, libraries[i].name);
        if (!length) continue;
        bool another = !slash && libraries[i].only[0] && base[length] && strcmp(base, libraries[i].only) != 0;
        return another ? path : libraries[i].ours;
    }
    return path;
}

/* The real function looks at its return address, to search where the caller's library says: this must be a jump, which
 * -O2 makes of it. */
__attribute__((visibility("default"))) void *dlopen(const char *path, int mode) {
    static void *(*real)(const char *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return real(instead_of(path, mode), mode);
}
