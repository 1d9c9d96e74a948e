/* From touched flows and links back to the max-min solution, changing as few rates as possible.
 *
 * A set of flows is filled progressively while all others keep their rates; then each link of the set is checked
 * against the solution's definition (core.h). Flows that a check finds wrong, or that could become so, join the set,
 * until every check holds. What holds on every link is the solution, and there is only one.
 */
#include "core.h"

static inline bool present(const netsim *s, const member *m) {
    const flow *f = &s->flows[m->flow];
    const flow_view *v = &f->view[s->view];
    return v->on && part_of(&f->hops[m->hop], v->path);
}

/* Who may be on a link at the moment. */
static inline int32_t candidates(const netsim *s, const link_ *l) { return s->view == NOW ? l->on : l->npast; }
static inline const member *roster(const netsim *s, const link_ *l) { return s->view == NOW ? l->members : l->past; }

void touch(netsim *s, int32_t link) {
    if (!s->links[link].touched) {
        s->links[link].touched = true;
        list_push(&s->touched, link);
    }
}

void join_set(netsim *s, int32_t f) {
    flow *x = &s->flows[f];
    if (x->in_set) return;
    flow_view *v = &x->view[s->view];
    x->in_set = true;
    x->old_rate = v->rate;
    x->old_limit = v->limit;
    list_push(&s->set, f);
    if (s->view == PAST)
        for (int32_t i = 0; i < x->nhops; i++)
            if (part_of(&x->hops[i], v->path)) stamp(s, x->hops[i].link);
}

/* The link's level; flow `greedy` counts as if nothing else limited it. */
static int64_t level_of(netsim *s, const link_ *l, int32_t greedy) {
    const link_view *v = &l->view[s->view];
    if (candidates(s, l) > s->gather_room) {
        int32_t room = s->gather_room;
        s->rates = grow(s->rates, &room, candidates(s, l), sizeof *s->rates);
        s->weights = grow(s->weights, &s->gather_room, candidates(s, l), sizeof *s->weights);
    }
    int32_t n = 0;
    for (int32_t i = 0; i < candidates(s, l); i++) {
        const member *m = &roster(s, l)[i];
        if (m->flow == greedy || !present(s, m)) continue;
        s->rates[n] = s->flows[m->flow].view[s->view].rate;
        s->weights[n++] = s->flows[m->flow].hops[m->hop].weight;
    }
    int64_t weight = v->weight, below = 0;
    if (!weight) return INT64_MAX;
    for (int64_t level = v->capacity / weight;;) {
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++) {
            if (s->rates[i] < level) {
                below += s->rates[i] * s->weights[i];
                weight -= s->weights[i];
            } else {
                s->rates[kept] = s->rates[i];
                s->weights[kept++] = s->weights[i];
            }
        }
        if (kept == n) return level;
        if (!weight) return INT64_MAX;
        n = kept;
        level = (v->capacity - below) / weight;
    }
}

/* Before a new flow is filled: flows that must give way to it join the set with it. A guess; the checks decide. */
void make_room_for(netsim *s, int32_t f) {
    int64_t least = INT64_MAX, level;
    int32_t where = -1;
    for (int32_t i = 0; i < s->flows[f].nhops; i++) {
        const hop *h = &s->flows[f].hops[i];
        if (!part_of(h, s->flows[f].view[s->view].path)) continue;
        const link_view *v = &s->links[h->link].view[s->view];
        level = v->limits               ? level_of(s, &s->links[h->link], f)
                : v->load > v->capacity ? 0
                                        : (v->capacity - v->load) / h->weight;
        if (level < least) {
            least = level;
            where = h->link;
        }
    }
    if (where < 0 || !s->links[where].view[s->view].limits) return;
    for (int32_t i = 0; i < candidates(s, &s->links[where]); i++) {
        const member *m = &roster(s, &s->links[where])[i];
        if (present(s, m) && s->flows[m->flow].view[s->view].rate > least) join_set(s, m->flow);
    }
}

/* Does the definition hold on this link? If not, the flows that may have to change join the set. */
static void check(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    link_view *v = &l->view[s->view];
    /* With room for one more unit of every flow no level can be at or below any rate; and no flow relies on this link.
     */
    if (!v->limits && v->load + v->weight <= v->capacity) return;
    int64_t level = level_of(s, l, -1), least = level;
    bool named = false, wrong = false;
    for (int32_t i = 0; i < candidates(s, l); i++) {
        const member *m = &roster(s, l)[i];
        if (!present(s, m)) continue;
        const flow_view *f = &s->flows[m->flow].view[s->view];
        wrong |= f->rate > level;
        if (f->limit == id) {
            named = true;
            wrong |= f->rate != level;
            if (f->rate < least) least = f->rate;
        }
    }
    v->limits = named;
    if (!wrong) return;
    s->stuck = true; /* unless a flow joins the set in this round of checks */
    for (int32_t i = 0; i < candidates(s, l); i++) {
        const member *m = &roster(s, l)[i];
        if (!present(s, m)) continue;
        const flow_view *f = &s->flows[m->flow].view[s->view];
        if (f->rate >= least || f->limit == id) join_set(s, m->flow);
    }
}

static inline bool sooner(const netsim *s, int32_t a, int32_t b) { return s->links[a].share < s->links[b].share; }

static void sink(netsim *s, int32_t i) {
    int32_t *h = s->heap.items, n = s->heap.n, x = h[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && sooner(s, h[child + 1], h[child])) child++;
        if (!sooner(s, h[child], x)) break;
        h[i] = h[child];
    }
    h[i] = x;
}

