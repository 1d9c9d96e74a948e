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

enum { STRUCT_WORDS = 64 };
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

/* Returns the kind of a number's type; 0: it is no number. */
static char number_kind(const char *type, size_t n) {
    static const struct {
        const char *name;
        char kind;
    } numbers[] = {{"int", PH_PARAMETER_INT},
                   {"unsigned int", PH_PARAMETER_INT},
                   {"long", PH_PARAMETER_LONG},
                   {"unsigned long", PH_PARAMETER_LONG},
                   {"long long", PH_PARAMETER_LONG},
                   {"unsigned long long", PH_PARAMETER_LONG},
                   {"bool", PH_PARAMETER_NUMBER},
                   {"char", PH_PARAMETER_NUMBER},
                   {"signed char", PH_PARAMETER_NUMBER},
                   {"unsigned char", PH_PARAMETER_NUMBER},
                   {"short", PH_PARAMETER_NUMBER},
                   {"unsigned short", PH_PARAMETER_NUMBER},
                   {"float", PH_PARAMETER_NUMBER},
                   {"double", PH_PARAMETER_NUMBER},
                   {"__half", PH_PARAMETER_NUMBER},
                   {"__nv_bfloat16", PH_PARAMETER_NUMBER},
                   {"c10::Half", PH_PARAMETER_NUMBER},
                   {"c10::BFloat16", PH_PARAMETER_NUMBER}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == n && strncmp(numbers[i].name, type, n) == 0) return numbers[i].kind;
    return 0;
}

static char kind_of(const char *type, size_t n) {
    while (n && isspace((unsigned char)*type)) type++, n--;
    while (n && isspace((unsigned char)type[n - 1])) n--;
    if (n && type[n - 1] == '*') {
        while (n && (type[n - 1] == '*' || isspace((unsigned char)type[n - 1]))) n--;
        return n >= 5 && strncmp(type + n - 5, "const", 5) == 0 ? PH_PARAMETER_CONST : PH_PARAMETER_WRITTEN;
    }
    char number = number_kind(type, n);
    return number ? number : PH_PARAMETER_STRUCT;
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

size_t ph_words_at(const void *address, uintptr_t *out, size_t most) {
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
    uintptr_t parameters[PH_MOST_PARAMETERS], word;
    size_t n = ph_words_at(params, parameters, PH_MOST_PARAMETERS);
    for (size_t i = 0; i < n && parameters[i]; i++) {
        if (ph_words_at((const void *)parameters[i], &word, 1) != 1) break; /* no pointer: the list has ended */
        overwrite(word, stream);
    }
}

const char *ph_parameter_kinds(ph_kernel *kernel) {
    if (!kernel->kinds) kernel->kinds = read_types(kernel->name);
    return strcmp(kernel->kinds, UNTYPED) == 0 ? NULL : kernel->kinds;
}

void ph_kernel_stores(ph_kernel *kernel, void *const *params, ph_stream *stream) {
    const char *kinds = ph_parameter_kinds(kernel);
    if (!kernel->stores) kernel->stores = kinds ? kinds : UNTYPED;
    if (!kinds) {
        overwrite_untyped(params, stream);
        return;
    }
    uintptr_t read_only[PH_MOST_PARAMETERS], words[STRUCT_WORDS];
    size_t nread_only = 0;
    const ph_lengths *lengths = &ph_self()->lengths; /* an attention reads them by pointers in structs */
    if (lengths->sequences) {
        read_only[nread_only++] = (uintptr_t)lengths->ends_q;
        read_only[nread_only++] = (uintptr_t)lengths->keys;
    }
    for (size_t i = 0; kinds[i]; i++)
        if (kinds[i] == PH_PARAMETER_CONST && nread_only < PH_MOST_PARAMETERS)
            memcpy(&read_only[nread_only++], params[i], 8);
    for (size_t i = 0; kinds[i]; i++) {
        if (kinds[i] == PH_PARAMETER_WRITTEN) {
            memcpy(words, params[i], sizeof *words);
            overwrite(words[0], stream);
        }
        size_t n = kinds[i] == PH_PARAMETER_STRUCT ? ph_words_at(params[i], words, STRUCT_WORDS) : 0;
        for (size_t j = 0; j < n; j++) { /* words of other parameters may lie behind the struct */
            size_t k = 0;
            while (k < nread_only && read_only[k] != words[j]) k++;
            if (k == nread_only) overwrite(words[j], stream);
        }
    }
}
