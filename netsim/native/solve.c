/* From touched flows and links back to the max-min solution, changing as few rates as possible.
 *
 * One sweep over the levels, from low to high. The *set* holds the flows whose rates are sought; all others keep
 * theirs. A flow joins the set no later than the sweep reaches the lower one of its old and its new rate:
 *
 *   - at the start, if it is new or a check of a touched link found it wrong;
 *   - when a link becomes full below its rate, and it must give way;
 *   - when the sweep reaches its rate, and the link that limited it is not full.
 *
 * A link is looked at again at a lower bound of its level, at the latest where it limited flows until now. When it is
 * full at the sweep's level, the set's flows on it have their rate. So the definition (core.h) holds on every link up
 * to the sweep's level, and no rate is found twice.
 */
#include "core.h"

/* Who may be on a link at the moment. */
static inline const roster *roster_of(const netsim *s, const link_ *l) { return &l->rosters[s->view]; }
static inline int32_t candidates(const netsim *s, const link_ *l) {
    return s->view == NOW ? l->on : l->rosters[PAST].n;
}

static inline void set_rate_on(netsim *s, const hop *h, int64_t rate) {
    s->links[h->link].rosters[s->view].rates[h->pos[s->view]] = rate;
}

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

/* Gathers the rates that are not less than `bound` of those on a link: their number. */
static int32_t gather(netsim *s, const link_ *l, int64_t bound) {
    const roster *r = roster_of(s, l);
    int32_t n = 0, count = candidates(s, l), room = s->gather_room;
    s->rates = grow(s->rates, &room, count, sizeof *s->rates);
    s->weights = grow(s->weights, &s->gather_room, count, sizeof *s->weights);
    for (int32_t i = 0; i < count; i++) {
        s->rates[n] = r->rates[i];
        s->weights[n] = r->members[i].weight;
        n += r->rates[i] >= bound;
    }
    return n;
}

/* A level by its definition: `left` is shared by `weight`, of which the n gathered flows take less if their rate is
 * less.
 */
static int64_t gathered_level(netsim *s, int32_t n, int64_t *left_, int64_t *weight_) {
    int64_t left = *left_, weight = *weight_;
    for (;;) {
        *left_ = left;
        *weight_ = weight;
        if (!weight) return INT64_MAX;
        int64_t level = left > 0 ? left / weight : 0;
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++) {
            if (s->rates[i] < level) {
                left -= s->rates[i] * s->weights[i];
                weight -= s->weights[i];
            } else {
                s->rates[kept] = s->rates[i];
                s->weights[kept++] = s->weights[i];
            }
        }
        if (kept == n) return level;
        n = kept;
    }
}

/* Does the definition hold on a touched link? If not, the flows that may have to change join the set. */
static void check(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    link_view *v = &l->view[s->view];
    /* With room for one more unit of every flow no level can be at or below any rate; and no flow relies on this link.
     */
    if (!v->limited && v->load + v->weight <= v->capacity) return;
    const roster *r = roster_of(s, l);
    int64_t left = v->capacity, weight = v->weight;
    int64_t level = gathered_level(s, gather(s, l, 0), &left, &weight), least = level;
    bool wrong = false;
    for (int32_t i = 0; i < candidates(s, l); i++) {
        if (r->rates[i] == NOT_ON) continue;
        wrong |= r->rates[i] > level;
        if (v->limited && s->flows[r->members[i].flow].view[s->view].limit == id) {
            wrong |= r->rates[i] != level;
            if (r->rates[i] < least) least = r->rates[i];
        }
    }
    v->level = level;
    if (!wrong) return;
    l->doubt = s->mark;
    for (int32_t i = 0; i < candidates(s, &s->links[id]); i++) {
        r = roster_of(s, &s->links[id]);
        int32_t f = r->members[i].flow;
        if (r->rates[i] >= least || (r->rates[i] != NOT_ON && s->flows[f].view[s->view].limit == id)) join_set(s, f);
    }
}

/* The link takes part in the sweep: what the flows outside of the set leave of it. */
static void open_link(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    const link_view *v = &l->view[s->view];
    l->mark = s->mark;
    l->left = v->capacity - v->load;
    l->unfixed = 0;
    l->others = v->weight;
    /* Where flows are limited, nobody has more than they. */
    l->highest = v->limited && l->doubt != s->mark ? v->level : INT64_MAX;
    l->greedy = 0;
    l->greedy_left = l->left;
    l->greedy_from = INT64_MAX;
    l->key = INT64_MAX;
    l->full = l->exact = false;
    l->place = l->first = -1;
}

