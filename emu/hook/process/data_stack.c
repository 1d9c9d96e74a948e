/*
 * Python keeps the frames of functions in blocks of 16 KiB. A block that becomes empty goes back to the kernel, and the
 * next call that does not fit asks for another: functions that are called at such an edge, as deep recursions do all
 * the time, take two system calls and a page fault each. Here a process keeps a few empty blocks.
 */
#define _GNU_SOURCE
#include "core/base.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { BLOCK_NBYTES = 16 << 10, KEPT = 8 };

/* The struct of Python's pymem.h. */
struct allocator {
    void *context;
    void *(*allocate)(void *context, size_t nbytes);
    void (*release)(void *context, void *block, size_t nbytes);
};

static struct allocator pythons;
static _Atomic(void *) kept[KEPT];

static void *allocate(void *context, size_t nbytes) {
    (void)context;
    for (int i = 0; nbytes == BLOCK_NBYTES && i < KEPT; i++) {
        void *block = atomic_exchange(&kept[i], NULL);
        if (block) return block;
    }
    return pythons.allocate(pythons.context, nbytes);
}

static void release(void *context, void *block, size_t nbytes) {
    (void)context;
    for (int i = 0; nbytes == BLOCK_NBYTES && i < KEPT; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&kept[i], &none, block)) return;
    }
    pythons.release(pythons.context, block, nbytes);
}

/* Replaces Python's allocator of arenas by one that keeps blocks. Called once, in the forker. */
PH_EXPORT void phantora_keep_data_stack(void) {
    void (*get)(struct allocator *), (*set)(struct allocator *);
    void *getter = dlsym(RTLD_DEFAULT, "PyObject_GetArenaAllocator");
    void *setter = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    if (!getter || !setter || pythons.allocate) return;
    memcpy(&get, &getter, sizeof get);
    memcpy(&set, &setter, sizeof set);
    get(&pythons);
    set(&(struct allocator){NULL, allocate, release});
}
