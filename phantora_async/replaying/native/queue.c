/* Events in their one total order: instant, order, then as they came to be. A binary heap; each target has one event.
 */
#include "engine.h"

static bool before(const event *a, const event *b) {
    if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns;
    if (a->order != b->order) return a->order < b->order;
    return a->seq < b->seq;
}

static void set(engine *e, int64_t place, event *it) {
    e->heap[place] = it;
    it->place = (int32_t)place;
}

static void rise(engine *e, int64_t place, event *it) {
    while (place) {
        int64_t above = (place - 1) / 2;
        if (!before(it, e->heap[above])) break;
        set(e, place, e->heap[above]);
        place = above;
    }
    set(e, place, it);
}

static void sink(engine *e, int64_t place, event *it) {
    for (;;) {
        int64_t below = 2 * place + 1;
        if (below >= e->nheap) break;
        if (below + 1 < e->nheap && before(e->heap[below + 1], e->heap[below])) below++;
        if (!before(e->heap[below], it)) break;
        set(e, place, e->heap[below]);
        place = below;
    }
    set(e, place, it);
}

void drop(engine *e, event *due) {
    if (due->place < 0) return;
    int64_t place = due->place;
    event *last = e->heap[--e->nheap];
    due->place = -1;
    if (last == due) return;
    if (place && before(last, e->heap[(place - 1) / 2]))
        rise(e, place, last);
    else
        sink(e, place, last);
}

void push(engine *e, int64_t at_ns, event *due, int64_t order) {
    drop(e, due);
    due->at_ns = at_ns;
    due->order = order;
    due->seq = ++e->seq;
    e->heap = grown(e->heap, e->nheap, &e->heap_room, sizeof *e->heap);
    rise(e, e->nheap++, due);
}
