/*
 * Where in the program a call is made: the user's line, and the line of the library that made the call for it.
 *
 * Calls come from threads that have released Python's lock and that may hold locks of PyTorch's. Taking Python's lock
 * here could deadlock, and is slow. It is not needed: only the thread itself changes its frames, so they are read as
 * they lie in memory, by the offsets that emu/interpreter/frame_layout.py finds. The code object of a running frame
 * stays alive, and the members that are read here never change.
 *
 * A place (code, instruction) is looked up once. A pair of places is a site; it gets the rank's next number, and a SITE
 * record announces it. On autograd's threads no frame is the user's: the line that called backward() stands for them.
 */
#include "threads/sites.h"
#include "core/lock.h"
#include "channel/channel.h"
#include "core/hash.h"
#include "core/run.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLACES = 1 << 16, MAX_SITES = UINT16_MAX, MAX_DEPTH = 512, TEXT = 512, TAG = 7 };

/* See FrameLayout in emu/interpreter/frame_layout.py. */
static struct {
    int32_t thread_link, link_frame, frame_previous, frame_code, frame_instruction, code_start, code_filename,
        code_function;
} layout;

static struct {
    void *(*thread_state)(void);
    int (*line)(void *code, int instruction);
    ptrdiff_t (*length)(void *text);
    uint32_t (*character)(void *text, ptrdiff_t index);
    void *code_type;
} python;

typedef enum { UNIMPORTANT, LIBRARY, USER } whose;

typedef struct place place;
typedef struct site {
    const place *library;
    uint16_t number;
    struct site *next;
} site;

struct place {
    uintptr_t code, file, function; /* the names too: the address of a code object may be used again */
    int32_t instruction, line;
    whose whose;
    bool torch;
    char *text;  /* "file\nfunction" */
    site *sites; /* those with this as the user's line, one for each line of a library */
};

static struct {
    bool on;
    char *ours, *stdlib, *torch; /* folders */
    place **places;              /* open addressing */
    size_t count, capacity;
    place nowhere; /* stands for the user's line at sites that have none */
    uint16_t last_site;
    place *backward; /* the user's line that started the last backward pass */
} sites;

/* ---- reading frames ---------------------------------------------------------------------------------------------- */

static uintptr_t word(uintptr_t at, int32_t offset) { return *(const uintptr_t *)(at + (uintptr_t)(intptr_t)offset); }

static uintptr_t newest_frame(void) {
    uintptr_t thread = (uintptr_t)python.thread_state();
    if (!thread) return 0;
    uintptr_t link = word(thread, layout.thread_link);
    return link && layout.link_frame >= 0 ? word(link, layout.link_frame) : link;
}

/* 0 for frames that C code has entered: they have no code object. */
static uintptr_t code_of(uintptr_t frame) {
    uintptr_t code = word(frame, layout.frame_code) & ~(uintptr_t)TAG;
    return code && word(code, sizeof(uintptr_t)) == (uintptr_t)python.code_type ? code : 0;
}

