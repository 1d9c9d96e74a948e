/*
 * Notes on which files a program depends on: what it looks at, reads, lists and writes, what it starts, and with whom
 * it talks. The forker loads this library before all others, so its notes cover Python, and libraries in C and Rust,
 * which call the same functions of the C library. All processes that are forked from it share the notes.
 *
 * Comes in: calls of the C library, which the real functions execute; where the notes go (emu/start/inputs.py). Goes
 * out: notes in a region of memory, which becomes a file of the run. phantora_async/known/notes.py reads it; `NOTES_*`
 * and the structures here are its format.
 *
 * No function here allocates memory, locks, or changes errno: callers are in signal handlers and between fork and exec,
 * too.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { NOTES_VERSION = 1, SLOTS = 1 << 17, MOST_TEXT = 4096 };
static const size_t REGION_NBYTES = (size_t)16 << 20;

/* What has been done with a path; the text of other notes begins with a letter and a colon. FIRST_WRITTEN: it was made
 * or emptied before anything else was done with it. IMPORT_LISTED: only the search for modules has listed it. */
enum flags {
    MISSING = 1,
    LOOKED = 2,
    READ = 4,
    LISTED = 8,
    IMPORT_LISTED = 16,
    WRITTEN = 32,
    REMOVED = 64,
    FIRST_WRITTEN = 128,
};

struct note {
    uint32_t hash;
    uint16_t n;
    _Atomic uint8_t flags;
    uint8_t unused;
    char text[];
};

struct region {
    uint32_t version, slots;
    _Atomic uint32_t used; /* bytes, from the region's beginning */
    _Atomic uint32_t full; /* 1: something was not noted */
    int64_t began_ns;      /* since 1970: whatever was read has been read after it */
    uint32_t imported; /* notes before this offset are of imports, which a warm interpreter has done before the run */
    uint32_t unused;
    _Atomic uint32_t at[SLOTS];
};

static struct region *notes;
static atomic_bool on;
/* This process runs a program of the user's. What it starts, with whom it talks and what it reads of the kernel is
 * noted only then: before, it is the emulation's own, or part of an installed package. */
static atomic_bool in_program;

static uint32_t hash_of(const char *text, size_t n) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static struct note *note_at(uint32_t offset) { return (struct note *)((char *)notes + offset); }

/* The note of this text, which is made if there is none. NULL: there is no room. */
static struct note *note_of(const char *text, size_t n, uint8_t first) {
    if (atomic_load(&notes->full)) return NULL; /* nothing will be kept, so the search in a full table can be spared */
    uint32_t hash = hash_of(text, n), made = 0;
    for (uint32_t i = hash, tried = 0; tried < SLOTS; i++, tried++) {
        _Atomic uint32_t *slot = &notes->at[i % SLOTS];
        uint32_t found = atomic_load(slot);
        if (!found) {
            if (!made) {
                size_t nbytes = (sizeof(struct note) + n + 7) & ~(size_t)7;
                made = atomic_fetch_add(&notes->used, nbytes);
                if (made + nbytes > REGION_NBYTES) break;
                struct note *one = note_at(made);
                one->hash = hash;
                one->n = n;
                atomic_store(&one->flags, first);
                memcpy(one->text, text, n);
            }
            if (atomic_compare_exchange_strong(slot, &found, made)) return note_at(made);
        }
        struct note *one = note_at(found);
        if (one->hash == hash && one->n == n && memcmp(one->text, text, n) == 0) return one;
    }
    atomic_store(&notes->full, 1);
    return NULL;
}

/* Notes a text that is no path, such as "E:/bin/ls". */
static void note_always(char kind, const char *text) {
    if (!atomic_load(&on) || !text) return;
    char whole[MOST_TEXT];
    size_t n = strnlen(text, MOST_TEXT - 2);
    whole[0] = kind;
    whole[1] = ':';
    memcpy(whole + 2, text, n);
    note_of(whole, n + 2, 0);
}

