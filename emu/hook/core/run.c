/* See run.h. */
#include "core/run.h"
#include "core/records.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

ph_run_state ph_run;
ph_counters ph_counts;
atomic_uint_fast64_t ph_work_given;

void ph_die(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "phantora-async: rank %u: internal error: %s\n", ph_run.rank, text);
    _exit(PH_EXIT_INTERNAL);
}

static _Thread_local bool discarded;

static _Thread_local int64_t count_read = -1;

/* Makes the calling thread's reads from now on, until `on` is 0, decide nothing in the program: they are not
 * counted. `count`: the number of elements that it reads of kernels that are not executed; negative: it reads 0. */
PH_EXPORT void phantora_reads_discarded(int on, int64_t count) {
    discarded = on != 0;
    count_read = on ? count : -1;
}

int64_t ph_count_read(void) { return count_read; }

void ph_count_unmodelled_read(void) {
    if (!discarded) atomic_fetch_add_explicit(&ph_counts.unmodelled_reads, 1, memory_order_relaxed);
}

PH_EXPORT void phantora_count_read(void) { ph_count_unmodelled_read(); }

PH_EXPORT uint64_t phantora_unmodelled_reads(void) { return atomic_load(&ph_counts.unmodelled_reads); }

static struct {
    uint64_t from_ns, until_ns;
} deaths[PH_MAX_DEVICES];

void ph_gpu_dies(int gpu, uint64_t from_ns, uint64_t until_ns) {
    deaths[gpu].from_ns = from_ns;
    deaths[gpu].until_ns = until_ns;
}

void ph_gpus_at(uint64_t now_ns) {
    for (int gpu = 0; gpu < PH_MAX_DEVICES; gpu++)
        if (deaths[gpu].from_ns <= now_ns && now_ns < deaths[gpu].until_ns)
            atomic_fetch_or(&ph_run.dead, UINT64_C(1) << gpu);
}
