/*
 * What launches may write to that belong to no operation of ATen: kernels of C++ extensions, of NVRTC and the like.
 * They are not executed, so the blocks behind their pointers become unknown.
 *
 * A kernel's mangled name tells the types of its parameters: what a pointer to const points to is not written. Structs
 * may hold pointers; their sizes are unknown, so the words from their beginning on are taken for pointers if they could
 * be. Without a mangled name (extern "C") every parameter is looked at so, and their number is unknown, too. What may
 * not be there is read by the kernel, which refuses what it cannot read. Marking too much is allowed, too little not.
 */
#define _GNU_SOURCE
#include "kernels/kernel.h"
#include "core/alloc.h"
#include "data/data.h"
#include "graphs/capture.h"
#include "memory/memory.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_PARAMETERS = 256, STRUCT_WORDS = 64 };
/* Of parameters: a pointer that the kernel may store through, one to const, a number, a struct. */
enum { WRITTEN = 'w', CONST = 'c', NUMBER = '-', STRUCT = 's' };
#define UNTYPED "?" /* the name tells no types */

char *ph_demangled(const char *name) {
    typedef char *demangle(const char *, char *, size_t *, int *);
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD); /* PyTorch has loaded it, for itself alone */
    void *found = dlsym(library ? library : RTLD_DEFAULT, "__cxa_demangle");
    demangle *function;
    int status;
    if (!found || strncmp(name, "_Z", 2) != 0) return NULL;
    memcpy(&function, &found, sizeof function);
    return function(name, NULL, NULL, &status);
}

static bool is_number(const char *type, size_t n) {
    static const char *const numbers[] = {
        "bool",  "char",         "signed char", "unsigned char", "short",     "unsigned short",
        "int",   "unsigned int", "long",        "unsigned long", "long long", "unsigned long long",
        "float", "double",       "__half",      "__nv_bfloat16", "c10::Half", "c10::BFloat16"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i]) == n && strncmp(numbers[i], type, n) == 0) return true;
    return false;
}

static char kind_of(const char *type, size_t n) {
    while (n && isspace((unsigned char)*type)) type++, n--;
    while (n && isspace((unsigned char)type[n - 1])) n--;
    if (n && type[n - 1] == '*') {
        while (n && (type[n - 1] == '*' || isspace((unsigned char)type[n - 1]))) n--;
        return n >= 5 && strncmp(type + n - 5, "const", 5) == 0 ? CONST : WRITTEN;
    }
    return is_number(type, n) ? NUMBER : STRUCT;
}

/* A character for each parameter. The list is the last pair of parentheses. */
static const char *read_types(const char *name) {
    char *text = ph_demangled(name);
    size_t n = text ? strlen(text) : 0, begin = n, used = 0;
    int depth = 0;
    if (n && text[n - 1] == ')')
        for (begin = n; begin--;) {
            depth += text[begin] == ')' ? 1 : text[begin] == '(' ? -1 : 0;
            if (depth == 0) break;
        }
    if (begin >= n) {
        free(text);
        return UNTYPED;
    }
    char *kinds = ph_allocate(n - begin + 1);
    size_t from = begin + 1;
    for (size_t i = from; i < n; i++) {
        char c = text[i];
        depth += strchr("<([{", c) ? 1 : strchr(">)]}", c) && i + 1 < n ? -1 : 0;
        if ((c != ',' && i + 1 < n) || depth) continue;
        if (i > from) kinds[used++] = kind_of(text + from, i - from);
        from = i + 1;
    }
    free(text);
    return kinds;
}

/* Words from an address on, as many as can be read. */
static size_t words_at(const void *address, uintptr_t *out, size_t most) {
    struct iovec to = {out, most * sizeof *out}, from = {(void *)(uintptr_t)address, most * sizeof *out};
    ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (got <= 0) { /* a part of it lies on a page that is not there: read up to the page's end */
        size_t left = 4096 - ((uintptr_t)address & 4095);
        to.iov_len = from.iov_len = left < from.iov_len ? left & ~(size_t)7 : from.iov_len;
        got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    }
    return got > 0 ? (size_t)got / sizeof *out : 0;
}

static void overwrite(uintptr_t address, ph_stream *stream) {
    const void *to = (const void *)address;
    if (address && ph_is_device_pointer(to)) ph_overwrite_on(stream, to, ph_data_block_rest(to));
}

static void overwrite_untyped(void *const *params, ph_stream *stream) {
    uintptr_t parameters[MOST_PARAMETERS], word;
    size_t n = words_at(params, parameters, MOST_PARAMETERS);
    for (size_t i = 0; i < n && parameters[i]; i++) {
        if (words_at((const void *)parameters[i], &word, 1) != 1) break; /* no pointer: the list has ended */
        overwrite(word, stream);
    }
}

void ph_kernel_stores(ph_kernel *kernel, void *const *params, ph_stream *stream) {
    if (!kernel->stores) kernel->stores = read_types(kernel->name);
    const char *kinds = kernel->stores;
    if (strcmp(kinds, UNTYPED) == 0) {
        overwrite_untyped(params, stream);
        return;
    }
    uintptr_t read_only[MOST_PARAMETERS], words[STRUCT_WORDS];
    size_t nread_only = 0;
    for (size_t i = 0; kinds[i]; i++)
        if (kinds[i] == CONST && nread_only < MOST_PARAMETERS) memcpy(&read_only[nread_only++], params[i], 8);
    for (size_t i = 0; kinds[i]; i++) {
        if (kinds[i] == WRITTEN) {
            memcpy(words, params[i], sizeof *words);
            overwrite(words[0], stream);
        }
        size_t n = kinds[i] == STRUCT ? words_at(params[i], words, STRUCT_WORDS) : 0;
        for (size_t j = 0; j < n; j++) { /* words of other parameters may lie behind the struct */
            size_t k = 0;
            while (k < nread_only && read_only[k] != words[j]) k++;
            if (k == nread_only) overwrite(words[j], stream);
        }
    }
}
