/* The loop, and what Python calls. */
#include "engine.h"

#include <stdlib.h>

enum { ABI = 2, BY_ID = 64 };
enum { DRAINED, LIMIT, STARVED, RAISED, BROKEN };

#define API __attribute__((visibility("default")))

API int rp_abi(void) { return ABI; }

API engine *rp_new(const input *in, begin_function begin, complete_function complete, more_function more) {
    engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->in = *in;
    e->begin = begin;
    e->complete = complete;
    e->more = more;
    e->network_ns = NEVER;
    e->hosts = take(e, (size_t)in->nranks * sizeof *e->hosts);
    e->creations = take(e, (size_t)in->ncreations * sizeof *e->creations);
    e->gates = take(e, (size_t)in->ngates * sizeof *e->gates);
    e->paces = take(e, (size_t)in->npaces * sizeof *e->paces);
    for (int32_t i = 0; i < in->npaces; i++) e->paces[i].number = i;
    for (int64_t rank = 0; rank < in->nranks; rank++) {
        host *it = &e->hosts[rank];
        const program *of = &in->programs[rank];
        int32_t pace = in->host_paces[rank];
        *it = (host){.rank = rank,
                     .gpu = in->gpus[rank],
                     .program = of,
                     .polled_ns = -1,
                     .pace = pace < 0 ? NULL : &e->paces[pace]};
        it->due = (event){.place = -1, .is_host = true, .target = it};
        it->by_id = take(e, BY_ID * sizeof *it->by_id);
        it->recordings = take(e, (size_t)of->nrecordings * sizeof *it->recordings);
        it->called = take(e, (size_t)of->ncomms * sizeof *it->called);
    }
    return e;
}

/* All of a pace that is known by now. */
API void rp_pace(engine *e, int32_t number, const int64_t *starts, const int64_t *paces, int64_t n, int64_t known_ns) {
    set_pace(&e->paces[number], starts, paces, n, known_ns);
}

static void free_list(list *it) { free(it->all); }

API void rp_free(engine *e) {
    for (int64_t i = 0; i < e->streams.n; i++) free(((stream *)e->streams.all[i])->items);
    for (int64_t rank = 0; rank < e->in.nranks; rank++) {
        host *it = &e->hosts[rank];
        for (device *one = it->devices; one; one = one->next) free(one->samples);
        free(it->memory);
        free(it->queries);
        free(it->elapsed);
        free(it->clocks);
    }
    for (int64_t i = 0; i < e->in.npaces; i++) free(e->paces[i].parts);
    for (int64_t i = 0; i < e->nowned; i++) free(e->owned[i]);
    free_list(&e->arrived);
    free_list(&e->woken);
    free_list(&e->ended);
    free_list(&e->ready);
    free_list(&e->streams);
    free_list(&e->collectives);
    free(e->owned);
    free(e->heap);
    free(e->steps);
    free(e->done);
    free(e);
}

/* For tests: how long question number `polls` in a row takes. */
API int64_t rp_poll_ns(int64_t polls) { return poll_ns(polls); }

API void rp_done(engine *e, int32_t number) {
    e->done = grown(e->done, e->ndone, &e->done_room, sizeof *e->done);
    e->done[e->ndone++] = number;
}

/* ---- the loop -----------------------------------------------------------------------------------------------------
 */

static void end_step(engine *e, step_end *it) {
    it->device_ns = e->now_ns;
    shares_of(it->host, e->now_ns, it->shares);
    e->steps = grown(e->steps, e->nsteps, &e->steps_room, sizeof *e->steps);
    e->steps[e->nsteps++] = it;
}

/* What an event has made possible at the same instant. */
static bool follow_up(engine *e) {
    while (e->arrived.n || e->woken.n || e->ended.n) {
        while (e->arrived.n)
            if (!arrive(e, take_first(&e->arrived))) return false;
        while (e->woken.n) wake(e, take_first(&e->woken));
        while (e->ended.n) end_step(e, take_first(&e->ended));
    }
    return true;
}

