/* From touched flows and links back to the max-min solution, changing as few rates as possible.
 *
 * One sweep over the levels, from low to high. The *set* holds the classes and flows whose rates are sought; all others
 * keep theirs. A class joins the set no later than the sweep reaches the lower one of its old and its new level:
 *
 *   - at the start, if a check of its link, which was touched, found its level wrong; as do flows that are new;
 *   - when its link becomes full below its level;
 *   - when the sweep reaches its level, and its link is not full.
 *
 * When a link becomes full, the set's flows on it have their rate, and are its class from now on. So do those outside
 * of the set that have more: they leave their class, which keeps its level for the moment.
 *
 * A link is looked at again at a lower bound of its level, at the latest at its class's level until now. So the
 * definition (core.h) holds on every link up to the sweep's level, and no level is found twice.
 */
#include "core.h"

void touch(netsim *s, int32_t link) {
    if (!s->links[link].touched) {
        s->links[link].touched = true;
        list_push(&s->touched, link);
    }
}

void seek(netsim *s, int32_t f) {
    if (s->flows[f].in_set) return;
    s->flows[f].in_set = true;
    s->flows[f].old_limit = -1;
    list_push(&s->set, f);
}

/* The weight of the flows that the link limits, unless their level is sought. */
static inline int64_t limited(const netsim *s, int32_t id) {
    return s->levels[s->view][id] == NOT_ON ? 0 : s->links[id].view[s->view].own;
}

static inline int64_t left_of(const netsim *s, const link_ *l) {
    return l->view[s->view].capacity - l->view[s->view].load;
}

/* Gathers the rates that are not less than `bound` of those on a link: their number. */
static int32_t gather(netsim *s, const link_ *l, int64_t bound) {
    const shares *on = &l->on[s->view];
    const int64_t *levels = s->levels[s->view];
    int32_t n = 0, room = s->gather_room;
    s->rates = grow(s->rates, &room, on->n, sizeof *s->rates);
    s->weights = grow(s->weights, &s->gather_room, on->n, sizeof *s->weights);
    for (int32_t i = 0; i < on->n; i++) {
        int64_t rate = levels[on->items[i].other];
        s->rates[n] = rate;
        s->weights[n] = on->items[i].weight;
        n += rate >= bound;
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

/* Does the definition hold on a touched link? */
static void check(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    const link_view *v = &l->view[s->view];
    /* With room for one more unit of every flow no level can be at or below any rate; and no flow relies on this link.
     */
    if (!v->own && v->load + v->weight <= v->capacity) return;
    int64_t left = v->capacity, weight = v->weight, own = s->levels[s->view][id];
    int64_t level = gathered_level(s, gather(s, l, 0), &left, &weight);
    bool over = false;
    for (int32_t i = 0; i < l->on[s->view].n; i++) {
        int32_t limit = l->on[s->view].items[i].other;
        over |= limit != id && s->levels[s->view][limit] > level;
    }
    if (v->own && own != level) {
        l->doubt = s->mark;
        list_push(&s->wrong, id);
    }
    if (over) {
        l->doubt = s->mark;
        l->share = level;
        list_push(&s->over, id);
    }
}

/* The link takes part in the sweep. */
static link_ *open_link(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    if (l->mark == s->mark) return l;
    l->mark = s->mark;
    l->unfixed = 0;
    l->others = l->view[s->view].weight;
    /* Where flows are limited, nobody has more than they. */
    l->highest = limited(s, id) && l->doubt != s->mark ? s->levels[s->view][id] : INT64_MAX;
    l->greedy = 0;
    l->greedy_left = left_of(s, l);
    l->greedy_from = INT64_MAX;
    l->key = INT64_MAX;
    l->full = l->exact = false;
    l->place = l->first = -1;
    return l;
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
    const link_ *l = &s->links[id];
    if (l->full || l->exact) return;
    int64_t key = l->unfixed ? least_level(s, l) : INT64_MAX, level = s->levels[s->view][id];
    if (limited(s, id) && level < key) key = level;
    if (key != INT64_MAX && (l->place < 0 || key != l->key)) look_put(s, id, key);
}

/* Flows are sought from now on. If they counted as greedy before, as their rate was no lower than the link's level,
 * this changes nothing of it.
 */
static inline void hope(link_ *l, int64_t weight, int64_t rate) {
    l->unfixed += weight;
    if (rate >= l->greedy_from) return;
    l->greedy_left += weight * rate;
    l->greedy += weight;
    l->exact = false;
}

/* Flows that were sought have the sweep's level. */
static inline void get(const netsim *s, link_ *l, int64_t weight) {
    l->view[s->view].load += weight * s->level;
    l->unfixed -= weight;
    l->greedy_left -= weight * s->level;
    l->greedy -= weight;
    l->exact = false;
}

/* The class is about to change, in level or in flows. */
static void note(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    if (l->noted == s->mark) return;
    l->noted = s->mark;
    if (s->view == PAST) follow_class(s, id);
    l->old_level = s->levels[s->view][id];
    list_push(&s->noted, id);
}

/* The class's level is sought. */
static void seek_class(netsim *s, int32_t id) {
    if (!limited(s, id)) return;
    if (s->view == PAST) prepare(s, id);
    note(s, id);
    int64_t old = s->levels[s->view][id];
    s->levels[s->view][id] = NOT_ON;
    s->sought += members_of(s, id)->n;
    const shares *of = &s->links[id].of[s->view];
    for (int32_t i = 0; i < of->n; i++) {
        const share *x = &of->items[i];
        link_ *l = open_link(s, x->other);
        l->view[s->view].load -= x->weight * old;
        l->others -= x->weight;
        hope(l, x->weight, old);
    }
}

/* The class had this level until now. A link that is looked at no later than that has counted it as greedy. */
static void look_at_class(netsim *s, int32_t id, int64_t old) {
    const shares *of = &s->links[id].of[s->view];
    for (int32_t i = 0; i < of->n; i++)
        if (old < s->links[of->items[i].other].key) look_later(s, of->items[i].other);
}

/* The rate of a flow that is in no class is sought. */
static void seek_flow(netsim *s, int32_t id, int64_t old) {
    const flow *f = &s->flows[id];
    s->sought++;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, f->view[s->view].path)) continue;
        link_ *l = open_link(s, h->link);
        hope(l, h->weight, old);
        s->entries = grow(s->entries, &s->entries_room, s->nentries + 1, sizeof *s->entries);
        s->entries[s->nentries] = (entry){id, l->first};
        l->first = s->nentries++;
    }
}