static void note_text(char kind, const char *text) {
    if (atomic_load(&in_program)) note_always(kind, text);
}

/* Writes the path as it begins at the root. Returns its length; 0: that is not known. */
static size_t whole_path(int folder, const char *path, char *to) {
    size_t n = strnlen(path, MOST_TEXT), before = 0;
    if (n == 0 || n >= MOST_TEXT) return 0;
    if (path[0] != '/') {
        long length;
        if (folder == AT_FDCWD) {
            length = syscall(SYS_getcwd, to, MOST_TEXT) - 1;
        } else {
            char link[32];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            length = syscall(SYS_readlinkat, AT_FDCWD, link, to, MOST_TEXT - 1);
        }
        if (length <= 0 || to[0] != '/' || length + n + 1 >= MOST_TEXT) return 0;
        before = length;
        if (before > 1) to[before++] = '/';
    }
    memcpy(to + before, path, n);
    return before + n;
}

static bool of_kernel(const char *path) {
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/dev/", 5) == 0;
}

/* The note of a path. `first`: the flags that it has if nothing was done with the path before. */
static struct note *note_path(int folder, const char *path, uint8_t first) {
    if (!atomic_load(&on) || !path) return NULL;
    int before = errno;
    char whole[MOST_TEXT];
    size_t n = whole_path(folder, path, whole);
    struct note *found = NULL;
    if (n && (atomic_load(&in_program) || !of_kernel(whole)))
        found = note_of(whole, n, first);
    else if (!n && path[0])
        atomic_store(&notes->full, 1);
    errno = before;
    return found;
}

static void add(struct note *note, uint8_t flags) {
    if (note && (atomic_load(&note->flags) & flags) != flags) atomic_fetch_or(&note->flags, flags);
}

/* What follows from a call's result. Nobody knows what would have been there if access was denied. */
static void add_result(struct note *note, bool good, uint8_t flags) {
    if (good)
        add(note, flags);
    else if (errno == ENOENT || errno == ENOTDIR)
        add(note, MISSING);
    else
        add(note, LOOKED);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

#define REAL(NAME)                                                                                                     \
    static __typeof__(NAME) *real;                                                                                     \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #NAME)

static bool makes_anew(int flags) { return flags & O_TRUNC || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL); }

static bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC); }

/* The note is made before a call that reads, and after one that makes the file: whoever reads what another process is
 * about to make has done so first. */
static struct note *before_open(int folder, const char *path, int flags) {
    return makes_anew(flags) ? NULL : note_path(folder, path, 0);
}

static void after_open(struct note *note, int folder, const char *path, int flags, bool good) {
    int before = errno;
    if (makes_anew(flags)) {
        note = note_path(folder, path, good ? FIRST_WRITTEN : 0);
        /* That O_EXCL succeeds says that there was no such file. */
        add_result(note, good, flags & O_EXCL ? WRITTEN | MISSING : WRITTEN);
    } else if (good) {
        uint8_t read = (flags & O_ACCMODE) == O_WRONLY ? 0 : READ;
        add(note, flags & O_PATH ? LOOKED : read | (writes(flags) ? WRITTEN : 0));
    } else {
        add_result(note, false, 0);
    }
    errno = before;
}

#define OPENS(NAME, PARAMETERS, FOLDER, ...)                                                                           \
    EXPORT int NAME PARAMETERS {                                                                                       \
        REAL(NAME);                                                                                                    \
        mode_t mode = 0;                                                                                               \
        if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                                     \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        struct note *note = before_open(FOLDER, path, flags);                                                          \
        int result = real(__VA_ARGS__, mode);                                                                          \
        after_open(note, FOLDER, path, flags, result >= 0);                                                            \
        return result;                                                                                                 \
    }

OPENS(open, (const char *path, int flags, ...), AT_FDCWD, path, flags)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, path, flags)
OPENS(openat, (int folder, const char *path, int flags, ...), folder, folder, path, flags)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, folder, path, flags)

