/*
 * Where in the program a call is made: the user's line, and the line of the library that made the call for it.
 *
 * A location (code, instruction) is looked up once. A pair of locations is a site; it gets the rank's next number, and
 * a SITE record announces it, with the user's line that called the function in which the user's line is: a helper's
 * line says little. On autograd's threads no frame is the user's: the line that called backward() stands for them, and
 * it is also what called a function of the user's there.
 */
#include "threads/sites.h"
#include "core/lock.h"
#include "channel/channel.h"
#include "core/hash.h"
#include "core/interned.h"
#include "core/run.h"
#include "threads/python_frames.h"
#include "threads/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOCATIONS = 1 << 16, MAX_DEPTH = 512, TEXT = 512 };
/* A rank's own process has the lower numbers, and its children share the others. Those that come when all are shared
 * out have none: another one's number would stand for another line. */
enum { OWN_SITES = 0x7fff, CHILDS_SITES = 1024, NUMBERED_CHILDREN = (UINT16_MAX - OWN_SITES) / CHILDS_SITES };

typedef enum { UNIMPORTANT, LIBRARY, USER } whose;

typedef struct location location;
typedef struct site {
    const location *library, *caller;
    uint16_t number;
    uint32_t child; /* the process that has numbered it: a forked one has its parent's */
    struct site *next;
} site;

struct location {
    uintptr_t code, file, function; /* the names too: the address of a code object may be used again */
    int32_t instruction, line;
    whose whose;
    bool torch;
    enum { READS_NOT, READS, READS_FAMILY, READS_FOR_ITSELF } reads; /* of what kind the GPU is */
    char *text;                                                      /* "file\nfunction" */
    site *sites; /* those with this as the user's line, one for each line of a library and each caller */
};

static struct {
    bool on;
    char *ours, *stdlib, *torch; /* folders */
    ph_interned locations;
    location nowhere; /* stands for the user's line at sites that have none */
    uint16_t last_site, most_sites;
    uint32_t child;     /* which these numbers are for */
    location *backward; /* the user's line that started the last backward pass */
} sites;

/* ---- whose a line is --------------------------------------------------------------------------------------------- */

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

/* Packages that bring NVIDIA's libraries to Python, and do nothing else. */
static bool is_binding(const char *file) {
    static const char *const PARTS[] = {"-packages/pynvml", "-packages/cuda/", "-packages/py3nvml/"};
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (strstr(file, PARTS[i])) return true;
    return false;
}

/* Public functions of torch.cuda answer who calls them. Private ones read for PyTorch's own start. */
static int reading(const char *file, const char *function) {
    if (is_binding(file)) return READS;
    if (!below(file, sites.torch) || strcmp(file + strlen(sites.torch), "/cuda/__init__.py") != 0) return READS_NOT;
    if (strcmp(function, "is_bf16_supported") == 0 || strcmp(function, "is_tf32_supported") == 0) return READS_FAMILY;
    return function[0] == '_' && strncmp(function, "_get_", 5) != 0 ? READS_FOR_ITSELF : READS;
}

static void judge(location *it, const char *file, const char *function) {
    it->torch = below(file, sites.torch);
    it->reads = reading(file, function);
    if (file[0] == '<' || below(file, sites.ours) || by_inductor(file))
        it->whose = UNIMPORTANT;
    else if (it->torch)
        it->whose = communicates(file + strlen(sites.torch) + 1) ? LIBRARY : UNIMPORTANT;
    else if (strstr(file, "/site-packages/") || strstr(file, "/dist-packages/"))
        it->whose = LIBRARY;
    else
        it->whose = below(file, sites.stdlib) ? UNIMPORTANT : USER;
}

/* ---- locations ------------------------------------------------------------------------------------------------------
 */

static location *learn(const location *key, uint64_t hash) {
    char file[TEXT], function[TEXT];
    size_t nfile = ph_python_text(key->file, file, sizeof file),
           nfunction = ph_python_text(key->function, function, TEXT);
    for (char *at = file; (at = strchr(at, '\n'));) *at = '?'; /* newlines separate the parts of a SITE record */
    location *it = sites.locations.n < MAX_LOCATIONS ? malloc(sizeof *it) : NULL;
    char *text = it ? malloc(nfile + nfunction + 2) : NULL;
    if (!text) {
        free(it);
        return NULL;
    }
    *it = *key;
    snprintf(text, nfile + nfunction + 2, "%s\n%s", file, function);
    it->text = text;
    it->line = ph_code_line(key->code, key->instruction);
    judge(it, file, function);
    ph_interned_put(&sites.locations, hash, it);
    return it;
}

/* Returns the location of a frame; NULL if there is no room for more. */
static location *location_of(uintptr_t frame, uintptr_t code) {
    location key = {.code = code,
                    .file = ph_code_file(code),
                    .function = ph_code_function(code),
                    .instruction = (int32_t)ph_frame_instruction(frame, code)};
    uint64_t hash = ph_mix(ph_mix(key.code, (uint64_t)(uint32_t)key.instruction), ph_mix(key.file, key.function));
    void *known = (void *)ph_interned_get(&sites.locations, hash ? hash : 1);
    return known ? known : learn(&key, hash ? hash : 1);
}

typedef struct found {
    location *user;
    const location *library;
    const location *caller; /* the user's line from which that function was called; NULL: there is none */
} found;

/* The user's innermost line, and the innermost line of a library that it has called. On autograd's threads the user's
 * line may be that of backward(). A program that is a framework's own command has no line of the user's: then the
 * outermost line that is not PyTorch's counts as it. */
