/* Facts come in: flows, their starts and paths, capacities; what known completions they move goes out. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

int ns_abi(void) { return NS_ABI; }

static int32_t new_link(netsim *s, int64_t capacity) {
    bool first = !s->free_links.n; /* of its number */
    int32_t id = first ? s->nlinks++ : s->free_links.items[--s->free_links.n];
    if (id >= s->links_room) {
        int32_t old = s->links_room;
        s->links = grow(s->links, &s->links_room, id + 1, sizeof *s->links);
        for (enum view v = NOW; v <= PAST; v++) {
            int32_t levels_room = old;
            s->levels[v] = grow(s->levels[v], &levels_room, s->links_room, sizeof *s->levels[v]);
        }
    }
    link_ *l = &s->links[id];
    /* Room that is not used yet stays untouched: it takes no memory. */
    if (first) memset(l, 0, sizeof *l);
    int32_t room = l->nsteps;
    l->steps = grow(l->steps, &room, 1, sizeof *l->steps);
    l->steps[0] = (step){INT64_MIN, capacity};
    l->nsteps = 1;
    l->view[NOW] = (link_view){capacity, 0, 0, 0};
    l->nstretches = 0;
    l->due_pos = -1;
    s->levels[NOW][id] = s->levels[PAST][id] = 0;
    return id;
}

netsim *ns_new(int links, const int64_t *capacities) {
    netsim *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->last = s->horizon = -1;
    for (int i = 0; i < links; i++) new_link(s, capacities[i]);
    return s;
}

void ns_free(netsim *s) {
    for (int32_t i = 0; i < s->nflows; i++) {
        free(s->flows[i].hops);
        free(s->flows[i].segments);
        free(s->flows[i].epochs);
    }
    for (int32_t i = 0; i < s->nlinks; i++) {
        for (enum view v = NOW; v <= PAST; v++) {
            free(s->links[i].on[v].items);
            free(s->links[i].of[v].items);
        }
        free(s->links[i].all.items);
        free(s->links[i].stretches);
        free(s->links[i].recorded);
        free(s->links[i].aims);
        free(s->links[i].steps);
    }
    for (int32_t i = 0; i < s->nbundles; i++) free(s->bundles[i].flows.items);
    list *lists[] = {&s->free_flows, &s->free_links, &s->free_bundles, &s->touched, &s->set,     &s->wrong,
                     &s->over,       &s->movers,     &s->noted,        &s->dirty,   &s->full,    &s->joining,
                     &s->leaving,    &s->fresh,      &s->live,         &s->stamped, &s->altered, &s->live_classes};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->items);
    void *arrays[] = {s->heaps[PENDING].items,
                      s->heaps[ACTIVE].items,
                      s->heaps[DONE].items,
                      s->dues.items,
                      s->levels[NOW],
                      s->levels[PAST],
                      s->bundles,
                      s->flows,
                      s->links,
                      s->changes.items,
                      s->queue.items,
                      s->looks,
                      s->entries,
                      s->rates,
                      s->weights,
                      s->moved,
                      s->out_flows,
                      s->out_ticks,
                      s->out_segments};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(s);
}

int64_t name_of(const netsim *s, int32_t f) { return (int64_t)s->flows[f].generation << 32 | f; }

int32_t find_flow(const netsim *s, int64_t name) {
    int32_t f = (int32_t)(name & 0x7fffffff);
    bool known = f < s->nflows && s->flows[f].state != FREE && s->flows[f].generation == (uint32_t)(name >> 32);
    return known ? f : -1;
}

static int32_t new_flow(netsim *s, int64_t start, int64_t nbytes, int32_t nhops) {
    int32_t id = s->free_flows.n ? s->free_flows.items[--s->free_flows.n] : s->nflows++;
    if (id >= s->flows_room) {
        int32_t old = s->flows_room;
        s->flows = grow(s->flows, &s->flows_room, id + 1, sizeof *s->flows);
        memset(s->flows + old, 0, (size_t)(s->flows_room - old) * sizeof *s->flows);
    }
    flow *f = &s->flows[id];
    segment *segments = f->segments;
    *f = (flow){.start = start,
                .nbytes = nbytes,
                .done = NS_NEVER,
                .due = NS_NEVER,
                .generation = f->generation,
                .room = f->room};
    f->segments = segments;
    f->view[NOW] = f->view[PAST] = (flow_view){-1, 0, false};
    if (nhops) {
        int32_t room = 0;
        f->hops = grow(NULL, &room, nhops, sizeof *f->hops);
    }
    return id;
}

