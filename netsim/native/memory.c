/* Growing arrays, and the heaps in which flows and events wait. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

void *grow(void *old, int32_t *room, int32_t need, size_t size) {
    if (need <= *room) return old;
    int64_t want = *room < 2 ? 2 : (int64_t)*room * 2;
    if (want < need) want = need;
    void *new = want > INT32_MAX ? NULL : realloc(old, (size_t)want * size);
    if (!new) {
        fprintf(stderr, "netsim: out of memory\n");
        abort();
    }
    *room = (int32_t)want;
    return new;
}

void list_push(list *l, int32_t value) {
    l->items = grow(l->items, &l->room, l->n + 1, sizeof *l->items);
    l->items[l->n++] = value;
}

static inline bool sooner(event a, event b) { return a.at < b.at || (a.at == b.at && a.what < b.what); }

void event_push(event_heap *h, event e) {
    h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
    int32_t i = h->n++;
    for (; i && sooner(e, h->items[(i - 1) / 2]); i = (i - 1) / 2) h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = e;
}

event event_pop(event_heap *h) {
    event top = h->items[0], e = h->items[--h->n];
    int32_t i = 0;
    for (int32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && sooner(h->items[child + 1], h->items[child])) child++;
        if (!sooner(h->items[child], e)) break;
        h->items[i] = h->items[child];
    }
    if (h->n) h->items[i] = e;
    return top;
}

static int64_t heap_key(const flow *f, uint8_t state) {
    return state == PENDING ? f->start : state == ACTIVE ? f->due : f->done;
}

static void set(netsim *s, timed_heap *h, int32_t i, timed x) {
    h->items[i] = x;
    s->flows[x.flow].heap_pos = i;
}

static void sift(netsim *s, timed_heap *h, int32_t i, timed x) {
    for (; i && h->items[(i - 1) / 2].at > x.at; i = (i - 1) / 2) set(s, h, i, h->items[(i - 1) / 2]);
    for (int32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->items[child + 1].at < h->items[child].at) child++;
        if (h->items[child].at >= x.at) break;
        set(s, h, i, h->items[child]);
    }
    set(s, h, i, x);
}

void heap_put(netsim *s, int32_t f, uint8_t state) {
    flow *x = &s->flows[f];
    bool waits = state != FREE && (state != ACTIVE || instant(x));
    if (x->state != state) {
        if (x->state != FREE && (x->state != ACTIVE || instant(x))) {
            timed_heap *h = &s->heaps[x->state];
            timed tail = h->items[--h->n];
            if (tail.flow != f) sift(s, h, x->heap_pos, tail);
        }
        x->state = state;
        if (!waits) return;
        timed_heap *h = &s->heaps[state];
        h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
        x->heap_pos = h->n++;
    }
    if (waits) sift(s, &s->heaps[state], x->heap_pos, (timed){heap_key(x, state), f});
}

int32_t heap_top(const netsim *s, uint8_t state) { return s->heaps[state].n ? s->heaps[state].items[0].flow : -1; }

static void set_due(netsim *s, int32_t i, timed x) {
    s->dues.items[i] = x;
    s->links[x.flow].due_pos = i;
}

static void sift_due(netsim *s, int32_t i, timed x) {
    const timed_heap *h = &s->dues;
    for (; i && h->items[(i - 1) / 2].at > x.at; i = (i - 1) / 2) set_due(s, i, h->items[(i - 1) / 2]);
    for (int32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->items[child + 1].at < h->items[child].at) child++;
        if (h->items[child].at >= x.at) break;
        set_due(s, i, h->items[child]);
    }
    set_due(s, i, x);
}

void due_put(netsim *s, int32_t link, int64_t due) {
    timed_heap *h = &s->dues;
    int32_t *pos = &s->links[link].due_pos, i = *pos;
    if (due == NS_NEVER) {
        if (i < 0) return;
        *pos = -1;
        timed tail = h->items[--h->n];
        if (i != h->n) sift_due(s, i, tail);
        return;
    }
    if (i < 0) {
        h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
        i = h->n++;
    }
    sift_due(s, i, (timed){due, link});
}

static void set_aim(netsim *s, link_ *l, int32_t i, aim x) {
    l->aims[i] = x;
    s->flows[x.flow].heap_pos = i;
}

static void sift_aim(netsim *s, link_ *l, int32_t i, aim x) {
    aim *h = l->aims;
    for (; i && h[(i - 1) / 2].target > x.target; i = (i - 1) / 2) set_aim(s, l, i, h[(i - 1) / 2]);
    for (int32_t child; (child = 2 * i + 1) < l->naims; i = child) {
        if (child + 1 < l->naims && h[child + 1].target < h[child].target) child++;
        if (h[child].target >= x.target) break;
        set_aim(s, l, i, h[child]);
    }
    set_aim(s, l, i, x);
}

void aim_put(netsim *s, int32_t link, int32_t f, wide target) {
    link_ *l = &s->links[link];
    l->aims = grow(l->aims, &l->aims_room, l->naims + 1, sizeof *l->aims);
    sift_aim(s, l, l->naims++, (aim){target, f});
}

void aim_drop(netsim *s, int32_t link, int32_t f) {
    link_ *l = &s->links[link];
    int32_t i = s->flows[f].heap_pos;
    aim tail = l->aims[--l->naims];
    if (i != l->naims) sift_aim(s, l, i, tail);
}
