/* A whole trace in one call. */
#include "core.h"

#include <stdlib.h>

enum { COMMIT_EVERY = 8, COUNT_EVERY = 128 };

static void play_commit(netsim *s, int64_t to_come, const int32_t *index, int64_t *done, int64_t *most_bytes,
                        int batch) {
    if (batch % COUNT_EVERY == 0) {
        ns_counters now;
        ns_count(s, &now);
        if (now.bytes > *most_bytes) *most_bytes = now.bytes;
    }
    ns_commit(s, to_come < s->present ? to_come : s->present);
    for (int32_t i = 0; i < s->nout; i++) done[index[s->out_flows[i] & 0x7fffffff]] = s->out_ticks[i];
}

/* One submission after the other, in order of `submit`; see netsim.h. */
void ns_play(netsim *s, int count, const int32_t *order, const int64_t *submit, const int64_t *starts,
             const int64_t *nbytes, const int64_t *offsets, const int32_t *links, int64_t *done, int64_t *most_bytes) {
    int32_t *index = NULL, room = 0;
    int64_t *to_come = malloc(((size_t)count + 1) * sizeof *to_come);
    if (!to_come) abort();
    to_come[count] = NS_NEVER;
    for (int i = count - 1; i >= 0; i--)
        to_come[i] = starts[order[i]] < to_come[i + 1] ? starts[order[i]] : to_come[i + 1];
    for (int i = 0; i < count; i++) {
        int32_t k = order[i];
        if (submit[k] > s->present) ns_advance(s, submit[k]);
        if (i % COMMIT_EVERY == 0) play_commit(s, to_come[i], index, done, most_bytes, i / COMMIT_EVERY);
        int32_t nlinks = (int32_t)(offsets[k + 1] - offsets[k]);
        int64_t name = add_plain(s, starts[k], nbytes[k], nlinks, links + offsets[k]);
        index = grow(index, &room, (int32_t)(name & 0x7fffffff) + 1, sizeof *index);
        index[name & 0x7fffffff] = k;
    }
    int batch = 0;
    for (int64_t at; (at = next_event(s)) != NS_NEVER; batch++) {
        for (int i = 0; i < COMMIT_EVERY && (at = next_event(s)) != NS_NEVER; i++) process(s, at);
        ns_advance(s, s->last);
        play_commit(s, s->last, index, done, most_bytes, batch);
    }
    ns_advance(s, s->last > s->present ? s->last : s->present);
    play_commit(s, s->present, index, done, most_bytes, 0);
    free(index);
    free(to_come);
}