void drop_flow(netsim *s, int32_t id) {
    heap_put(s, id, FREE);
    detach(s, id);
    flow *f = &s->flows[id];
    for (int32_t i = 0; i < f->nhops; i++)
        if (f->hops[i].path < 0) list_push(&s->free_links, f->hops[i].link);
    free(f->hops);
    free(f->epochs);
    f->hops = NULL;
    f->epochs = NULL;
    f->nhops = f->nepochs = f->nsegments = 0;
    f->fresh = false;
    f->generation = (f->generation + 1) & 0x7fffffff;
    list_push(&s->free_flows, id);
}

/* Every change of the facts begins and ends here: what was known at the present is compared with what is known now. */
static void begin(netsim *s) { s->nmoved = s->live.n = 0; }

static void report(netsim *s, int32_t id, int64_t before, int64_t after) {
    if (before == after) return;
    s->moved = grow(s->moved, &s->moved_room, s->nmoved + 1, sizeof *s->moved);
    s->moved[s->nmoved++] = (ns_moved){name_of(s, id), before, after};
}

int64_t known(const netsim *s, int64_t done) { return done <= s->present ? done : NS_NEVER; }

static void end(netsim *s) {
    run(s, s->present);
    for (int32_t i = 0; i < s->live.n; i++) {
        flow *f = &s->flows[s->live.items[i]];
        if (f->state == FREE) continue;
        report(s, s->live.items[i], known(s, f->before), known(s, f->done));
        if (f->done <= s->present) f->fresh = false;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < s->fresh.n; i++) {
        int32_t id = s->fresh.items[i];
        flow *f = &s->flows[id];
        if (f->fresh && f->state == DONE && f->done > s->present) {
            s->fresh.items[kept++] = id;
        } else {
            if (f->fresh && f->state == DONE) report(s, id, NS_NEVER, f->done);
            f->fresh = false;
        }
    }
    s->fresh.n = kept;
}

/* A flow without bytes or links is done when it starts; until then it waits as one that is due. */
static void set_instant(netsim *s, int32_t id, int64_t start) {
    flow *f = &s->flows[id];
    s->live.n = 0;
    list_push(&s->live, id);
    f->before = f->done;
    f->start = f->due = start;
    f->done = start < s->last || start <= s->present ? start : NS_NEVER;
    heap_put(s, id, f->done == NS_NEVER ? ACTIVE : DONE);
    if (f->done != NS_NEVER && f->done > s->present && !f->fresh) {
        f->fresh = true;
        list_push(&s->fresh, id);
    }
}

static void expect_reroutes(netsim *s, int32_t id) {
    const flow *f = &s->flows[id];
    for (int32_t i = 1; i < f->nepochs; i++)
        if (f->epochs[i].from > s->last)
            event_push(&s->changes, (event){f->epochs[i].from, REROUTE, id, f->generation});
}

/* Append epochs with paths of their own. */
static void add_epochs(flow *f, int npaths, const int64_t *path_from) {
    int32_t room = f->nepochs;
    f->epochs = grow(f->epochs, &room, f->nepochs + npaths, sizeof *f->epochs);
    for (int i = 0; i < npaths; i++) f->epochs[f->nepochs++] = (epoch){path_from[i], f->npaths + i};
    f->npaths += npaths;
}

static void submit(netsim *s, int32_t id) {
    flow *f = &s->flows[id];
    attach(s, id, 0);
    expect_reroutes(s, id);
    if (instant(f))
        set_instant(s, id, f->start);
    else if (f->start >= s->last)
        heap_put(s, id, PENDING);
    else
        replay_flow(s, id, NS_NEVER, f->start);
}

