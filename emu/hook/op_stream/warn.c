/*
 * Messages to the user. Each is given once: on stderr, and to the coordinator for its report.
 */
#include "op_stream/warn.h"
#include "core/lock.h"
#include "channel/channel.h"
#include "core/run.h"
#include "core/hash.h"
#include "threads/sites.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WARNINGS = 512 };

static struct {
    uint64_t given[MAX_WARNINGS];
    int ngiven;
} warnings;

static bool first_time(const char *name) {
    uint64_t hash = ph_hash(1, name, strlen(name));
    ph_lock(PH_LOCK_WARNINGS);
    bool fresh = warnings.ngiven < MAX_WARNINGS;
    for (int i = 0; i < warnings.ngiven && fresh; i++) fresh = warnings.given[i] != hash;
    if (fresh) warnings.given[warnings.ngiven++] = hash;
    ph_unlock(PH_LOCK_WARNINGS);
    return fresh;
}

void ph_warn_once(const char *name, const char *format, ...) {
    if (!first_time(name)) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n < 0) return;
    size_t length = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    fprintf(stderr, "phantora-async: rank %u: %s\n", ph_run.rank, text);
    struct ph_WARNING warning = {.code = 0, .count = 1};
    ph_emit_out_of_band(PH_KIND_WARNING, &warning, sizeof warning, text, length);
}

int ph_refuse(const char *name, int status) {
    atomic_fetch_add_explicit(&ph_counts.refused_calls, 1, memory_order_relaxed);
    char line[512];
    ph_python_line(line, sizeof line);
    ph_warn_once(name, "%s is not emulated and returns status %d (not supported)%s%s", name, status,
                 *line ? "; first called at " : "", line);
    return status;
}

/* ph_warn_once for emu's Python side. */
PH_EXPORT void phantora_warn_once(const char *name, const char *text) { ph_warn_once(name, "%s", text); }
