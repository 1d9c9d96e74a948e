/* The links that a sweep has to look at: a heap by level, in which a link may move. */
#include "core.h"

static void put_at(netsim *s, int32_t i, look x) {
    s->looks[i] = x;
    s->links[x.link].place = i;
}

/* Up from a place, which is free. */
static void rise(netsim *s, int32_t i, look x) {
    look *h = s->looks;
    for (; i && h[(i - 1) / 2].level > x.level; i = (i - 1) / 2) put_at(s, i, h[(i - 1) / 2]);
    put_at(s, i, x);
}

/* Down from a place, which is free: first to the end, because what goes down there comes from the end most often. */
static void sink(netsim *s, int32_t i, look x) {
    look *h = s->looks;
    int32_t child;
    for (; (child = 2 * i + 2) < s->nlooks; i = child) {
        child -= h[child - 1].level < h[child].level;
        put_at(s, i, h[child]);
    }
    if (child == s->nlooks) {
        put_at(s, i, h[child - 1]);
        i = child - 1;
    }
    rise(s, i, x);
}

void look_put(netsim *s, int32_t link, int64_t level) {
    link_ *l = &s->links[link];
    l->key = level;
    if (l->place < 0) {
        s->looks = grow(s->looks, &s->looks_room, s->nlooks + 1, sizeof *s->looks);
        l->place = s->nlooks++;
    }
    if (l->place + 1 == s->nlooks || level < s->looks[l->place].level)
        rise(s, l->place, (look){level, link});
    else
        sink(s, l->place, (look){level, link});
}

int32_t look_pop(netsim *s) {
    int32_t link = s->looks[0].link;
    look tail = s->looks[--s->nlooks];
    s->links[link].place = -1;
    if (s->nlooks) sink(s, 0, tail);
    return link;
}

void looks_order(netsim *s, int32_t n) {
    for (s->nlooks = 1; s->nlooks <= n; s->nlooks++) rise(s, s->nlooks - 1, s->looks[s->nlooks - 1]);
    s->nlooks = n;
}
