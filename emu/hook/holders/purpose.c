/*
 * What the calling thread tells of a block that it asks for or frees: what for, by what autograd does, and whether it
 * is a process group's.
 */
#include "holders/holders.h"
#include "nvtx/nvtx.h"
#include "../private/symbols.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <string.h>

/* c10::GradMode::is_enabled() */
static bool autograd_records(void) {
    static _Atomic(bool (*)(void)) is_enabled;
    bool (*known)(void) = is_enabled;
    if (UNLIKELY(!known)) {
        void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
        void *found = library ? dlsym(library, ph_symbol_name(PH_SYMBOL_GRAD_MODE)) : NULL;
        if (library) dlclose(library);
        if (!found) return true;
        memcpy(&known, &found, sizeof known);
        is_enabled = known;
    }
    return known();
}

/* Autograd functions that Python defines run their forward pass without recording, but what they return is saved. */
static bool in_custom_function(const ph_thread *thread) {
    int n = thread->nranges < PH_MAX_RANGES ? thread->nranges : PH_MAX_RANGES;
    for (int i = 0; i < n; i++)
        if (thread->ranges[i]->dispatched) return thread->ranges[i]->work == PH_WORK_CUSTOM;
    return false;
}

uint8_t ph_first_guess(const ph_thread *thread) {
    if (thread->optimizer_depth) return PH_HELD_TEMPORARIES;
    if (autograd_records()) return PH_HELD_ACTIVATIONS; /* also what checkpointing computes again */
    bool backward = ph_thread_kind() == PH_THREAD_AUTOGRAD;
    return !backward && in_custom_function(thread) ? PH_HELD_ACTIVATIONS : PH_HELD_TEMPORARIES;
}

bool ph_in_process_group(void) {
    static const char c10d[] = "c10d::";
    const char *op = ph_current_work();
    return op && strncmp(op, c10d, sizeof c10d - 1) == 0;
}
