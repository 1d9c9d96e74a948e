/*
 * The memory of things that may be referred to from anywhere.
 *
 * Those that come and go by the thousand (recordings, kernels, collectives, ends of steps, streams) are found
 * to be gone by looking what still refers to them: rows and checkpoints may bring any of them back until they are
 * final.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

void *take(size_t nbytes) {
    void *made = calloc(1, nbytes ? nbytes : 1);
    if (!made) abort();
    return made;
}

/* Room for one more than n of them. */
void *grown(void *at, int64_t n, int64_t *room, size_t each) {
    if (n < *room) return at;
    *room = *room ? 2 * *room : 16;
    void *more = realloc(at, (size_t)*room * each);
    if (!more) abort();
    return more;
}

void put(list *to, void *what) {
    to->all = grown(to->all, to->n, &to->room, sizeof *to->all);
    to->all[to->n++] = what;
}

void *take_first(list *from) {
    void *first = from->all[from->first++];
    if (from->first == from->n) from->first = from->n = 0;
    return first;
}

object *make(engine *e, object_kind kind, size_t nbytes) {
    object *made = take(nbytes);
    made->kind = (uint8_t)kind;
    made->next = e->objects;
    e->objects = made;
    e->nobjects++;
    return made;
}

/* ---- what refers to what ---- */

static void mark(list *todo, object *it) {
    if (!it || it->marked) return;
    it->marked = true;
    put(todo, it);
}

static void mark_number(const engine *e, list *todo, int64_t number) {
    if (e->numbered[number]) mark(todo, &e->numbered[number]->object);
}

static void mark_members(list *todo, const member *all, int32_t n) {
    for (int32_t i = 0; i < n; i++) mark(todo, &all[i].kernel->object);
}

static void mark_parts_of(list *todo, object *it) {
    switch ((object_kind)it->kind) {
    case A_STREAM:
        for (int64_t i = 0; i < ((stream *)it)->count - ((stream *)it)->base; i++)
            mark(todo, ((stream *)it)->items[i].what);
        break;
    case A_RECORDING:
        mark(todo, &((recording *)it)->stream->object);
        for (int32_t i = 0; i < ((recording *)it)->nwaiters; i++) mark(todo, ((recording *)it)->waiters[i].target);
        break;
    case A_KERNEL:
        mark(todo, &((kernel *)it)->stream->object);
        for (int32_t i = 0; i < ((kernel *)it)->ncollectives; i++) mark(todo, &((kernel *)it)->collectives[i]->object);
        break;
    case A_COLLECTIVE:
        mark_members(todo, ((collective *)it)->members, ((collective *)it)->nmembers);
        mark_members(todo, ((collective *)it)->aborted, ((collective *)it)->naborted);
        break;
    case A_STEP:
        break;
    }
}

static void mark_told(const engine *e, list *todo, const told *all, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (all[i].kind == TOLD_COLLECTIVE_DONE) mark_number(e, todo, all[i].values[1]);
        if (all[i].kind == TOLD_COMPLETED) mark_number(e, todo, all[i].values[0]);
    }
}

static void mark_wait(list *todo, wait_kind wait, void *what) {
    if (wait == FOR_STREAM || wait == FOR_RECORDING) mark(todo, what);
}

static void mark_checkpoint(const engine *e, list *todo, const checkpoint *it) {
    for (int64_t i = 0; i < it->nstreams; i++) mark(todo, &it->streams[i].stream->object);
    for (int64_t i = 0; i < it->nundo; i++) {
        mark(todo, it->undo[i].one);
        mark(todo, it->undo[i].two);
        mark(todo, it->undo[i].old.what);
    }
    mark_wait(todo, it->host.wait, it->host.waits_for);
    mark_told(e, todo, it->told, it->ntold);
}

static void mark_rows(list *todo, const host *it) {
    for (int64_t i = 0; it->fed && i < it->nrows; i++) {
        const row *one = &it->fed[i];
        if (one->kind != NCCL_LAUNCH) continue;
        if (one->values[1] == 1) mark(todo, (object *)(uintptr_t)one->values[0]);
        collective *const *all = (collective *const *)(uintptr_t)one->values[0];
        for (uint64_t k = 0; one->values[1] > 1 && k < one->values[1]; k++) mark(todo, &all[k]->object);
    }
}

static void mark_host(const engine *e, list *todo, const host *it) {
    for (int64_t i = 0; i < it->nstreams; i++) mark(todo, &it->streams[i]->object);
    for (int64_t i = 0; i < it->recordings.room; i++)
        if (it->recordings.keys[i]) mark(todo, &it->recordings.values[i]->object);
    mark_wait(todo, it->wait, it->waits_for);
    mark_rows(todo, it);
    for (int64_t i = 0; i < it->ncheckpoints; i++) mark_checkpoint(e, todo, it->checkpoints[i]);
}

/* ---- freeing ---- */