/* Compilers call these for open without a mode; the C library's headers do not declare them. */
#define OPENS_CHECKED(NAME, PARAMETERS, FOLDER, ...)                                                                   \
    extern int NAME PARAMETERS;                                                                                        \
    EXPORT int NAME PARAMETERS {                                                                                       \
        REAL(NAME);                                                                                                    \
        struct note *note = before_open(FOLDER, path, flags);                                                          \
        int result = real(__VA_ARGS__);                                                                                \
        after_open(note, FOLDER, path, flags, result >= 0);                                                            \
        return result;                                                                                                 \
    }

OPENS_CHECKED(__open_2, (const char *path, int flags), AT_FDCWD, path, flags)
OPENS_CHECKED(__open64_2, (const char *path, int flags), AT_FDCWD, path, flags)
OPENS_CHECKED(__openat_2, (int folder, const char *path, int flags), folder, folder, path, flags)
OPENS_CHECKED(__openat64_2, (int folder, const char *path, int flags), folder, folder, path, flags)

#define CREATES(NAME)                                                                                                  \
    EXPORT int NAME(const char *path, mode_t mode) {                                                                   \
        REAL(NAME);                                                                                                    \
        int result = real(path, mode);                                                                                 \
        after_open(NULL, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, result >= 0);                                   \
        return result;                                                                                                 \
    }

CREATES(creat)
CREATES(creat64)

static int flags_of(const char *mode) {
    bool both = mode && strchr(mode, '+'), exclusive = mode && strchr(mode, 'x');
    switch (mode ? mode[0] : 'r') {
    case 'w':
        return (both ? O_RDWR : O_WRONLY) | O_CREAT | (exclusive ? O_EXCL : O_TRUNC);
    case 'a':
        return (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
    default:
        return both ? O_RDWR : O_RDONLY;
    }
}

#define OPENS_STREAM(NAME, PARAMETERS, ...)                                                                            \
    EXPORT FILE *NAME PARAMETERS {                                                                                     \
        REAL(NAME);                                                                                                    \
        int flags = flags_of(mode);                                                                                    \
        struct note *note = before_open(AT_FDCWD, path, flags);                                                        \
        FILE *result = real(__VA_ARGS__);                                                                              \
        after_open(note, AT_FDCWD, path, flags, result != NULL);                                                       \
        return result;                                                                                                 \
    }

OPENS_STREAM(fopen, (const char *path, const char *mode), path, mode)
OPENS_STREAM(fopen64, (const char *path, const char *mode), path, mode)
OPENS_STREAM(freopen, (const char *path, const char *mode, FILE *stream), path, mode, stream)
OPENS_STREAM(freopen64, (const char *path, const char *mode, FILE *stream), path, mode, stream)

#define LOOKS(TYPE, NAME, PARAMETERS, FOLDER, ...)                                                                     \
    EXPORT TYPE NAME PARAMETERS {                                                                                      \
        REAL(NAME);                                                                                                    \
        struct note *note = note_path(FOLDER, path, 0);                                                                \
        TYPE result = real(__VA_ARGS__);                                                                               \
        add_result(note, result >= 0, LOOKED);                                                                         \
        return result;                                                                                                 \
    }

LOOKS(int, stat, (const char *restrict path, struct stat *restrict to), AT_FDCWD, path, to)
LOOKS(int, stat64, (const char *restrict path, struct stat64 *restrict to), AT_FDCWD, path, to)
LOOKS(int, lstat, (const char *restrict path, struct stat *restrict to), AT_FDCWD, path, to)
LOOKS(int, lstat64, (const char *restrict path, struct stat64 *restrict to), AT_FDCWD, path, to)
LOOKS(int, fstatat, (int folder, const char *restrict path, struct stat *restrict to, int flags), folder, folder, path,
      to, flags)
LOOKS(int, fstatat64, (int folder, const char *restrict path, struct stat64 *restrict to, int flags), folder, folder,
      path, to, flags)
LOOKS(int, statx, (int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict to), folder,
      folder, path, flags, mask, to)
LOOKS(int, access, (const char *path, int mode), AT_FDCWD, path, mode)
LOOKS(int, euidaccess, (const char *path, int mode), AT_FDCWD, path, mode)
LOOKS(int, eaccess, (const char *path, int mode), AT_FDCWD, path, mode)
LOOKS(int, faccessat, (int folder, const char *path, int mode, int flags), folder, folder, path, mode, flags)
LOOKS(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t n), AT_FDCWD, path, to, n)
LOOKS(ssize_t, readlinkat, (int folder, const char *restrict path, char *restrict to, size_t n), folder, folder, path,
      to, n)

