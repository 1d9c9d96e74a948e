/* A flow's history: constant rates between instants, remaining bytes exact. */
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

int64_t completion_of(const flow *f) {
    const segment *x = &f->segments[f->nsegments - 1];
    if (x->rate == 0) return NS_NEVER;
    int64_t lasts = divide(x->left, x->rate);
    if (lasts > INT64_MAX / 2 - x->at) return NS_NEVER;
    /* A tick holds one event: what would end within half a tick of a change ends one tick after it. */
    return x->at + (lasts ? lasts : 1);
}

void write_segment(netsim *s, flow *f, int64_t at) {
    const flow_view *v = &f->view[s->view];
    segment *tail = f->nsegments ? &f->segments[f->nsegments - 1] : NULL;
    if (tail && tail->at == at) {
        tail->rate = v->rate;
        tail->limit = v->limit;
        tail->path = v->path;
        return;
    }
    wide left = tail ? tail->left - (wide)tail->rate * (at - tail->at) : (wide)f->nbytes << 60;
    if (f->nsegments == f->room && f->nsegments > 4) {
        int32_t keep = 0;
        while (keep + 1 < f->nsegments && f->segments[keep + 1].at <= s->horizon) keep++;
        f->nsegments -= keep;
        memmove(f->segments, f->segments + keep, (size_t)f->nsegments * sizeof *f->segments);
    }
    f->segments = grow(f->segments, &f->room, f->nsegments + 1, sizeof *f->segments);
    f->segments[f->nsegments++] = (segment){at, v->rate, left, v->limit, v->path};
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