/* Writes a Python string as UTF-8. */
static size_t read_text(uintptr_t text, char *out, size_t capacity) {
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    ptrdiff_t length = python.length((void *)text);
    size_t n = 0;
    for (ptrdiff_t i = 0; i < length && n + 5 < capacity; i++) {
        uint32_t c = python.character((void *)text, i);
        if (c < 0x80) {
            out[n++] = (char)c;
        } else {
            int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            out[n++] = (char)(lead[more] | c >> 6 * more);
            while (more-- > 0) out[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
        }
    }
    out[n] = 0;
    return n;
}

/* ---- whose a line is
 * ------------------------------------------------------------------------------------------------- */

static bool below(const char *file, const char *folder) {
    size_t n = strlen(folder);
    return n && strncmp(file, folder, n) == 0 && file[n] == '/';
}

/* PyTorch's features that communicate by themselves, not the modules that every call passes through. */
static bool communicates(const char *in_torch) {
    static const char distributed[] = "distributed/", parallel[] = "nn/parallel/";
    if (strncmp(in_torch, distributed, sizeof distributed - 1) == 0)
        return strchr(in_torch + sizeof distributed - 1, '/') != NULL;
    return strncmp(in_torch, parallel, sizeof parallel - 1) == 0;
}

/* Inductor keeps the code that it writes in a file whose name begins with c and the folder's name: 7w/c7w7ksu3...py */
static bool by_inductor(const char *file) {
    const char *name = strrchr(file, '/');
    enum { HASH = 40 };
    return name && name - file > 3 && name[-3] == '/' && name[1] == 'c' && strncmp(name + 2, name - 2, 2) == 0 &&
           strlen(name) > HASH;
}

static void judge(place *it, const char *file) {
    it->torch = below(file, sites.torch);
    if (file[0] == '<' || below(file, sites.ours) || by_inductor(file))
        it->whose = UNIMPORTANT;
    else if (it->torch)
        it->whose = communicates(file + strlen(sites.torch) + 1) ? LIBRARY : UNIMPORTANT;
    else if (strstr(file, "/site-packages/") || strstr(file, "/dist-packages/"))
        it->whose = LIBRARY;
    else
        it->whose = below(file, sites.stdlib) ? UNIMPORTANT : USER;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static size_t slot_of(const place *it) {
    return ph_mix(it->code, (uint64_t)(uint32_t)it->instruction) & (sites.capacity - 1);
}

static bool grow(void) {
    size_t before = sites.capacity;
    place **old = sites.places;
    place **bigger = calloc(before ? 2 * before : 1024, sizeof *bigger);
    if (!bigger) return false;
    sites.places = bigger;
    sites.capacity = before ? 2 * before : 1024;
    for (size_t i = 0; i < before; i++)
        if (old[i]) {
            size_t slot = slot_of(old[i]);
            while (bigger[slot]) slot = (slot + 1) & (sites.capacity - 1);
            bigger[slot] = old[i];
        }
    free(old);
    return true;
}

static place *learn(const place *key, size_t slot) {
    char file[TEXT], function[TEXT];
    size_t nfile = read_text(key->file, file, sizeof file), nfunction = read_text(key->function, function, TEXT);
    for (char *at = file; (at = strchr(at, '\n'));) *at = '?'; /* newlines separate the parts of a SITE record */
    place *it = sites.count < MAX_PLACES ? malloc(sizeof *it) : NULL;
    char *text = it ? malloc(nfile + nfunction + 2) : NULL;
    if (!text) {
        free(it);
        return NULL;
    }
    *it = *key;
    snprintf(text, nfile + nfunction + 2, "%s\n%s", file, function);
    it->text = text;
    it->line = python.line((void *)key->code, key->instruction);
    judge(it, file);
    sites.places[slot] = it;
    sites.count++;
    return it;
}

/* NULL if there is no room for more. */
static place *place_of(uintptr_t frame, uintptr_t code) {
    if (2 * sites.count >= sites.capacity && !grow()) return NULL;
    place key = {.code = code,
                 .file = word(code, layout.code_filename),
                 .function = word(code, layout.code_function),
                 .instruction = (int32_t)(word(frame, layout.frame_instruction) - code - (uintptr_t)layout.code_start)};
    size_t slot = slot_of(&key);
    for (place *it; (it = sites.places[slot]); slot = (slot + 1) & (sites.capacity - 1))
        if (it->code == code && it->instruction == key.instruction && it->file == key.file &&
            it->function == key.function)
            return it;
    return learn(&key, slot);
}

typedef struct found {
    place *user;
    const place *library;
} found;

/* The user's innermost line, and the innermost line of a library that it has called. On autograd's threads the user's
 * line may be that of backward(). A program that is a framework's own command has no line of the user's: then the
 * outermost line that is not PyTorch's counts as it. */
static found look(void) {
    found it = {NULL, NULL};
    place *outermost = NULL;
    uintptr_t frame = newest_frame();
    for (int depth = 0; frame && depth < MAX_DEPTH && !it.user; depth++, frame = word(frame, layout.frame_previous)) {
        uintptr_t code = code_of(frame);
        place *at = code ? place_of(frame, code) : NULL;
        if (!at || at->whose == UNIMPORTANT) continue;
        if (at->whose == USER)
            it.user = at;
        else if (!it.library)
            it.library = at;
        if (!at->torch) outermost = at;
    }
    if (!it.user && ph_thread_kind() == PH_THREAD_AUTOGRAD) it.user = sites.backward;
    if (!it.user && outermost != it.library) it.user = outermost;
    return it;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static void announce(uint16_t number, const place *user, const place *library) {
    char payload[4 * TEXT + 4];
    struct ph_SITE record = {
        .number = number, .line = (uint32_t)user->line, .via_line = library ? (uint32_t)library->line : 0};
    int n = snprintf(payload, sizeof payload, "%s\n%s", user->text ? user->text : "\n", library ? library->text : "\n");
    ph_emit_out_of_band(PH_KIND_SITE, &record, sizeof record, payload, n < 0 ? 0 : (size_t)n);
}

static uint16_t number_of(place *user, const place *library) {
    for (site *it = user->sites; it; it = it->next)
        if (it->library == library) return it->number;
    site *it = sites.last_site < MAX_SITES ? malloc(sizeof *it) : NULL;
    if (!it) return 0;
    *it = (site){.library = library, .number = ++sites.last_site, .next = user->sites};
    user->sites = it;
    announce(it->number, user, library);
    return it->number;
}

uint16_t ph_site(void) {
    if (!sites.on || !ph_run.started || ph_run.finished) return 0;
    ph_thread *thread = ph_self();
    if (thread->site) return thread->site;
    ph_lock(PH_LOCK_SITES);
    found it = look();
    uint16_t number = it.user || it.library ? number_of(it.user ? it.user : &sites.nowhere, it.library) : 0;
    ph_unlock(PH_LOCK_SITES);
    return number;
}

void ph_site_inherit(uint16_t site) { ph_self()->site = site; }

const char *ph_python_line(char *text, int capacity) {
    text[0] = 0;
    if (!sites.on || ph_run.orphan) return text;
    ph_lock(PH_LOCK_SITES);
    found it = look();
    const place *at = it.user ? it.user : it.library;
    if (at) snprintf(text, (size_t)capacity, "%.*s:%d", (int)strcspn(at->text, "\n"), at->text, at->line);
    ph_unlock(PH_LOCK_SITES);
    return text;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* Called in the forker. Returns 0, or -1 if this Python lacks a function that is needed: then no sites are announced.
 */
PH_EXPORT int phantora_sites(const int32_t *offsets, const char *ours, const char *stdlib, const char *torch) {
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"PyGILState_GetThisThreadState", &python.thread_state},
                     {"PyCode_Addr2Line", &python.line},
                     {"PyUnicode_GetLength", &python.length},
                     {"PyUnicode_ReadChar", &python.character},
                     {"PyCode_Type", &python.code_type}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(RTLD_DEFAULT, functions[i].name);
        if (!address) return -1;
        memcpy(functions[i].to, &address, sizeof address);
    }
    memcpy(&layout, offsets, sizeof layout);
    sites.ours = strdup(ours);
    sites.stdlib = strdup(stdlib);
    sites.torch = strdup(torch);
    sites.on = sites.ours && sites.stdlib && sites.torch;
    return sites.on ? 0 : -1;
}

/* See ph_python_line. */
PH_EXPORT void phantora_line(char *text, int capacity) { ph_python_line(text, capacity); }

/* Called on a thread that starts a backward pass. */
PH_EXPORT void phantora_backward(void) {
    ph_host_backward();
    if (!sites.on || !ph_run.started) return;
    ph_lock(PH_LOCK_SITES);
    found it = look();
    if (it.user) sites.backward = it.user;
    ph_unlock(PH_LOCK_SITES);
}