/* A lower bound of the link's level: flows outside of the set that have just its level share in what rounding leaves,
 * so they may lower it by as much as they weigh.
 */
static int64_t least_level(const netsim *s, const link_ *l) {
    if (!l->greedy) return s->level;
    int64_t level = l->greedy_left > l->others ? (l->greedy_left - l->others) / l->greedy : 0;
    return level > s->level ? level : s->level;
}

/* Put the link among those to look at. */
static void look_later(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    const link_view *v = &l->view[s->view];
    int64_t key = l->unfixed ? least_level(s, l) : INT64_MAX;
    if (v->limited && v->level < key) key = v->level;
    if (key != INT64_MAX && (l->place < 0 || key != l->key)) look_put(s, id, key);
}

static void name_limit(netsim *s, flow *f, int32_t limit) {
    flow_view *v = &f->view[s->view];
    if (v->limit == limit) return;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path)) continue;
        if (h->link == v->limit) s->links[h->link].view[s->view].limited -= h->weight;
        if (h->link == limit) s->links[h->link].view[s->view].limited += h->weight;
    }
    v->limit = limit;
}

/* The flow's links expect its new rate. */
static void seek(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    const flow_view *v = &f->view[s->view];
    name_limit(s, f, -1);
    f->sought = s->mark;
    f->fixed = false;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path)) continue;
        link_ *l = &s->links[h->link];
        if (l->mark != s->mark) open_link(s, h->link);
        l->left += h->weight * v->rate;
        l->unfixed += h->weight;
        set_rate_on(s, h, NOT_ON);
        l->others -= h->weight;
        if (v->rate < l->greedy_from) {
            l->greedy_left += h->weight * v->rate;
            l->greedy += h->weight;
            l->exact = false;
        }
        s->entries = grow(s->entries, &s->entries_room, s->nentries + 1, sizeof *s->entries);
        s->entries[s->nentries] = (entry){id, l->first};
        l->first = s->nentries++;
    }
}

/* A flow joins while the sweep is under way. */
static void join_sweep(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    if (f->in_set) return;
    join_set(s, id);
    const flow_view *v = &f->view[s->view];
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        const link_ *l = &s->links[h->link];
        if (!part_of(h, v->path) || l->mark != s->mark || !l->full || l->share != v->rate) continue;
        /* Its rate remains: only what limits it is another link now. */
        name_limit(s, f, h->link);
        s->links[h->link].view[s->view].level = v->rate;
        return;
    }
    seek(s, id);
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        /* A flow that counted as greedy before, as its rate is no lower than the link's level, changes nothing. */
        if (part_of(h, v->path) && v->rate < s->links[h->link].key) look_later(s, h->link);
    }
}

/* The level, not less than `bound`, of a link in the sweep: the set's flows without a rate count as if nothing else
 * limited them.
 */
static int64_t level_of(netsim *s, link_ *l, int64_t bound) {
    l->greedy = l->unfixed;
    l->greedy_left = l->left;
    l->greedy_from = INT64_MAX;
    if (bound > l->highest) return l->unfixed ? l->left > 0 ? l->left / l->unfixed : 0 : INT64_MAX;
    int32_t n = gather(s, l, bound);
    /* No rate that was left out is of interest again: the sweep only goes up. */
    l->highest = bound - 1;
    for (int32_t i = 0; i < n; i++) {
        l->greedy_left += s->rates[i] * s->weights[i];
        l->greedy += s->weights[i];
        if (s->rates[i] > l->highest) l->highest = s->rates[i];
    }
    l->greedy_from = gathered_level(s, n, &l->greedy_left, &l->greedy);
    return l->greedy_from;
}

/* Without a look at its flows: is the level still where the link limited flows before? */
static bool still_full(const netsim *s, const link_ *l, int64_t at) {
    const link_view *v = &l->view[s->view];
    if (!v->limited || at != v->level || l->highest > v->level) return false;
    if (v->level && l->left / v->level < l->unfixed) return false;
    return l->left >= 0 && l->left - v->level * l->unfixed < l->unfixed + v->limited;
}