/* Programs that were built with an older C library call these. */
#define LOOKS_OF_OLD(NAME, PARAMETERS, FOLDER, ...)                                                                    \
    extern int NAME PARAMETERS;                                                                                        \
    LOOKS(int, NAME, PARAMETERS, FOLDER, __VA_ARGS__)

LOOKS_OF_OLD(__xstat, (int version, const char *path, struct stat *to), AT_FDCWD, version, path, to)
LOOKS_OF_OLD(__xstat64, (int version, const char *path, struct stat64 *to), AT_FDCWD, version, path, to)
LOOKS_OF_OLD(__lxstat, (int version, const char *path, struct stat *to), AT_FDCWD, version, path, to)
LOOKS_OF_OLD(__lxstat64, (int version, const char *path, struct stat64 *to), AT_FDCWD, version, path, to)
LOOKS_OF_OLD(__fxstatat, (int version, int folder, const char *path, struct stat *to, int flags), folder, version,
             folder, path, to, flags)
LOOKS_OF_OLD(__fxstatat64, (int version, int folder, const char *path, struct stat64 *to, int flags), folder, version,
             folder, path, to, flags)

EXPORT char *realpath(const char *restrict path, char *restrict to) {
    REAL(realpath);
    struct note *note = note_path(AT_FDCWD, path, 0);
    char *result = real(path, to);
    add_result(note, result != NULL, LOOKED);
    return result;
}

static _Thread_local bool import_lists; /* the next folder that this thread opens is listed by the search for modules */

EXPORT DIR *opendir(const char *path) {
    REAL(opendir);
    uint8_t listed = import_lists ? IMPORT_LISTED : LISTED;
    import_lists = false;
    struct note *note = note_path(AT_FDCWD, path, 0);
    DIR *result = real(path);
    add_result(note, result != NULL, listed);
    return result;
}

EXPORT DIR *fdopendir(int folder) {
    REAL(fdopendir);
    add(note_path(folder, ".", 0), LISTED);
    return real(folder);
}

/* Files that are named from this folder on are noted by the path that the kernel gives it. */
EXPORT int chdir(const char *path) {
    REAL(chdir);
    struct note *note = note_path(AT_FDCWD, path, 0);
    int result = real(path);
    add_result(note, result == 0, LOOKED);
    return result;
}

/* A folder that could be made was not there. */
static void after_making(int folder, const char *path, bool good) {
    int before = errno;
    struct note *note = note_path(folder, path, 0);
    add_result(note, good, WRITTEN | MISSING);
    errno = before;
}

EXPORT int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    int result = real(path, mode);
    after_making(AT_FDCWD, path, result == 0);
    return result;
}

EXPORT int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    int result = real(folder, path, mode);
    after_making(folder, path, result == 0);
    return result;
}

static void after_removing(int folder, const char *path, bool good) {
    int before = errno;
    add_result(note_path(folder, path, 0), good, REMOVED);
    errno = before;
}

#define REMOVES(NAME, PARAMETERS, FOLDER, ...)                                                                         \
    EXPORT int NAME PARAMETERS {                                                                                       \
        REAL(NAME);                                                                                                    \
        int result = real(__VA_ARGS__);                                                                                \
        after_removing(FOLDER, path, result == 0);                                                                     \
        return result;                                                                                                 \
    }

