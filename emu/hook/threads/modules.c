/* See modules.h. A module is known by its address while its call lasts; Python looks up which one that is. */
#include "threads/modules.h"
#include "core/hash.h"
#include "core/interned.h"
#include "core/lock.h"
#include "core/records.h"
#include "threads/python_frames.h"
#include "threads/thread.h"

#include <stdatomic.h>

enum { MAX_DEPTH = 512, MOST_MODULES = 1 << 15 };
/* Nodes whose module is remembered; a step that makes more forgets its first ones. A power of 2. */
enum { MADE = 1 << 17, MODULE_BITS = 16 };

bool ph_modules_known;

static struct {
    uintptr_t call;      /* the code of torch.nn.Module's call */
    ph_interned numbers; /* by address */
    uint64_t addresses[MOST_MODULES];
    atomic_uint n;
} modules;
static _Atomic uint64_t made[MADE]; /* a node's number, and below it the module's */

static uint16_t number_of(uintptr_t module) {
    uint64_t key = ph_mix(module, 1);
    const void *known = ph_interned_get(&modules.numbers, key ? key : 1);
    if (LIKELY(known != NULL)) return (uint16_t)(uintptr_t)known;
    uint16_t number = 0;
    ph_lock(PH_LOCK_SITES);
    known = ph_interned_get(&modules.numbers, key ? key : 1);
    if (known) {
        number = (uint16_t)(uintptr_t)known;
    } else if (modules.n < MOST_MODULES) {
        modules.addresses[modules.n] = module;
        number = (uint16_t)++modules.n;
        ph_interned_put(&modules.numbers, key ? key : 1, (const void *)(uintptr_t)number);
    }
    ph_unlock(PH_LOCK_SITES);
    return number;
}

/* The innermost module that the calling thread has called; 0: none. */
static uint16_t called(void) {
    uintptr_t frame = ph_frame_newest();
    for (int depth = 0; frame && depth < MAX_DEPTH; depth++, frame = ph_frame_previous(frame))
        if (ph_frame_code(frame) == modules.call) {
            uintptr_t module = ph_frame_first_local(frame);
            return module ? number_of(module) : 0;
        }
    return 0;
}

uint16_t ph_module(bool *backward) {
    *backward = false;
    if (!ph_modules_known) return 0;
    const ph_thread *thread = ph_self();
    if (thread->optimizer_depth) return PH_OUTSIDE_OPTIMIZER;
    *backward = ph_thread_kind() == PH_THREAD_AUTOGRAD;
    uint16_t number = called();
    return number || !*backward ? number : thread->node_module;
}

/* The last operator before the node is there counts: one on tensors without gradients, which makes none, has the same
 * number as the next one that does. */
void ph_module_makes(uint64_t node) {
    bool backward;
    uint64_t number = ph_module(&backward);
    atomic_store_explicit(&made[node & (MADE - 1)], node << MODULE_BITS | number, memory_order_relaxed);
}

/* A node that nobody has been seen to make, such as one that adds to a gradient, works for the module of the one before
 * it. */
void ph_module_runs(uint64_t node) {
    uint64_t known = atomic_load_explicit(&made[node & (MADE - 1)], memory_order_relaxed);
    if (known >> MODULE_BITS == node) ph_self()->node_module = (uint16_t)known;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* Called in the forker, behind phantora_sites. `call`: the code object of torch.nn.Module's call. */
PH_EXPORT void phantora_modules_of(uintptr_t call) {
    modules.call = call;
    ph_modules_known = call && ph_frame_layout_now.frame_locals >= 0;
}

/* The number of the module at this address, which gets one if it has none; 0: there are too many, or none is told
 * apart.
 */
PH_EXPORT int phantora_module_number(uint64_t address) { return ph_modules_known ? number_of((uintptr_t)address) : 0; }

/* Writes the addresses of the modules in order of their numbers, from 1 on, as far as there is room. Returns how many
 * there are. */
PH_EXPORT int phantora_modules(uint64_t *addresses, int capacity) {
    int n = (int)modules.n;
    for (int i = 0; i < n && i < capacity; i++) addresses[i] = modules.addresses[i];
    return n;
}
