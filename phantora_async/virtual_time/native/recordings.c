/* A rank's event recordings by number: an open hash table. */
#include <stdlib.h>

#include "engine.h"

static int64_t slot_of(const recording_map *in, uint64_t number) {
    uint64_t hash = number * 0x9e3779b97f4a7c15u;
    int64_t slot = (int64_t)((hash ^ hash >> 32) & (uint64_t)(in->room - 1));
    while (in->keys[slot] && in->keys[slot] != number + 1) slot = (slot + 1) & (in->room - 1);
    return slot;
}

/* NULL: it was never made, or is dropped. */
recording *recording_of(const host *it, uint64_t number) {
    const recording_map *in = &it->recordings;
    if (!in->n) return NULL;
    int64_t slot = slot_of(in, number);
    return in->keys[slot] ? in->values[slot] : NULL;
}

static void enter(recording_map *in, recording *what) {
    int64_t slot = slot_of(in, what->number);
    in->n += !in->keys[slot];
    in->keys[slot] = what->number + 1;
    in->values[slot] = what;
}

void keep_recording(host *it, recording *what) {
    recording_map *in = &it->recordings;
    if (2 * (in->n + 1) > in->room) {
        recording_map more = {.room = in->room ? 2 * in->room : 16};
        more.keys = take((size_t)more.room * sizeof *more.keys);
        more.values = take((size_t)more.room * sizeof *more.values);
        for (int64_t i = 0; i < in->room; i++)
            if (in->keys[i]) enter(&more, in->values[i]);
        free(in->keys);
        free(in->values);
        *in = more;
    }
    enter(in, what);
}

/* Those behind it move up, so that no grave is left. */
void lose_recording(host *it, uint64_t number) {
    recording_map *in = &it->recordings;
    int64_t hole = slot_of(in, number), mask = in->room - 1;
    if (!in->keys[hole]) return;
    in->n--;
    in->keys[hole] = 0;
    for (int64_t at = (hole + 1) & mask; in->keys[at]; at = (at + 1) & mask) {
        recording *moved = in->values[at];
        in->keys[at] = 0;
        int64_t slot = slot_of(in, moved->number);
        in->keys[slot] = moved->number + 1;
        in->values[slot] = moved;
    }
}