/* Collect what the set wants of each link: capacity left by the others, weight, and who. */
static void lay_out(netsim *s) {
    s->mark++;
    s->ulinks.n = 0;
    int32_t total = 0;
    for (int32_t i = 0; i < s->set.n; i++) {
        flow *f = &s->flows[s->set.items[i]];
        f->fixed = false;
        for (int32_t j = 0; j < f->nhops; j++) {
            const hop *h = &f->hops[j];
            if (!part_of(h, f->view[s->view].path)) continue;
            link_ *l = &s->links[h->link];
            if (l->mark != s->mark) {
                l->mark = s->mark;
                l->left = l->view[s->view].capacity - l->view[s->view].load;
                l->weight = 0;
                l->count = 0;
                l->full = false;
                list_push(&s->ulinks, h->link);
            }
            l->left += h->weight * f->view[s->view].rate;
            l->weight += h->weight;
            l->count++;
            total++;
        }
    }
    s->entries.items = grow(s->entries.items, &s->entries.room, total, sizeof *s->entries.items);
    s->heap.items = grow(s->heap.items, &s->heap.room, s->ulinks.n, sizeof *s->heap.items);
    s->heap.n = s->ulinks.n;
    int32_t first = 0;
    for (int32_t i = 0; i < s->ulinks.n; i++) {
        link_ *l = &s->links[s->ulinks.items[i]];
        l->first = first;
        first += l->count;
        l->count = 0;
        l->share = l->left > 0 ? l->left / l->weight : 0;
        s->heap.items[i] = s->ulinks.items[i];
    }
    for (int32_t i = 0; i < s->set.n; i++) {
        const flow *f = &s->flows[s->set.items[i]];
        for (int32_t j = 0; j < f->nhops; j++)
            if (part_of(&f->hops[j], f->view[s->view].path)) {
                link_ *l = &s->links[f->hops[j].link];
                s->entries.items[l->first + l->count++] = s->set.items[i];
            }
    }
    for (int32_t i = s->heap.n / 2 - 1; i >= 0; i--) sink(s, i);
}

/* Take from the heap every link whose share is the least; shares in the heap are lower bounds, as a share never falls.
 */
static int64_t take_full(netsim *s) {
    int64_t share = -1;
    s->full.n = 0;
    while (s->heap.n) {
        link_ *l = &s->links[s->heap.items[0]];
        if (share >= 0 && l->share > share) break;
        if (l->weight) {
            int64_t actual = l->left > 0 ? l->left / l->weight : 0;
            if (actual > l->share) {
                l->share = actual;
                sink(s, 0);
                continue;
            }
            share = actual;
            l->full = true;
            list_push(&s->full, s->heap.items[0]);
        }
        s->heap.items[0] = s->heap.items[--s->heap.n];
        if (s->heap.n) sink(s, 0);
    }
    return share;
}

static void fix(netsim *s, flow *f, int64_t rate, int32_t limit) {
    flow_view *v = &f->view[s->view];
    int64_t more = rate - v->rate;
    for (int32_t j = 0; j < f->nhops; j++) {
        const hop *h = &f->hops[j];
        if (!part_of(h, v->path)) continue;
        link_ *l = &s->links[h->link];
        l->left -= h->weight * rate;
        l->weight -= h->weight;
        l->view[s->view].load += h->weight * more;
        /* Of several limits keep the one the flow had: its history then need not change. */
        if (h->link == f->old_limit && l->full && l->share == rate) limit = h->link;
    }
    v->rate = rate;
    v->limit = limit;
    s->links[limit].view[s->view].limits = true;
    f->fixed = true;
}

/* Fill the set. True: no other flow is on its links, so this is the solution by definition. */
static bool fill(netsim *s) {
    s->count.filled += s->set.n;
    lay_out(s);
    bool alone = true;
    for (int32_t i = 0; i < s->ulinks.n && alone; i++)
        alone = s->links[s->ulinks.items[i]].weight == s->links[s->ulinks.items[i]].view[s->view].weight;
    while (s->heap.n) {
        int64_t share = take_full(s);
        for (int32_t i = 0; i < s->full.n; i++) {
            int32_t id = s->full.items[i];
            const link_ *l = &s->links[id];
            for (int32_t j = 0; j < l->count; j++) {
                flow *f = &s->flows[s->entries.items[l->first + j]];
                if (!f->fixed) fix(s, f, share, id);
            }
        }
    }
    return alone;
}

/* Never needed if the argument in docs/netsim.md is right: solve everything that is connected to the set. */
static void take_component(netsim *s) {
    s->count.stuck++;
    for (int32_t i = 0; i < s->set.n; i++) {
        const flow *f = &s->flows[s->set.items[i]];
        for (int32_t j = 0; j < f->nhops; j++) {
            const link_ *l = &s->links[f->hops[j].link];
            for (int32_t k = 0; part_of(&f->hops[j], f->view[s->view].path) && k < candidates(s, l); k++)
                if (present(s, &roster(s, l)[k])) {
                    join_set(s, roster(s, l)[k].flow);
                    f = &s->flows[s->set.items[i]];
                }
        }
    }
}

void solve(netsim *s) {
    s->count.solves++;
    for (int32_t filled = 0;;) {
        s->stuck = false;
        for (int32_t i = 0; i < s->touched.n; i++) {
            s->links[s->touched.items[i]].touched = false;
            check(s, s->touched.items[i]);
        }
        s->touched.n = 0;
        if (s->set.n == filled) {
            if (s->stuck) {
                take_component(s);
                fill(s);
            }
            return;
        }
        filled = s->set.n;
        if (fill(s)) return;
        for (int32_t i = 0; i < s->ulinks.n; i++) touch(s, s->ulinks.items[i]);
    }
}
