/* Growing arrays, and the heaps in which flows and events wait. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

void *grow(void *old, int32_t *room, int32_t need, size_t size) {
    if (need <= *room) return old;
    int64_t want = *room < 8 ? 8 : (int64_t)*room * 2;
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

void event_push(event_heap *h, event e) {
    h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
    int32_t i = h->n++;
    for (; i && h->items[(i - 1) / 2].at > e.at; i = (i - 1) / 2) h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = e;
}

event event_pop(event_heap *h) {
    event top = h->items[0], e = h->items[--h->n];
    int32_t i = 0;
    for (int32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->items[child + 1].at < h->items[child].at) child++;
        if (h->items[child].at >= e.at) break;
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
    if (x->state != state) {
        if (x->state != FREE) {
            timed_heap *h = &s->heaps[x->state];
            timed tail = h->items[--h->n];
            if (tail.flow != f) sift(s, h, x->heap_pos, tail);
        }
        x->state = state;
        if (state == FREE) return;
        timed_heap *h = &s->heaps[state];
        h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
        x->heap_pos = h->n++;
    }
    if (state != FREE) sift(s, &s->heaps[state], x->heap_pos, (timed){heap_key(x, state), f});
}

int32_t heap_top(const netsim *s, uint8_t state) { return s->heaps[state].n ? s->heaps[state].items[0].flow : -1; }