REMOVES(unlink, (const char *path), AT_FDCWD, path)
REMOVES(unlinkat, (int folder, const char *path, int flags), folder, folder, path, flags)
REMOVES(rmdir, (const char *path), AT_FDCWD, path)
REMOVES(remove, (const char *path), AT_FDCWD, path)

static void after_renaming(int from_folder, const char *from, int to_folder, const char *to, bool good) {
    after_removing(from_folder, from, good);
    int before = errno;
    if (good) add(note_path(to_folder, to, FIRST_WRITTEN), WRITTEN);
    errno = before;
}

EXPORT int rename(const char *from, const char *to) {
    REAL(rename);
    int result = real(from, to);
    after_renaming(AT_FDCWD, from, AT_FDCWD, to, result == 0);
    return result;
}

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    int result = real(from_folder, from, to_folder, to);
    after_renaming(from_folder, from, to_folder, to, result == 0);
    return result;
}

EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    REAL(renameat2);
    int result = real(from_folder, from, to_folder, to, flags);
    after_renaming(from_folder, from, to_folder, to, result == 0);
    return result;
}

EXPORT int symlink(const char *target, const char *path) {
    REAL(symlink);
    int result = real(target, path);
    after_making(AT_FDCWD, path, result == 0);
    return result;
}

EXPORT int link(const char *from, const char *path) {
    REAL(link);
    int result = real(from, path);
    after_making(AT_FDCWD, path, result == 0);
    return result;
}

/* ---- what files do not tell -------------------------------------------------------------------------------------- */

/* Whoever looks for a program in many folders tries each of them. */
static void note_program(const char *path) {
    int before = errno;
    if (!path || !strchr(path, '/') || syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0) note_text('E', path);
    errno = before;
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) {
    REAL(execve);
    note_program(path);
    return real(path, arguments, environment);
}

EXPORT int execv(const char *path, char *const arguments[]) {
    REAL(execv);
    note_program(path);
    return real(path, arguments);
}

EXPORT int execvp(const char *path, char *const arguments[]) {
    REAL(execvp);
    note_program(path);
    return real(path, arguments);
}

EXPORT int execvpe(const char *path, char *const arguments[], char *const environment[]) {
    REAL(execvpe);
    note_program(path);
    return real(path, arguments, environment);
}

EXPORT int fexecve(int file, char *const arguments[], char *const environment[]) {
    REAL(fexecve);
    note_text('E', arguments[0] ? arguments[0] : "");
    return real(file, arguments, environment);
}

#define SPAWNS(NAME)                                                                                                   \
    EXPORT int NAME(pid_t *restrict process, const char *restrict path, const posix_spawn_file_actions_t *actions,     \
                    const posix_spawnattr_t *restrict attributes, char *const arguments[], char *const variables[]) {  \
        REAL(NAME);                                                                                                    \
        note_program(path);                                                                                            \
        return real(process, path, actions, attributes, arguments, variables);                                         \
    }

SPAWNS(posix_spawn)
SPAWNS(posix_spawnp)

EXPORT int system(const char *command) {
    REAL(system);
    if (command) note_text('E', "/bin/sh");
    return real(command);
}

EXPORT FILE *popen(const char *command, const char *mode) {
    REAL(popen);
    note_text('E', "/bin/sh");
    return real(command, mode);
}