/* Of the link's flows outside of the set, those that it limited at the sweep's level (or else those above it) join. */
static void join_from(netsim *s, int32_t id, bool limited) {
    const roster *r = roster_of(s, &s->links[id]);
    s->joining.n = 0;
    for (int32_t i = 0; i < candidates(s, &s->links[id]); i++)
        if (limited ? r->rates[i] == s->level : r->rates[i] > s->level) {
            /* Flows are far from each other in memory: all are asked for before the first is used. */
            __builtin_prefetch(&s->flows[r->members[i].flow]);
            list_push(&s->joining, r->members[i].flow);
        }
    for (int32_t i = 0; i < s->joining.n; i++) {
        int32_t f = s->joining.items[i];
        if (!limited || s->flows[f].view[s->view].limit == id) join_sweep(s, f);
    }
}

/* Advance the sweep to the next level at which links are full, and collect these. False: there is none. */
static bool next_level(netsim *s) {
    s->full.n = 0;
    while (s->nlooks && (!s->full.n || s->looks[0].level == s->level)) {
        int32_t id = look_pop(s);
        link_ *l = &s->links[id];
        const link_view *v = &l->view[s->view];
        int64_t at = l->key;
        bool exact = l->exact;
        l->key = INT64_MAX;
        l->exact = false;
        /* Nobody wants more of it, and there is room for one more unit of everybody. */
        if (!l->unfixed && !v->limited && l->left >= l->others) continue;
        int64_t level = exact ? at : least_level(s, l);
        if (level <= at && !exact) {
            level = still_full(s, l, at) ? v->level : level_of(s, l, at);
            exact = true;
        }
        if (v->limited && v->level == at && level > at) {
            s->level = at;
            join_from(s, id, true);
            look_later(s, id);
        } else if (level > at) {
            l->exact = exact && !(v->limited && v->level < level);
            if (v->limited && v->level < level) level = v->level;
            if (level != INT64_MAX) look_put(s, id, level);
        } else {
            s->level = l->share = l->key = at;
            l->full = true;
            list_push(&s->full, id);
            if (l->highest > at) join_from(s, id, false);
        }
    }
    return s->full.n;
}

static void fix(netsim *s, flow *f, int32_t limit) {
    flow_view *v = &f->view[s->view];
    int64_t more = s->level - v->rate;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path)) continue;
        link_ *l = &s->links[h->link];
        l->left -= h->weight * s->level;
        l->unfixed -= h->weight;
        l->greedy_left -= h->weight * s->level;
        l->greedy -= h->weight;
        l->exact = false;
        set_rate_on(s, h, s->level);
        l->view[s->view].load += h->weight * more;
        /* Of several limits keep the one the flow had: its history then need not change. */
        if (h->link == f->old_limit && l->full && l->share == s->level) limit = h->link;
    }
    v->rate = s->level;
    name_limit(s, f, limit);
    s->links[limit].view[s->view].level = s->level;
    f->fixed = true;
}

static void sweep(netsim *s) {
    s->nentries = s->nlooks = 0;
    s->level = 0;
    for (int32_t i = 0; i < s->set.n; i++) seek(s, s->set.items[i]);
    for (int32_t i = 0; i < s->set.n; i++) {
        const flow *f = &s->flows[s->set.items[i]];
        for (int32_t j = 0; j < f->nhops; j++)
            if (part_of(&f->hops[j], f->view[s->view].path) && s->links[f->hops[j].link].key == INT64_MAX)
                look_later(s, f->hops[j].link);
    }
    while (next_level(s))
        for (int32_t i = 0; i < s->full.n; i++)
            for (int32_t j = s->links[s->full.items[i]].first; j >= 0; j = s->entries[j].next) {
                flow *f = &s->flows[s->entries[j].flow];
                if (!f->fixed) fix(s, f, s->full.items[i]);
            }
    s->count.filled += s->set.n;
}

void solve(netsim *s) {
    s->count.solves++;
    s->mark++;
    for (int32_t i = 0; i < s->touched.n; i++) {
        s->links[s->touched.items[i]].touched = false;
        check(s, s->touched.items[i]);
    }
    s->touched.n = 0;
    if (s->set.n) sweep(s);
}