/* The host's rows from now on, while nothing else comes first. Returns 0, or why the loop ends. */
static int execute_rows(engine *e, host *it) {
    const row *rows = it->program->rows;
    for (;;) {
        it->clock_ns = e->now_ns;
        it->retry = false;
        e->executed++;
        int found = execute_row(e, it, &rows[it->cursor]);
        if (found < 0) {
            e->bad_rank = it->rank;
            e->bad_row = it->cursor;
            return BROKEN;
        }
        if (!found) return 0;
        it->cursor++;
        if (!follow_up(e)) return RAISED;
        int64_t due_ns = next_of(e, it), order = ((int64_t)1 << 40) + it->rank;
        const event *first = e->nheap ? e->heap[0] : NULL;
        bool other = first && (first->at_ns < due_ns || (first->at_ns == due_ns && first->order < order));
        if (it->cursor >= it->program->nrows || other || e->network_ns <= due_ns || due_ns >= e->in.limit_ns) {
            push(e, due_ns, &it->due, order);
            return 0;
        }
        e->now_ns = due_ns;
    }
}

API int rp_run(engine *e) {
    for (int64_t rank = 0; rank < e->in.nranks; rank++) {
        host *it = &e->hosts[rank];
        push(e, next_of(e, it), &it->due, ((int64_t)1 << 40) + rank);
    }
    for (;;) {
        if (e->raised) return RAISED;
        event *first = e->nheap ? e->heap[0] : NULL;
        bool network = !first || first->at_ns >= e->network_ns;
        int64_t at_ns = network ? e->network_ns : first->at_ns;
        if (at_ns >= e->in.limit_ns) {
            if (at_ns == NEVER) return DRAINED;
            e->now_ns = e->in.limit_ns;
            return LIMIT;
        }
        if (network) {
            e->now_ns = at_ns;
            if (!complete(e)) return RAISED;
        } else if (first->is_host) {
            host *it = first->target;
            if (it->cursor >= it->program->nrows) {
                e->bad_rank = it->rank;
                return STARVED;
            }
            e->now_ns = at_ns;
            drop(e, first);
            int why = execute_rows(e, it);
            if (why) return why;
        } else {
            e->now_ns = at_ns;
            drop(e, first);
            finish_segment(e, first->target);
        }
        if (!follow_up(e)) return RAISED;
    }
}

/* ---- results ------------------------------------------------------------------------------------------------------
 */

typedef struct {
    int64_t state, clock_ns, steps, counters, nmemory, nqueries, nelapsed, nclocks, ndevices;
    const memory_change *memory;
    const uint8_t *queries;
    const int64_t *elapsed, *clocks;
} rank_result;

typedef struct {
    int64_t number, used, width_ns, nsamples, shares[6];
    const int64_t *samples;
} device_result;

typedef struct {
    int64_t rank, number, host_ns, device_ns, counters, shares[6];
} step_result;

typedef struct {
    int64_t now_ns, begun, nsteps, executed, bad_rank, bad_row;
    const char *bad;
} result;

API void rp_result(engine *e, result *to) {
    *to = (result){e->now_ns, e->begun, e->nsteps, e->executed, e->bad_rank, e->bad_row, e->bad};
}

API void rp_rank(engine *e, int64_t rank, rank_result *to) {
    host *it = &e->hosts[rank];
    int64_t ndevices = 0;
    for (device *one = it->devices; one; one = one->next) ndevices += one->used;
    *to = (rank_result){it->state,   it->clock_ns, it->steps,  it->counters, it->nmemory, it->nqueries, it->nelapsed,
                        it->nclocks, ndevices,     it->memory, it->queries,  it->elapsed, it->clocks};
}

/* The rank's devices that were given work, in the order of their numbers' creation. Their time is booked until now. */
API void rp_devices(engine *e, int64_t rank, device_result *to) {
    for (device *one = e->hosts[rank].devices; one; one = one->next) {
        if (!one->used) continue;
        account(one, e->now_ns);
        *to++ = (device_result){
            one->number,
            one->used,
            one->width_ns,
            one->nsamples,
            {one->compute_ns, one->transfer_ns, one->peers_ns, one->host_bound_ns, one->idle_ns, one->communication_ns},
            one->samples};
    }
}

API void rp_step(engine *e, int64_t place, step_result *to) {
    const step_end *it = e->steps[place];
    *to = (step_result){it->host->rank, it->number, it->host_ns, it->device_ns, it->counters, {0}};
    for (int i = 0; i < 6; i++) to->shares[i] = it->shares[i];
}