static found look(bool with_caller) {
    found it = {0};
    location *outermost = NULL;
    bool backward = ph_thread_kind() == PH_THREAD_AUTOGRAD;
    uintptr_t frame = ph_frame_newest();
    for (int depth = 0; frame && depth < MAX_DEPTH && (!it.user || (with_caller && !it.caller));
         depth++, frame = ph_frame_previous(frame)) {
        uintptr_t code = ph_frame_code(frame); /* none in frames that C code has entered */
        location *at = ph_is_code(code) ? location_of(frame, code) : NULL;
        if (!at || at->whose == UNIMPORTANT) continue;
        if (at->whose == USER && !it.user) {
            it.user = at;
            it.caller = with_caller && backward ? sites.backward : NULL;
        } else if (at->whose == USER) {
            it.caller = at;
        } else if (!it.user && !it.library) {
            it.library = at;
        }
        if (!it.user && !at->torch) outermost = at;
    }
    if (!it.user && backward) it.user = sites.backward;
    if (!it.user && outermost != it.library) it.user = outermost;
    return it;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static void announce(uint16_t number, const location *user, const location *library, const location *caller) {
    char payload[6 * TEXT + 6];
    struct ph_SITE record = {.number = number,
                             .line = (uint32_t)user->line,
                             .via_line = library ? (uint32_t)library->line : 0,
                             .caller_line = caller ? (uint32_t)caller->line : 0};
    int n = snprintf(payload, sizeof payload, "%s\n%s\n%s", user->text ? user->text : "\n",
                     library ? library->text : "\n", caller ? caller->text : "\n");
    ph_emit_out_of_band(PH_KIND_SITE, &record, sizeof record, payload, n < 0 ? 0 : (size_t)n);
}

/* All processes of a rank announce their sites to it, so each has numbers of its own. */
static void begin_numbers(void) {
    sites.child = ph_run.child;
    if (!sites.child) {
        sites.last_site = 0;
        sites.most_sites = OWN_SITES;
    } else if (sites.child <= NUMBERED_CHILDREN) {
        sites.last_site = (uint16_t)(OWN_SITES + (sites.child - 1) * CHILDS_SITES);
        sites.most_sites = (uint16_t)(sites.last_site + CHILDS_SITES);
    } else {
        sites.last_site = sites.most_sites = UINT16_MAX;
    }
}

static uint16_t number_of(location *user, const location *library, const location *caller) {
    if (!sites.most_sites || sites.child != ph_run.child) begin_numbers();
    for (site *it = user->sites; it; it = it->next)
        if (it->library == library && it->caller == caller && it->child == sites.child) return it->number;
    site *it = sites.last_site < sites.most_sites ? malloc(sizeof *it) : NULL;
    if (!it) return 0;
    *it = (site){
        .library = library, .caller = caller, .number = ++sites.last_site, .child = sites.child, .next = user->sites};
    user->sites = it;
    announce(it->number, user, library, caller);
    return it->number;
}

uint16_t ph_site_of_reader(bool *family) {
    uint16_t number = 0;
    *family = false;
    if (!sites.on || !ph_run.started || ph_run.finished) return 0;
    ph_lock(PH_LOCK_SITES);
    uintptr_t frame = ph_frame_newest();
    for (int depth = 0; frame && depth < MAX_DEPTH; depth++, frame = ph_frame_previous(frame)) {
        uintptr_t code = ph_frame_code(frame);
        location *at = ph_is_code(code) ? location_of(frame, code) : NULL;
        if (!at) continue;
        if (at->whose == USER) {
            number = number_of(at, NULL, NULL);
            break;
        }
        if (at->reads == READS_FAMILY) *family = true;
        bool passes = at->reads == READS || at->reads == READS_FAMILY; /* as ours, generated, the standard library's */
        if (!passes && (at->torch || at->whose == LIBRARY)) break;
    }
    ph_unlock(PH_LOCK_SITES);
    return number;
}

static uint16_t site_here(bool with_caller) {
    if (!sites.on || !ph_run.started || ph_run.finished) return 0;
    ph_thread *thread = ph_self();
    if (thread->site) return thread->site;
    ph_lock(PH_LOCK_SITES);
    found it = look(with_caller);
    uint16_t number = it.user || it.library ? number_of(it.user ? it.user : &sites.nowhere, it.library, it.caller) : 0;
    ph_unlock(PH_LOCK_SITES);
    return number;
}

uint16_t ph_site(void) { return site_here(false); }

uint16_t ph_site_with_caller(void) { return site_here(true); }

void ph_site_inherit(uint16_t site) { ph_self()->site = site; }

const char *ph_python_line(char *text, int capacity) {
    text[0] = 0;
    if (!sites.on || ph_run.orphan) return text;
    ph_lock(PH_LOCK_SITES);
    found it = look(false);
    const location *at = it.user ? it.user : it.library;
    if (at) snprintf(text, (size_t)capacity, "%.*s:%d", (int)strcspn(at->text, "\n"), at->text, at->line);
    ph_unlock(PH_LOCK_SITES);
    return text;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* Called in the forker. Returns 0, or -1 if this Python lacks a function that is needed: then no sites are announced.
 */
PH_EXPORT int phantora_sites(const int32_t *offsets, const char *ours, const char *stdlib, const char *torch) {
    if (!ph_frames_readable(offsets)) return -1;
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
    found it = look(false);
    if (it.user) sites.backward = it.user;
    ph_unlock(PH_LOCK_SITES);
}