/* "C:127.0.0.1 29500" and the like: the address with which a socket is connected; "B:29500": the port that it has. */
EXPORT int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t length) {
    REAL(connect);
    int before = errno;
    const struct sockaddr *address = to.__sockaddr__;
    char text[MOST_TEXT] = "", name[INET6_ADDRSTRLEN];
    if (!atomic_load(&on) || !address || length < sizeof address->sa_family) return real(fd, to, length);
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const void *)address;
        snprintf(text, sizeof text, "%s %u", inet_ntop(AF_INET, &in->sin_addr, name, sizeof name), ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const void *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, name, sizeof name);
        snprintf(text, sizeof text, "%s %u", name, ntohs(in->sin6_port));
    } else if (address->sa_family == AF_UNIX) {
        const char *path = ((const struct sockaddr_un *)address)->sun_path;
        size_t n = length - offsetof(struct sockaddr_un, sun_path);
        if (n && path[0]) snprintf(text, sizeof text, "%.*s", (int)n, path);
    }
    if (text[0]) note_text('C', text);
    errno = before;
    return real(fd, to, length);
}

EXPORT int listen(int fd, int most) {
    REAL(listen);
    int result = real(fd, most), before = errno;
    struct sockaddr_storage at = {0};
    socklen_t length = sizeof at;
    if (result == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0) {
        char text[16];
        unsigned port = at.ss_family == AF_INET    ? ntohs(((struct sockaddr_in *)&at)->sin_port)
                        : at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
                                                   : 0;
        snprintf(text, sizeof text, "%u", port);
        if (port) note_text('B', text);
    }
    errno = before;
    return result;
}

EXPORT ssize_t getrandom(void *to, size_t n, unsigned flags) {
    REAL(getrandom);
    note_text('R', "random numbers");
    return real(to, n, flags);
}

#define SAYS_ROOM(NAME, STRUCTURE)                                                                                     \
    EXPORT int NAME(const char *restrict path, struct STRUCTURE *restrict to) {                                        \
        REAL(NAME);                                                                                                    \
        note_text('R', path);                                                                                          \
        return real(path, to);                                                                                         \
    }

SAYS_ROOM(statvfs, statvfs)
SAYS_ROOM(statvfs64, statvfs64)

static char library_folders[MOST_TEXT]; /* LD_LIBRARY_PATH as it was at the start, which is what the linker uses */

/* The linker looks for a library in these folders first: those before the one in which it is do not have it. */
static void note_search(const char *library) {
    const char *name = strrchr(library, '/') + 1;
    for (const char *folder = library_folders, *end; *folder; folder = *end ? end + 1 : end) {
        end = folder + strcspn(folder, ":;");
        char path[MOST_TEXT];
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)(end - folder), folder, name);
        if (folder[0] != '/' || n >= (int)sizeof path) continue;
        if (strcmp(path, library) == 0) return;
        int before = errno;
        add(note_path(AT_FDCWD, path, 0), syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0 ? LOOKED : MISSING);
        errno = before;
    }
}

/* Libraries are opened within the C library. At its end a process has those that it has loaded. Nobody knows from which
 * working directory one was that has a relative path. */
static int note_library(struct dl_phdr_info *library, size_t n, void *data) {
    (void)n, (void)data;
    const char *path = library->dlpi_name;
    if (!path || !strchr(path, '/')) return 0;
    if (path[0] != '/') {
        note_text('R', "a library by a relative path");
        return 0;
    }
    add(note_path(AT_FDCWD, path, 0), READ);
    note_search(path);
    return 0;
}

EXPORT void phantora_note_libraries(void) {
    if (atomic_load(&on)) dl_iterate_phdr(note_library, NULL);
}

EXPORT void _exit(int code) {
    static void (*real)(int) __attribute__((noreturn));
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "_exit");
    phantora_note_libraries();
    real(code);
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

/* The search for modules and for packages' metadata lists each folder that it looks into, but only names of these
 * matter. The interpreter says who is about to list a folder. */
static const char *const searches[] = {"<frozen importlib._bootstrap_external>", "/importlib/metadata/__init__.py",
                                       "/importlib_metadata/__init__.py", "/pkgutil.py"};

static bool is_search(const char *file) {
    size_t n = strlen(file);
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        size_t length = strlen(searches[i]);
        if (n >= length && strcmp(file + n - length, searches[i]) == 0) return true;
    }
    return false;
}