/* A flow outside of the set has more than a link that is full gives. */
static void give_way(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    flow_view *v = &f->view[s->view];
    if (v->limit < 0) return;
    if (s->view == PAST) stamp_path(s, id);
    int64_t old = s->levels[s->view][v->limit];
    f->old_limit = v->limit;
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path)) continue;
        open_link(s, h->link)->others -= h->weight;
        leave_bundle(s, s->view, id, i);
    }
    v->limit = -1;
    seek_flow(s, id, old);
    for (int32_t i = 0; i < f->nhops; i++) {
        const hop *h = &f->hops[i];
        if (!part_of(h, v->path)) continue;
        link_ *l = &s->links[h->link];
        l->view[s->view].load -= h->weight * old;
        if (old < l->key) look_later(s, h->link);
    }
}

/* The class, which was sought, has the sweep's level. */
static void fix_class(netsim *s, int32_t id) {
    s->levels[s->view][id] = s->level;
    const shares *of = &s->links[id].of[s->view];
    for (int32_t i = 0; i < of->n; i++) get(s, &s->links[of->items[i].other], of->items[i].weight);
    int32_t n = members_of(s, id)->n;
    s->sought -= n;
    s->count.filled += n;
}

/* A flow that has the sweep's level comes into the class of a link that is full. */
static void enter_class(netsim *s, int32_t id, int32_t limit) {
    flow *f = &s->flows[id];
    flow_view *v = &f->view[s->view];
    link_ *c = &s->links[limit];
    note(s, limit);
    c->gained = s->mark;
    if (!c->view[s->view].own) s->levels[s->view][limit] = s->level;
    if (v->limit >= 0) f->old_limit = v->limit;
    for (int32_t i = 0; i < f->nhops; i++) {
        if (!part_of(&f->hops[i], v->path)) continue;
        if (v->limit >= 0) leave_bundle(s, s->view, id, i);
        join_bundle(s, s->view, id, i, limit);
    }
    f->moved = s->mark;
    v->limit = limit;
    list_push(&s->movers, id);
    s->count.filled++;
}

