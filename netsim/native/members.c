/* Which flows use which links: all that ever cross a link, and the bundles of those on it in a view. */
#include "core.h"

static void roster_push(roster *r, member m) {
    r->items = grow(r->items, &r->room, r->n + 1, sizeof *r->items);
    r->items[r->n++] = m;
}

void attach(netsim *s, int32_t f, int32_t first) {
    for (int32_t i = first; i < s->flows[f].nhops; i++) {
        hop *h = &s->flows[f].hops[i];
        h->entry = s->links[h->link].all.n;
        roster_push(&s->links[h->link].all, (member){f, i});
    }
}

void detach(netsim *s, int32_t f) {
    for (int32_t i = 0; i < s->flows[f].nhops; i++) {
        const hop *h = &s->flows[f].hops[i];
        roster *r = &s->links[h->link].all;
        member tail = r->items[--r->n];
        r->items[h->entry] = tail;
        s->flows[tail.flow].hops[tail.hop].entry = h->entry;
    }
}

static int32_t share_push(shares *x, int32_t other, int32_t b) {
    x->items = grow(x->items, &x->room, x->n + 1, sizeof *x->items);
    x->items[x->n] = (share){other, b, 0};
    return x->n++;
}

/* The bundle of a class on a link, or -1: looked up on the side that has fewer. */
static int32_t find_bundle(const netsim *s, enum view v, int32_t link, int32_t limit) {
    const shares *on = &s->links[link].on[v], *of = &s->links[limit].of[v];
    const shares *x = on->n < of->n ? on : of;
    int32_t other = x == on ? limit : link;
    for (int32_t i = 0; i < x->n; i++)
        if (x->items[i].other == other) return x->items[i].bundle;
    return -1;
}

static int32_t new_bundle(netsim *s, enum view v, int32_t link, int32_t limit) {
    bool first = !s->free_bundles.n; /* of its number */
    int32_t id = first ? s->nbundles++ : s->free_bundles.items[--s->free_bundles.n];
    if (id >= s->bundles_room) s->bundles = grow(s->bundles, &s->bundles_room, id + 1, sizeof *s->bundles);
    bundle *b = &s->bundles[id];
    if (first) b->flows = (roster){NULL, 0, 0};
    b->link = link;
    b->limit = limit;
    b->on = share_push(&s->links[link].on[v], limit, id);
    b->of = share_push(&s->links[limit].of[v], link, id);
    if (link == limit) s->links[link].self[v] = id;
    return id;
}

static void free_bundle(netsim *s, enum view v, int32_t id) {
    const bundle *b = &s->bundles[id];
    shares *on = &s->links[b->link].on[v], *of = &s->links[b->limit].of[v];
    on->items[b->on] = on->items[--on->n];
    s->bundles[on->items[b->on].bundle].on = b->on;
    of->items[b->of] = of->items[--of->n];
    s->bundles[of->items[b->of].bundle].of = b->of;
    list_push(&s->free_bundles, id);
}

static void weigh(netsim *s, enum view v, const bundle *b, int64_t weight) {
    link_ *l = &s->links[b->link];
    l->on[v].items[b->on].weight += weight;
    s->links[b->limit].of[v].items[b->of].weight += weight;
    l->view[v].weight += weight;
    if (b->link == b->limit) l->view[v].own += weight;
}

void join_bundle(netsim *s, enum view v, int32_t f, int32_t hop_, int32_t limit) {
    hop *h = &s->flows[f].hops[hop_];
    int32_t id = find_bundle(s, v, h->link, limit);
    if (id < 0) id = new_bundle(s, v, h->link, limit);
    bundle *b = &s->bundles[id];
    h->bundle[v] = id;
    h->pos[v] = b->flows.n;
    roster_push(&b->flows, (member){f, hop_});
    weigh(s, v, b, h->weight);
}

void leave_bundle(netsim *s, enum view v, int32_t f, int32_t hop_) {
    const hop *h = &s->flows[f].hops[hop_];
    bundle *b = &s->bundles[h->bundle[v]];
    weigh(s, v, b, -(int64_t)h->weight);
    member tail = b->flows.items[--b->flows.n];
    b->flows.items[h->pos[v]] = tail;
    s->flows[tail.flow].hops[tail.hop].pos[v] = h->pos[v];
    if (!b->flows.n) free_bundle(s, v, h->bundle[v]);
}

void free_bundles_on(netsim *s, int32_t link) {
    shares *on = &s->links[link].on[PAST];
    for (int32_t i = 0; i < on->n; i++) {
        s->links[on->items[i].other].of[PAST].n = 0;
        s->bundles[on->items[i].bundle].flows.n = 0;
        list_push(&s->free_bundles, on->items[i].bundle);
    }
    on->n = 0;
}

const roster *members_of(const netsim *s, int32_t link) {
    static const roster nobody;
    const link_ *l = &s->links[link];
    return l->view[s->view].own ? &s->bundles[l->self[s->view]].flows : &nobody;
}
