/*
 * How fast GPUs and hosts go on: see faults/pace.py. Because a pace is fixed before anything happens, no event tells of
 * a change and no rollback takes one back. Instants are counted from origin_ns on.
 */
#include "engine.h"

void set_pace(pace *it, const int64_t *starts, const int64_t *paces, int64_t n, int64_t known_ns) {
    while (it->n < n) {
        it->parts = grown(it->parts, it->n, &it->room, sizeof *it->parts);
        pace_part *next = &it->parts[it->n];
        *next = (pace_part){.start_ns = starts[it->n], .pace = paces[it->n]};
        if (it->n++) next->done = next[-1].done + (wide)next[-1].pace * (next->start_ns - next[-1].start_ns);
    }
    it->known_ns = known_ns;
}

/* The parts reach beyond this instant. */
static void know(engine *e, pace *it, int64_t at_ns) {
    while (it->known_ns <= at_ns && !e->raised) e->raised = e->to.more(it->number, at_ns) < 0;
}

static const pace_part *part_at(const pace *it, int64_t at_ns) {
    int64_t first = 0, behind = it->n;
    while (behind - first > 1) {
        int64_t middle = (first + behind) / 2;
        if (it->parts[middle].start_ns <= at_ns)
            first = middle;
        else
            behind = middle;
    }
    return &it->parts[first];
}

static wide done_until(engine *e, pace *it, int64_t at_ns) {
    know(e, it, at_ns);
    const pace_part *part = part_at(it, at_ns);
    return part->done + (wide)part->pace * (at_ns - part->start_ns);
}

wide paced_work(engine *e, pace *it, int64_t from_ns, int64_t to_ns) {
    if (!it) return to_ns - from_ns;
    return done_until(e, it, to_ns + it->origin_ns) - done_until(e, it, from_ns + it->origin_ns);
}

int64_t paced_end(engine *e, pace *it, int64_t from_ns, wide work) {
    if (!it) return from_ns + (int64_t)work;
    if (work <= 0) return from_ns;
    wide target = done_until(e, it, from_ns + it->origin_ns) + work;
    /* Of a pace that never ends, no more is asked for once it is 0 for ever. */
    while (it->known_ns < NEVER && !e->raised && done_until(e, it, it->known_ns - 1) < target &&
           !(it->dead_until_ns == NEVER && it->dead_from_ns < it->known_ns))
        know(e, it, it->known_ns);
    int64_t first = 0, behind = it->n; /* the last part that begins with less done than that */
    while (behind - first > 1) {
        int64_t middle = (first + behind) / 2;
        if (it->parts[middle].done < target)
            first = middle;
        else
            behind = middle;
    }
    const pace_part *part = &it->parts[first];
    if (!part->pace) return NEVER;
    return part->start_ns + (int64_t)((target - part->done + part->pace - 1) / part->pace) - it->origin_ns;
}

int64_t paced(engine *e, pace *it, int64_t from_ns, int64_t for_ns) {
    return paced_end(e, it, from_ns, it ? (wide)for_ns * FULL_PACE : for_ns);
}

int64_t pace_at(engine *e, pace *it, int64_t at_ns) {
    know(e, it, at_ns + it->origin_ns);
    return part_at(it, at_ns + it->origin_ns)->pace;
}

int64_t part_behind(engine *e, pace *it, int64_t at_ns) {
    know(e, it, at_ns + it->origin_ns);
    return part_at(it, at_ns + it->origin_ns) - it->parts + 1;
}

bool is_dead(const pace *it, int64_t at_ns) {
    return it && it->dead_from_ns <= at_ns + it->origin_ns && at_ns + it->origin_ns < it->dead_until_ns;
}

int64_t dies_ns(const pace *it) { return !it || it->dead_from_ns == NEVER ? NEVER : it->dead_from_ns - it->origin_ns; }