static struct {
    void *(*frame)(void), *(*code)(void *), *(*attribute)(void *, const char *);
    const char *(*text)(void *);
    void (*release)(void *), (*forget_error)(void);
} python;

static int hear(const char *event, void *arguments, void *data) {
    (void)arguments, (void)data;
    if (!atomic_load(&on) || event[0] != 'o' || (strcmp(event, "os.listdir") && strcmp(event, "os.scandir"))) return 0;
    import_lists = false;
    void *frame = python.frame(), *code = frame ? python.code(frame) : NULL;
    void *name = code ? python.attribute(code, "co_filename") : NULL;
    const char *text = name ? python.text(name) : NULL;
    import_lists = text && is_search(text);
    if (name) python.release(name);
    if (code) python.release(code);
    if (frame && !text) python.forget_error();
    return 0;
}

static bool find(void *where, const char *name) {
    *(void **)where = dlsym(RTLD_DEFAULT, name);
    return *(void **)where != NULL;
}

static void listen_to_python(void) {
    int (*add_hook)(int (*)(const char *, void *, void *), void *);
    if (find(&add_hook, "PySys_AddAuditHook") && find(&python.frame, "PyEval_GetFrame") &&
        find(&python.code, "PyFrame_GetCode") && find(&python.attribute, "PyObject_GetAttrString") &&
        find(&python.text, "PyUnicode_AsUTF8") && find(&python.release, "Py_DecRef") &&
        find(&python.forget_error, "PyErr_Clear"))
        add_hook(hear, NULL);
}

/* ---- where the notes are ----------------------------------------------------------------------------------------- */

__attribute__((constructor)) static void begin(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(NULL, REGION_NBYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) return;
    notes = at;
    notes->version = NOTES_VERSION;
    notes->slots = SLOTS;
    notes->used = sizeof *notes;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    notes->began_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    const char *folders = getenv("LD_LIBRARY_PATH");
    if (folders && strlen(folders) < sizeof library_folders)
        strcpy(library_folders, folders);
    else if (folders)
        notes->full = 1;
    atomic_store(&on, true);
    listen_to_python();
}

/* A program of the user's is about to start this one, which takes no notes. */
EXPORT void phantora_note_started(const char *program) { note_always('E', program); }

/* This process, and those that it forks, run a program of the user's from now on. */
EXPORT void phantora_note_program(void) { atomic_store(&in_program, true); }

/* What this process does is not noted until it says so: it is the emulation's own, such as making the files that a
 * server sees. Returns whether it was noted before. */
EXPORT int phantora_note(int noted) {
    bool before = atomic_load(&on);
    atomic_store(&on, noted);
    return before;
}

/* From now on the notes, with those that there are, are in this file, and whoever is forked shares them. `path` is
 * NULL: nothing is noted. The region stays where it is: addresses are the same with notes and without. Returns 0, or -1
 * with errno. */
EXPORT int phantora_share_notes(const char *path) {
    if (!notes) return path ? (errno = ENOMEM, -1) : 0;
    if (!path) {
        atomic_store(&on, false);
        madvise(notes, REGION_NBYTES, MADV_DONTNEED);
        return 0;
    }
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), failed = file < 0;
    size_t used = notes->used;
    notes->imported = used;
    const char *from = (const char *)notes;
    /* A page of a full disk would end the process when it is written: all of them are there before. */
    failed = failed || (errno = posix_fallocate(file, 0, REGION_NBYTES)) != 0;
    for (size_t done = 0; !failed && done < used;) {
        ssize_t n = syscall(SYS_write, file, from + done, used - done);
        failed = n < 0;
        done += n > 0 ? (size_t)n : 0;
    }
    int flags = MAP_SHARED | MAP_FIXED;
    failed = failed || mmap(notes, REGION_NBYTES, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED;
    if (file >= 0) {
        int before = errno;
        syscall(SYS_close, file);
        errno = before;
    }
    return failed ? -1 : 0;
}
