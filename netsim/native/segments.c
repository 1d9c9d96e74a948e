/* Histories: levels of classes between instants, classes of flows, remaining bytes exact. */
#include "core.h"

#include <string.h>

/* left / rate to the nearest integer, half up; both positive. */
static int64_t divide(wide left, int64_t rate) {
    double guess = (double)left / (double)rate;
    if (guess > 4e18) return NS_NEVER;
    int64_t q = (int64_t)guess;
    wide rest = left - (wide)q * rate;
    /* The guess is off by at most a few hundred; one more division makes the rest small. */
    q += (int64_t)((double)rest / (double)rate);
    rest = left - (wide)q * rate;
    while (rest < 0) {
        q--;
        rest += rate;
    }
    while (rest >= rate) {
        q++;
        rest -= rate;
    }
    return q + (2 * rest >= rate);
}

/* The class's stretch at s->at: the last, but for one whose recorded levels a rollback follows. */
static const stretch *stretch_now(const netsim *s, const link_ *l) {
    int32_t i = s->view == PAST && !l->live ? l->cursor : l->nstretches - 1;
    return i < 0 ? NULL : &l->stretches[i];
}

wide sum_at(const netsim *s, int32_t link) {
    const stretch *x = stretch_now(s, &s->links[link]);
    return x ? x->sum + (wide)x->level * (s->at - x->at) : 0;
}

wide left_at(const netsim *s, const flow *f) {
    int32_t i = s->view == PAST && !f->live ? f->cursor : f->nsegments - 1;
    return f->segments[i].target - sum_at(s, f->segments[i].limit);
}

/* A class's flow is done in the tick that is nearest to the instant at which its target is reached, half up. */
bool aim_reached(const link_ *l, wide target, int64_t at) {
    const stretch *x = &l->stretches[l->nstretches - 1];
    return 2 * (target - x->sum) < (2 * (wide)(at - x->at) + 1) * x->level;
}

int64_t due_of(const netsim *s, int32_t link) {
    const link_ *l = &s->links[link];
    if (!l->naims) return NS_NEVER;
    const stretch *x = &l->stretches[l->nstretches - 1];
    if (x->level == 0) return NS_NEVER;
    int64_t lasts = divide(l->aims[0].target - x->sum, x->level);
    if (lasts > INT64_MAX / 2 - x->at) return NS_NEVER;
    /* A tick holds one event: what would end within half a tick of a change ends one tick after it. */
    int64_t due = x->at + lasts;
    return due > s->at ? due : s->at + 1;
}

void soil(netsim *s, int32_t link) {
    if (s->links[link].dirty) return;
    s->links[link].dirty = true;
    list_push(&s->dirty, link);
}

void write_stretch(netsim *s, int32_t link) {
    link_ *l = &s->links[link];
    int64_t level = s->levels[s->view][link];
    stretch *tail = l->nstretches ? &l->stretches[l->nstretches - 1] : NULL;
    if (tail && tail->level == level) return;
    if (tail && tail->at == s->at) {
        tail->level = level;
        return;
    }
    wide sum = tail ? tail->sum + (wide)tail->level * (s->at - tail->at) : 0;
    if (l->nstretches == l->stretches_room && l->nstretches > 4) {
        int32_t keep = 0;
        while (keep + 1 < l->nstretches && l->stretches[keep + 1].at <= s->horizon) keep++;
        l->nstretches -= keep;
        memmove(l->stretches, l->stretches + keep, (size_t)l->nstretches * sizeof *l->stretches);
    }
    l->stretches = grow(l->stretches, &l->stretches_room, l->nstretches + 1, sizeof *l->stretches);
    l->stretches[l->nstretches++] = (stretch){s->at, level, sum};
}

void write_segment(netsim *s, flow *f, int64_t at) {
    const flow_view *v = &f->view[s->view];
    segment now = {at, sum_at(s, v->limit) + f->left, v->limit, v->path};
    if (f->nsegments && f->segments[f->nsegments - 1].at == at) {
        f->segments[f->nsegments - 1] = now;
        return;
    }
    if (f->nsegments == f->room && f->nsegments > 4) {
        int32_t keep = 0;
        while (keep + 1 < f->nsegments && f->segments[keep + 1].at <= s->horizon) keep++;
        f->nsegments -= keep;
        memmove(f->segments, f->segments + keep, (size_t)f->nsegments * sizeof *f->segments);
    }
    f->segments = grow(f->segments, &f->room, f->nsegments + 1, sizeof *f->segments);
    f->segments[f->nsegments++] = now;
}

int64_t capacity_at(const link_ *l, int64_t at) {
    int32_t i = l->nsteps - 1;
    while (i > 0 && l->steps[i].at > at) i--;
    return l->steps[i].capacity;
}

int32_t path_at(const flow *f, int64_t at) {
    int32_t i = f->nepochs - 1;
    while (i > 0 && f->epochs[i].from > at) i--;
    return i < 0 ? 0 : f->epochs[i].path;
}