/* A flow that was sought gets the sweep's level from a link that is full. */
static void fix(netsim *s, int32_t id, int32_t limit) {
    const flow *f = &s->flows[id];
    const flow_view *v = &f->view[s->view];
    /* Of several limits keep the one that it had. */
    if (v->limit < 0 && f->old_limit >= 0) {
        const link_ *old = &s->links[f->old_limit];
        if (old->full && old->share == s->level) limit = f->old_limit;
    }
    enter_class(s, id, limit);
    s->sought--;
    for (int32_t i = 0; i < f->nhops; i++)
        if (part_of(&f->hops[i], v->path)) get(s, &s->links[f->hops[i].link], f->hops[i].weight);
}

static void list_flows(list *l, const roster *r) {
    l->n = 0;
    for (int32_t i = 0; i < r->n; i++) list_push(l, r->items[i].flow);
}

/* The flows of a bundle on a full link, which were sought, are its class's. */
static void fix_bundle(netsim *s, int32_t b) {
    int32_t id = s->bundles[b].link;
    list_flows(&s->leaving, &s->bundles[b].flows);
    for (int32_t i = 0; i < s->leaving.n; i++)
        if (s->flows[s->leaving.items[i]].view[s->view].limit != id) fix(s, s->leaving.items[i], id);
}

/* The level, not less than `bound`, of a link in the sweep: the set's flows without a rate count as if nothing else
 * limited them.
 */