int64_t ns_add(netsim *s, int64_t start, int64_t nbytes, int64_t capacity, int n, const int32_t *links,
               const int32_t *weights, const int32_t *paths, int npaths, const int64_t *path_from) {
    begin(s);
    bool capped = capacity >= 0 && nbytes > 0;
    int32_t cap = capped ? new_link(s, capacity) : -1, nhops = nbytes > 0 ? n : 0;
    int32_t id = new_flow(s, start, nbytes, nhops + capped);
    flow *f = &s->flows[id];
    f->nhops = nhops + capped;
    for (int32_t i = 0; i < nhops; i++)
        f->hops[i] = (hop){links[i], weights ? weights[i] : 1, paths ? paths[i] : 0, 0, {0, 0}, {0, 0}};
    if (capped) f->hops[nhops] = (hop){cap, 1, -1, 0, {0, 0}, {0, 0}};
    if (npaths > 1)
        add_epochs(f, npaths, path_from);
    else
        f->npaths = 1;
    submit(s, id);
    end(s);
    return name_of(s, id);
}

int64_t add_plain(netsim *s, int64_t start, int64_t nbytes, int32_t n, const int32_t *links) {
    begin(s);
    if (!nbytes) n = 0;
    int32_t id = new_flow(s, start, nbytes, n);
    s->flows[id].nhops = n;
    s->flows[id].npaths = 1;
    for (int32_t i = 0; i < n; i++) s->flows[id].hops[i] = (hop){links[i], 1, 0, 0, {0, 0}, {0, 0}};
    submit(s, id);
    end(s);
    return name_of(s, id);
}

void ns_redirect(netsim *s, int64_t name, int n, const int32_t *links, const int32_t *weights, const int32_t *paths,
                 int npaths, const int64_t *path_from) {
    begin(s);
    int32_t id = find_flow(s, name), room = s->flows[id].nhops, first = room;
    flow *f = &s->flows[id];
    if (!instant(f)) {
        f->hops = grow(f->hops, &room, first + n, sizeof *f->hops);
        for (int32_t i = 0; i < n; i++)
            f->hops[f->nhops++] = (hop){links[i], weights[i], f->npaths + paths[i], 0, {0, 0}, {0, 0}};
        if (!f->nepochs) {
            int64_t ever = INT64_MIN;
            f->npaths = 0;
            add_epochs(f, 1, &ever);
            f->npaths = 1;
        }
        while (f->nepochs > 1 && f->epochs[f->nepochs - 1].from >= path_from[0]) f->nepochs--;
        if (f->epochs[0].from >= path_from[0]) f->nepochs = 0;
        add_epochs(f, npaths, path_from);
        attach(s, id, first);
        expect_reroutes(s, id);
        if (f->state != PENDING && path_from[0] <= f->start)
            replay_flow(s, id, f->start, f->start);
        else if (f->state != PENDING && path_from[0] <= s->last)
            replay_switch(s, id, path_from[0]);
    }
    end(s);
}

void ns_retime(netsim *s, int64_t name, int64_t start) {
    begin(s);
    int32_t id = find_flow(s, name);
    flow *f = &s->flows[id];
    int64_t old = f->start;
    if (start != old) {
        if (instant(f)) {
            set_instant(s, id, start);
        } else if (f->state == PENDING && start >= s->last) {
            f->start = start;
            heap_put(s, id, PENDING);
        } else {
            bool waiting = f->state == PENDING;
            f->start = start;
            replay_flow(s, id, waiting ? NS_NEVER : old, start);
        }
    }
    end(s);
}

void ns_retract(netsim *s, int64_t name) {
    begin(s);
    int32_t id = find_flow(s, name);
    if (s->flows[id].state != PENDING && !instant(&s->flows[id])) replay_flow(s, id, s->flows[id].start, NS_NEVER);
    drop_flow(s, id);
    end(s);
}

void ns_capacity(netsim *s, int link, int64_t at, int64_t capacity) {
    begin(s);
    link_ *l = &s->links[link];
    int32_t i = l->nsteps;
    while (i > 0 && l->steps[i - 1].at > at) i--;
    if (i > 0 && l->steps[i - 1].at == at) {
        l->steps[i - 1].capacity = capacity;
    } else {
        int32_t room = l->nsteps;
        l->steps = grow(l->steps, &room, l->nsteps + 1, sizeof *l->steps);
        memmove(l->steps + i + 1, l->steps + i, (size_t)(l->nsteps++ - i) * sizeof *l->steps);
        l->steps[i] = (step){at, capacity};
    }
    if (at > s->last)
        event_push(&s->changes, (event){at, CAPACITY, link, 0});
    else
        replay_capacity(s, link, at);
    end(s);
}
