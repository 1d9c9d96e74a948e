/* The links that a sweep has to look at: a heap by level, in which a link may move. */
#include "core.h"

static void put_at(netsim *s, int32_t i, look x) {
    s->looks[i] = x;
    s->links[x.link].place = i;
}

static void sift(netsim *s, int32_t i, look x) {
    look *h = s->looks;
    for (; i && h[(i - 1) / 2].level > x.level; i = (i - 1) / 2) put_at(s, i, h[(i - 1) / 2]);
    for (int32_t child; (child = 2 * i + 1) < s->nlooks; i = child) {
        if (child + 1 < s->nlooks && h[child + 1].level < h[child].level) child++;
        if (h[child].level >= x.level) break;
        put_at(s, i, h[child]);
    }
    put_at(s, i, x);
}

void look_put(netsim *s, int32_t link, int64_t level) {
    link_ *l = &s->links[link];
    l->key = level;
    if (l->place < 0) {
        s->looks = grow(s->looks, &s->looks_room, s->nlooks + 1, sizeof *s->looks);
        l->place = s->nlooks++;
    }
    sift(s, l->place, (look){level, link});
}

int32_t look_pop(netsim *s) {
    int32_t link = s->looks[0].link;
    look tail = s->looks[--s->nlooks];
    s->links[link].place = -1;
    if (s->nlooks) sift(s, 0, tail);
    return link;
}

void looks_order(netsim *s, int32_t n) {
    for (s->nlooks = 1; s->nlooks <= n; s->nlooks++) sift(s, s->nlooks - 1, s->looks[s->nlooks - 1]);
    s->nlooks = n;
}
