/* Which flows use which links. */
#include "core.h"

static void move(netsim *s, link_ *l, int32_t to, member m, int64_t rate) {
    l->rosters[NOW].members[to] = m;
    l->rosters[NOW].rates[to] = rate;
    s->flows[m.flow].hops[m.hop].pos[NOW] = to;
}

static void swap(netsim *s, link_ *l, int32_t a, int32_t b) {
    const roster *r = &l->rosters[NOW];
    member x = r->members[a];
    int64_t rate = r->rates[a];
    move(s, l, a, r->members[b], r->rates[b]);
    move(s, l, b, x, rate);
}

void roster_push(roster *r, member m, int64_t rate) {
    int32_t room = r->room;
    r->members = grow(r->members, &room, r->n + 1, sizeof *r->members);
    r->rates = grow(r->rates, &r->room, r->n + 1, sizeof *r->rates);
    r->members[r->n] = m;
    r->rates[r->n++] = rate;
}

void attach(netsim *s, int32_t f, int32_t first) {
    for (int32_t i = first; i < s->flows[f].nhops; i++) {
        hop *h = &s->flows[f].hops[i];
        roster *r = &s->links[h->link].rosters[NOW];
        h->pos[NOW] = r->n;
        roster_push(r, (member){f, i, h->weight}, NOT_ON);
    }
}

void detach(netsim *s, int32_t f) {
    s->flows[f].view[NOW].on = false;
    place(s, f);
    for (int32_t i = 0; i < s->flows[f].nhops; i++) {
        hop *h = &s->flows[f].hops[i];
        link_ *l = &s->links[h->link];
        roster *r = &l->rosters[NOW];
        r->n--;
        if (h->pos[NOW] != r->n) move(s, l, h->pos[NOW], r->members[r->n], r->rates[r->n]);
    }
}

void place(netsim *s, int32_t f) {
    flow *x = &s->flows[f];
    for (int32_t i = 0; i < x->nhops; i++) {
        hop *h = &x->hops[i];
        link_ *l = &s->links[h->link];
        bool on = x->view[NOW].on && part_of(h, x->view[NOW].path);
        if (on && h->pos[NOW] >= l->on)
            swap(s, l, h->pos[NOW], l->on++);
        else if (!on && h->pos[NOW] < l->on)
            swap(s, l, h->pos[NOW], --l->on);
        if (on) l->rosters[NOW].rates[h->pos[NOW]] = x->view[NOW].rate;
    }
}
