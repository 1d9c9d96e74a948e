/*
 * How much device memory a run takes at least that is as the present one, but in which no collective keeps a block
 * longer than the program does.
 *
 * PyTorch keeps the tensors of a collective for whose end nobody waits until NCCL's watchdog has found it done, which
 * it looks for every 100 ms, and the process group starts its next one. The run has it find them late. Had it found
 * them early, a block that is freed then would have been free since the launch after the collective's, unless somebody
 * else still had it. So peaks are kept for the windows between launches, and a block that a process group frees lowers
 * those that it need not have been in; so does one that it has not freed yet, but which nobody else is known to have
 * (spare in holders.c): a short run ends before the watchdog looks late. Somebody else may have had it for a part of
 * them: the result is a lower bound.
 *
 * Blocks that the allocator keeps until other streams have used them (Tensor.record_stream) count as allocated until
 * the program frees them: what keeps them changes what is reserved, not what is allocated.
 */
#include "core/alloc.h"
#include "holders/holders.h"

#include <stdlib.h>

enum { FIRST_WINDOWS = 64, MOST_WINDOWS = 65536 };

struct ph_least {
    uint64_t *most;              /* bytes at one time; window w is at w % room */
    uint64_t room, first, now;   /* windows: how many fit, the oldest one that is kept, the present one */
    uint64_t before_first, live; /* the most in earlier ones; at present */
};

ph_least *ph_least_make(void) {
    ph_least *it = ph_allocate(sizeof *it);
    *it =
        (ph_least){.most = ph_allocate(FIRST_WINDOWS * sizeof *it->most), .room = FIRST_WINDOWS, .first = 1, .now = 1};
    return it;
}

static uint64_t *window(const ph_least *it, uint64_t number) { return &it->most[number % it->room]; }

static void grow(ph_least *it) {
    ph_least wider = *it;
    wider.room *= 2;
    wider.most = ph_allocate(wider.room * sizeof *wider.most);
    for (uint64_t i = it->first; i <= it->now; i++) *window(&wider, i) = *window(it, i);
    free(it->most);
    *it = wider;
}

void ph_least_change(ph_least *it, int64_t nbytes) {
    it->live += (uint64_t)nbytes;
    uint64_t *most = window(it, it->now);
    if (it->live > *most) *most = it->live;
}

void ph_least_launch(ph_least *it) {
    if (it->now - it->first + 1 == it->room) {
        if (it->room < MOST_WINDOWS) {
            grow(it);
        } else {
            uint64_t oldest = *window(it, it->first++);
            if (oldest > it->before_first) it->before_first = oldest;
        }
    }
    *window(it, ++it->now) = it->live;
}

uint64_t ph_least_launched(const ph_least *it) { return it->now; }

void ph_least_since(ph_least *it, uint64_t launched, uint64_t nbytes) {
    uint64_t from = launched < it->first ? it->first : launched + 1;
    for (uint64_t i = from; i <= it->now; i++) *window(it, i) -= nbytes;
}

uint64_t ph_least_peak(const ph_least *it) {
    uint64_t peak = it->before_first;
    for (uint64_t i = it->first; i <= it->now; i++)
        if (*window(it, i) > peak) peak = *window(it, i);
    return peak;
}
