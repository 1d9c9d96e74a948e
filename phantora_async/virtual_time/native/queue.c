/*
 * Events in their one total order: instant, then completions before hosts, then rank, then the order in which they came
 * to be, which is the same in every run because it depends on nothing but earlier events. A binary heap.
 */
#include <assert.h>

#include "engine.h"

static bool before(const event *a, const event *b) {
    if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns;
    if (a->order != b->order) return a->order < b->order;
    return a->seq < b->seq;
}

static void set(engine *e, int64_t place, event *it) {
    e->heap[place] = it;
    it->place = place;
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

static void enter(engine *e, event *due) {
    e->heap = grown(e->heap, e->nheap, &e->heap_room, sizeof *e->heap);
    rise(e, e->nheap++, due);
}

/* An instant that has gone by is a bug of ours, never a fault of a rank. */
void push(engine *e, int64_t at_ns, event *due) {
    assert(at_ns >= e->now_ns);
    drop(e, due);
    due->at_ns = at_ns;
    due->seq = ++e->seq;
    enter(e, due);
}

saved_event save_event(const event *due) { return (saved_event){due->at_ns, due->seq, due->place >= 0}; }

/* The event that it had before is to come again, at its old place among others. */
void put_back(engine *e, event *due, const saved_event *as) {
    drop(e, due);
    due->at_ns = as->at_ns;
    due->seq = as->seq;
    if (as->there) enter(e, due);
}

/* If the GPU dies one day, that is the host's event to come. Returns whether it does. */
bool push_at_death(engine *e, host *it, const device *on) {
    int64_t at_ns = dies_ns(on->pace);
    if (at_ns < e->now_ns || at_ns >= NEVER) return false;
    push(e, at_ns, &it->due);
    return true;
}