static void free_object(engine *e, object *it, bool all) {
    collective *of = (collective *)it;
    switch ((object_kind)it->kind) {
    case A_STREAM:
        free(((stream *)it)->items);
        break;
    case A_RECORDING:
        free(((recording *)it)->waiters);
        break;
    case A_KERNEL:
        free(((kernel *)it)->collectives);
        break;
    case A_COLLECTIVE:
        free(of->members);
        free(of->aborted);
        if (all) break;
        if (of->by_program) leave_table(e, of);
        e->numbered[of->number] = NULL;
        e->free_numbers = grown(e->free_numbers, e->nfree, &e->free_room, sizeof *e->free_numbers);
        e->free_numbers[e->nfree++] = of->number;
        e->gone = grown(e->gone, e->ngone, &e->gone_room, sizeof *e->gone);
        e->gone[e->ngone++] = of->number;
        break;
    case A_STEP:
        break;
    }
    free(it);
    e->nobjects--;
}

/* A destroyed stream whose work is done, now and in all history that is kept, is no part of its host any more. */
static void leave_streams(host *it) {
    const checkpoint *oldest = it->ncheckpoints ? it->checkpoints[0] : NULL;
    int64_t left = 0;
    for (int64_t i = 0; i < it->nstreams; i++) {
        const stream *one = it->streams[i];
        bool gone = one->destroyed && one->state == IDLE;
        if (gone && oldest) {
            gone = false;
            for (int64_t k = 0; k < oldest->nstreams; k++)
                if (oldest->streams[k].stream == one)
                    gone = oldest->streams[k].saved.destroyed && oldest->streams[k].saved.state == IDLE;
        }
        if (!gone) it->streams[left++] = it->streams[i];
    }
    it->nstreams = left;
}

/* Done items go when nothing needs them any more. */
static void leave_items(host *it) {
    for (int64_t i = 0; i < it->nstreams; i++) {
        stream *one = it->streams[i];
        int64_t from = needed_from(one), gone = from - one->base;
        if (gone <= 0) continue;
        memmove(one->items, one->items + gone, (size_t)(one->count - from) * sizeof *one->items);
        one->base = from;
    }
}

/* Frees things that nothing refers to, if there may be many. Nothing is under execution. */
void collect(engine *e) {
    enum { FEWEST = 8192 };
    if (e->nobjects < e->collect_at) return;
    list todo = {0};
    int64_t rows = 0;
    for (int64_t i = 0; i < e->nhosts; i++) {
        host *it = &e->hosts[i];
        leave_streams(it);
        leave_items(it);
        mark_host(e, &todo, it);
        rows += it->fed ? it->nrows : 0;
    }
    mark_told(e, &todo, e->told, e->ntold);
    for (int64_t i = 0; i < e->ncompleted; i++) mark(&todo, &e->completed[i].of->object);
    for (int64_t i = 0; i < e->nagain; i++) mark(&todo, &e->again[i].of->object);
    for (int64_t i = 0; i < e->nnumbered; i++)
        if (e->numbered[i] && (e->numbered[i]->under_way || e->numbered[i]->in_network))
            mark(&todo, &e->numbered[i]->object);
    while (todo.n) mark_parts_of(&todo, todo.all[--todo.n]);
    free(todo.all);
    for (object **at = &e->objects; *at;) {
        object *it = *at;
        if (it->marked) {
            it->marked = false;
            at = &it->next;
        } else {
            *at = it->next;
            free_object(e, it, false);
        }
    }
    e->collect_at = 2 * e->nobjects + rows / 8 + FEWEST;
}

void free_all(engine *e) {
    for (int64_t i = 0; i < e->nhosts; i++) {
        host *it = &e->hosts[i];
        free_rows(it, 0, it->nrows);
        for (int64_t k = 0; k < it->ncheckpoints; k++) free_checkpoint(it->checkpoints[k]);
        for (device *one = it->devices, *next; one; one = next) {
            next = one->next;
            free(one->samples);
            free(one->running);
            free(one);
        }
        for (pair_count *one = it->pairs, *next; one; one = next) {
            next = one->next;
            free(one);
        }
        void *const own[] = {it->fed,     it->streams, it->recordings.keys, it->recordings.values,
                             it->memory,  it->called,  it->early,           it->checkpoints,
                             it->queries, it->elapsed, it->clocks,          it->taken};
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) free(own[k]);
    }
    for (object *it = e->objects, *next; it; it = next) {
        next = it->next;
        free_object(e, it, true);
    }
    for (int64_t i = 0; i < e->ncreations; i++) {
        free(e->creations[i]->arrived);
        free(e->creations[i]);
    }
    for (int64_t i = 0; i < e->ngates; i++) free(e->gates[i].waiting.all);
    for (int64_t i = 0; i < e->npaces; i++) free(e->paces[i].parts);
    void *const own[] = {e->hosts,        e->paces,     e->device_paces,    e->heap,    e->arrived.all, e->woken.all,
                         e->ready.all,    e->completed, e->again,           e->revised, e->done,        e->numbered,
                         e->free_numbers, e->table,     e->creations,       e->gates,   e->demands,     e->restored.all,
                         e->silent,       e->heard.all, e->passed_over.all, e->leaving, e->told,        e->waits,
                         e->gone};
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) free(own[k]);
    free(e);
}
