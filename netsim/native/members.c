/* Which flows use which links. */
#include "core.h"

static void move(netsim *s, link_ *l, int32_t to, member m) {
    l->members[to] = m;
    s->flows[m.flow].hops[m.hop].pos = to;
}

static void swap(netsim *s, link_ *l, int32_t a, int32_t b) {
    member x = l->members[a], y = l->members[b];
    move(s, l, a, y);
    move(s, l, b, x);
}

void attach(netsim *s, int32_t f, int32_t first) {
    for (int32_t i = first; i < s->flows[f].nhops; i++) {
        link_ *l = &s->links[s->flows[f].hops[i].link];
        l->members = grow(l->members, &l->room, l->n + 1, sizeof *l->members);
        move(s, l, l->n++, (member){f, i});
    }
}

void detach(netsim *s, int32_t f) {
    s->flows[f].view[NOW].on = false;
    place(s, f);
    for (int32_t i = 0; i < s->flows[f].nhops; i++) {
        hop *h = &s->flows[f].hops[i];
        link_ *l = &s->links[h->link];
        if (h->pos != --l->n) move(s, l, h->pos, l->members[l->n]);
    }
}

void place(netsim *s, int32_t f) {
    flow *x = &s->flows[f];
    for (int32_t i = 0; i < x->nhops; i++) {
        hop *h = &x->hops[i];
        link_ *l = &s->links[h->link];
        bool on = x->view[NOW].on && part_of(h, x->view[NOW].path);
        if (on && h->pos >= l->on)
            swap(s, l, h->pos, l->on++);
        else if (!on && h->pos < l->on)
            swap(s, l, h->pos, --l->on);
    }
}
