/*
 * How much device memory is allocated over one step, and for what: at up to PH_MOST_STEP_POINTS points, each of which
 * stands for as many allocations as the others. What a point has is the sum of all changes until its end, so blocks
 * whose purpose is learned later are moved at the point that they were given out at.
 */
#include "holders/holders.h"
#include "core/alloc.h"

#include <string.h>

enum { HALF = PH_MOST_STEP_POINTS / 2 };

struct ph_over_step {
    uint64_t before_first, last;            /* allocations: their numbers */
    uint32_t shift;                         /* a point has 2^shift allocations */
    int64_t before[PH_HELD_PURPOSES], live; /* live: at present, whatever for */
    int64_t changes[PH_MOST_STEP_POINTS][PH_HELD_PURPOSES];
    int64_t most[PH_MOST_STEP_POINTS]; /* live at the same time */
};

ph_over_step *ph_over_step_make(uint64_t before) {
    ph_over_step *step = ph_allocate(sizeof *step);
    *step = (ph_over_step){.before_first = before, .last = before};
    return step;
}

static size_t point_of(const ph_over_step *step, uint64_t number) {
    return (number - step->before_first) >> step->shift;
}

static void halve(ph_over_step *step) {
    for (size_t i = 0; i < HALF; i++) {
        for (size_t purpose = 0; purpose < PH_HELD_PURPOSES; purpose++)
            step->changes[i][purpose] = step->changes[2 * i][purpose] + step->changes[2 * i + 1][purpose];
        int64_t one = step->most[2 * i], other = step->most[2 * i + 1];
        step->most[i] = one > other ? one : other;
    }
    memset(step->changes[HALF], 0, HALF * sizeof *step->changes);
    memset(step->most + HALF, 0, HALF * sizeof *step->most);
    step->shift++;
}

/* Points without an allocation of this device have what was live before them. */
static void reach(ph_over_step *step, uint64_t number) {
    while (point_of(step, number) >= PH_MOST_STEP_POINTS) halve(step);
    for (size_t i = point_of(step, step->last) + 1; i <= point_of(step, number); i++) step->most[i] = step->live;
    if (number > step->last) step->last = number;
}

void ph_over_step_change(ph_over_step *step, uint64_t number, int64_t nbytes, uint8_t held_as) {
    reach(step, number);
    size_t at = point_of(step, number);
    step->changes[at][held_as] += nbytes;
    step->live += nbytes;
    if (step->live > step->most[at]) step->most[at] = step->live;
}

void ph_over_step_move(ph_over_step *step, uint64_t number, uint64_t nbytes, uint8_t from, uint8_t to) {
    int64_t *at = number < step->before_first ? step->before : step->changes[point_of(step, number)];
    at[from] -= (int64_t)nbytes;
    at[to] += (int64_t)nbytes;
}

void ph_over_step_next(ph_over_step *step, uint64_t before) {
    for (size_t i = 0; i < PH_MOST_STEP_POINTS; i++)
        for (size_t purpose = 0; purpose < PH_HELD_PURPOSES; purpose++)
            step->before[purpose] += step->changes[i][purpose];
    memset(step->changes, 0, sizeof step->changes);
    memset(step->most, 0, sizeof step->most);
    step->before_first = step->last = before;
    step->shift = 0;
    step->most[0] = step->live;
}

size_t ph_over_step_points(const ph_over_step *step, struct ph_MEMORY_POINT points[PH_MOST_STEP_POINTS]) {
    int64_t now[PH_HELD_PURPOSES];
    memcpy(now, step->before, sizeof now);
    size_t n = point_of(step, step->last) + 1;
    for (size_t i = 0; i < n; i++) {
        for (size_t purpose = 0; purpose < PH_HELD_PURPOSES; purpose++) now[purpose] += step->changes[i][purpose];
        points[i] = (struct ph_MEMORY_POINT){.most = (uint64_t)step->most[i],
                                             .parameters = (uint64_t)now[PH_HELD_PARAMETERS],
                                             .gradients = (uint64_t)now[PH_HELD_GRADIENTS],
                                             .optimizer_state = (uint64_t)now[PH_HELD_OPTIMIZER_STATE],
                                             .activations = (uint64_t)now[PH_HELD_ACTIVATIONS],
                                             .temporaries = (uint64_t)now[PH_HELD_TEMPORARIES]};
    }
    return n;
}

uint64_t ph_over_step_allocations(const ph_over_step *step) { return step->last - step->before_first; }