static int64_t level_of(netsim *s, link_ *l, int64_t bound) {
    int64_t left = left_of(s, l);
    l->greedy = l->unfixed;
    l->greedy_left = left;
    l->greedy_from = INT64_MAX;
    if (bound > l->highest) return l->unfixed ? left > 0 ? left / l->unfixed : 0 : INT64_MAX;
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

/* Without a look at its flows: is the level still its class's until now? */
static bool still_full(const netsim *s, int32_t id, int64_t at) {
    const link_ *l = &s->links[id];
    int64_t own = limited(s, id), left = left_of(s, l);
    if (!own || at != s->levels[s->view][id] || l->highest > at) return false;
    if (at && left / at < l->unfixed) return false;
    return left >= 0 && left - at * l->unfixed < l->unfixed + own;
}

/* The link's class has the sweep's level, and the link is not full: its flows go over to the class of another link that
 * is full at this level, or else the class joins the set.
 */
static void join_class(netsim *s, int32_t id) {
    if (s->view == PAST) prepare(s, id);
    s->joining.n = 0;
    const shares *of = &s->links[id].of[s->view];
    for (int32_t i = 0; i < of->n; i++) {
        const link_ *l = &s->links[of->items[i].other];
        if (l->mark != s->mark || !l->full || l->share != s->level) continue;
        /* What is sought gets its level from the full link later. */
        if (!l->view[s->view].own || s->levels[s->view][of->items[i].other] != NOT_ON)
            list_push(&s->joining, of->items[i].bundle);
    }
    for (int32_t i = 0; i < s->joining.n; i++) {
        int32_t full = s->bundles[s->joining.items[i]].link;
        if (s->bundles[s->joining.items[i]].limit != id) continue;
        note(s, id);
        list_flows(&s->leaving, &s->bundles[s->joining.items[i]].flows);
        for (int32_t j = 0; j < s->leaving.n; j++)
            if (s->flows[s->leaving.items[j]].view[s->view].limit == id) enter_class(s, s->leaving.items[j], full);
    }
    seek_class(s, id);
    look_at_class(s, id, s->level);
}

/* The link is full at the sweep's level: its class, and whoever else has more, give way. */
static void fill(netsim *s, int32_t id) {
    link_ *l = &s->links[id];
    l->full = true;
    l->share = l->key = s->level;
    list_push(&s->full, id);
    if (l->highest <= s->level) return;
    int64_t old = s->levels[s->view][id];
    if (limited(s, id) && old > s->level) {
        seek_class(s, id);
        look_at_class(s, id, old);
    }
    s->joining.n = 0;
    const shares *on = &s->links[id].on[s->view];
    for (int32_t i = 0; i < on->n; i++) {
        if (s->levels[s->view][on->items[i].other] <= s->level) continue;
        const roster *r = &s->bundles[on->items[i].bundle].flows;
        for (int32_t j = 0; j < r->n; j++) list_push(&s->joining, r->items[j].flow);
    }
    for (int32_t i = 0; i < s->joining.n; i++) give_way(s, s->joining.items[i]);
}

/* Advance the sweep to the next level at which links are full, and collect these. False: there is none. */
static bool next_level(netsim *s) {
    s->full.n = 0;
    while (s->nlooks && (!s->full.n || s->looks[0].level == s->level)) {
        int32_t id = look_pop(s);
        link_ *l = &s->links[id];
        int64_t at = l->key, own = limited(s, id), own_level = s->levels[s->view][id];
        bool exact = l->exact;
        l->key = INT64_MAX;
        l->exact = false;
        /* Nobody wants more of it, and there is room for one more unit of everybody. */
        if (!l->unfixed && !own && left_of(s, l) >= l->others) continue;
        int64_t level = exact ? at : least_level(s, l);
        if (level <= at && !exact) {
            level = still_full(s, id, at) ? own_level : level_of(s, l, at);
            exact = true;
        }
        if (own && own_level == at && level > at) {
            s->level = at;
            join_class(s, id);
        } else if (level > at) {
            l->exact = exact && !(own && own_level < level);
            if (own && own_level < level) level = own_level;
            if (level != INT64_MAX) look_put(s, id, level);
        } else {
            s->level = at;
            fill(s, id);
        }
    }
    return s->full.n;
}

/* All that is sought on the full links has the sweep's level. */
static void fix_all(netsim *s) {
    for (int32_t i = 0; i < s->full.n; i++) {
        int32_t id = s->full.items[i];
        if (s->links[id].view[s->view].own && s->levels[s->view][id] == NOT_ON) fix_class(s, id);
    }
    for (int32_t i = 0; i < s->full.n; i++) {
        int32_t id = s->full.items[i];
        for (int32_t j = s->links[id].on[s->view].n - 1; j >= 0; j--) {
            const share *x = &s->links[id].on[s->view].items[j];
            if (s->levels[s->view][x->other] == NOT_ON) fix_bundle(s, x->bundle);
        }
        for (int32_t j = s->links[id].first; j >= 0; j = s->entries[j].next)
            if (s->flows[s->entries[j].flow].view[s->view].limit < 0) fix(s, s->entries[j].flow, id);
    }
}

/* Once nothing is sought, most links need no look: nobody wants more of them, and there is room. */
static void drop_idle(netsim *s) {
    int32_t kept = 0;
    for (int32_t i = 0; i < s->nlooks; i++) {
        link_ *l = &s->links[s->looks[i].link];
        if (l->unfixed || limited(s, s->looks[i].link) || left_of(s, l) < l->others) {
            s->looks[kept++] = s->looks[i];
        } else {
            l->key = INT64_MAX;
            l->exact = false;
            l->place = -1;
        }
    }
    looks_order(s, kept);
}

static void sweep(netsim *s) {
    s->nentries = s->nlooks = 0;
    s->sought = 0;
    s->level = 0;
    for (int32_t i = 0; i < s->set.n; i++) seek_flow(s, s->set.items[i], 0);
    for (int32_t i = 0; i < s->wrong.n; i++) seek_class(s, s->wrong.items[i]);
    for (int32_t i = 0; i < s->set.n; i++) {
        const flow *f = &s->flows[s->set.items[i]];
        for (int32_t j = 0; j < f->nhops; j++)
            if (part_of(&f->hops[j], f->view[s->view].path) && s->links[f->hops[j].link].key == INT64_MAX)
                look_later(s, f->hops[j].link);
    }
    for (int32_t i = 0; i < s->wrong.n; i++) {
        const shares *of = &s->links[s->wrong.items[i]].of[s->view];
        for (int32_t j = 0; j < of->n; j++)
            if (s->links[of->items[j].other].key == INT64_MAX) look_later(s, of->items[j].other);
    }
    for (int32_t i = 0; i < s->over.n; i++) {
        int32_t id = s->over.items[i];
        int64_t level = s->links[id].share;
        if (open_link(s, id)->place < 0) look_put(s, id, level);
    }
    while (next_level(s)) {
        fix_all(s);
        if (!s->sought) drop_idle(s);
    }
}

void solve(netsim *s) {
    s->count.solves++;
    s->mark++;
    s->movers.n = s->noted.n = s->wrong.n = s->over.n = 0;
    for (int32_t i = 0; i < s->touched.n; i++) {
        s->links[s->touched.items[i]].touched = false;
        check(s, s->touched.items[i]);
    }
    s->touched.n = 0;
    if (s->set.n || s->wrong.n || s->over.n) sweep(s);
    for (int32_t i = 0; i < s->set.n; i++) s->flows[s->set.items[i]].in_set = false;
    s->set.n = 0;
}
