/* What the user of the library calls: ../native/binding.py. Hosts are numbered from 0; `rank` is what it is called. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { ABI = 1 };
#define API __attribute__((visibility("default")))

API int64_t vt_abi(void) { return ABI; }

/* ---- making one ---- */

typedef struct {
    int64_t nhosts, depth, parts, keeps_answers, ngates, npaces, ndevice_paces;
    const int64_t *ranks;        /* of each host */
    const int32_t *gpus;         /* of each host: the number of its own GPU on its server, -1: not known */
    const int32_t *host_paces;   /* of each host: its number, -1 for none */
    const int32_t *device_paces; /* host, device, pace */
    const int64_t *paces;        /* of each: origin_ns, dead from, dead until */
    functions to;
} input;

API engine *vt_new(const input *in) {
    engine *e = take(sizeof *e);
    e->to = in->to;
    e->nhosts = in->nhosts;
    e->depth = in->depth;
    e->parts = in->parts;
    e->keeps_answers = in->keeps_answers;
    e->limit_ns = e->network_ns = e->next_ns = NEVER;
    e->starved = e->strict_ns = -1;
    e->ngates = in->ngates;
    e->gates = take((size_t)in->ngates * sizeof *e->gates);
    e->npaces = in->npaces;
    e->paces = take((size_t)in->npaces * sizeof *e->paces);
    for (int64_t i = 0; i < in->npaces; i++)
        e->paces[i] = (pace){.number = (int32_t)i,
                             .origin_ns = in->paces[3 * i],
                             .dead_from_ns = in->paces[3 * i + 1],
                             .dead_until_ns = in->paces[3 * i + 2]};
    e->ndevice_paces = in->ndevice_paces;
    e->device_paces = take((size_t)in->ndevice_paces * 3 * sizeof *e->device_paces);
    if (in->ndevice_paces)
        memcpy(e->device_paces, in->device_paces, (size_t)in->ndevice_paces * 3 * sizeof *e->device_paces);
    e->hosts = take((size_t)in->nhosts * sizeof *e->hosts);
    for (int64_t i = 0; i < in->nhosts; i++) {
        host *it = &e->hosts[i];
        it->rank = in->ranks[i];
        it->gpu = in->gpus[i];
        it->order = HOSTS + it->rank;
        it->polled_ns = -1;
        it->pace = in->host_paces[i] < 0 ? NULL : &e->paces[in->host_paces[i]];
        it->due = (event){.place = -1, .order = it->order, .is_host = true, .target = it};
        push(e, 0, &it->due);
    }
    return e;
}

API void vt_free(engine *e) { free_all(e); }

/* All of a pace that is known by now. */
API void vt_pace(engine *e, int32_t number, const int64_t *starts, const int64_t *paces, int64_t n, int64_t known_ns) {
    set_pace(&e->paces[number], starts, paces, n, known_ns);
}

API void vt_limit(engine *e, int64_t at_ns) { e->limit_ns = at_ns; }

API void vt_limit_memory(engine *e, const int64_t most[3], int64_t last_step) {
    e->memory_limited = true;
    memcpy(e->most_memory, most, sizeof e->most_memory);
    e->last_step = last_step;
}

API void vt_listen(engine *e, int64_t host) { e->hosts[host].heard = true; }

/* ---- rows ---- */

/* The number of a collective that so many hosts call. */
API int64_t vt_collective(engine *e, int64_t comm, int32_t needed, int32_t weight) {
    return new_collective(e, comm, needed, weight)->number;
}

API int64_t vt_creation(engine *e, int32_t size) {
    creation *made = take(sizeof *made);
    *made = (creation){.number = e->ncreations, .size = size, .arrived = take((size_t)size * sizeof *made->arrived)};
    e->creations = grown(e->creations, e->ncreations, &e->creations_room, sizeof *e->creations);
    e->creations[e->ncreations] = made;
    return e->ncreations++;
}

/* The first value of an NCCL_LAUNCH is the place of its collectives' numbers in `called`. */
static void resolve(const engine *e, row *it, const int64_t *called) {
    const int64_t *numbers = called + it->values[0];
    if (it->values[1] == 1) {
        it->values[0] = (uint64_t)(uintptr_t)e->numbered[numbers[0]];
        return;
    }
    collective **all = take((size_t)it->values[1] * sizeof *all);
    for (uint64_t i = 0; i < it->values[1]; i++) all[i] = e->numbered[numbers[i]];
    it->values[0] = (uint64_t)(uintptr_t)all;
    if (!it->values[1]) free(all);
}

/* Appends rows of one host, in its order. */
API void vt_feed(engine *e, int64_t host_number, const row *rows, int64_t n, const int64_t *called) {
    host *it = &e->hosts[host_number];
    while (it->nrows + n > it->room) it->fed = grown(it->fed, it->room, &it->room, sizeof *it->fed);
    if (n) memcpy(it->fed + it->nrows, rows, (size_t)n * sizeof *rows);
    for (int64_t i = it->nrows; i < it->nrows + n; i++)
        if (it->fed[i].kind == NCCL_LAUNCH) resolve(e, &it->fed[i], called);
    it->rows = it->fed;
    it->nrows += n;
    if (it->silent) put(&e->heard, it);
}

/* Tables of programs, and the program of a host: all that it does. They have to stay where they are. */
API void vt_tables(engine *e, const tables *of) { e->tables = *of; }

API void vt_program(engine *e, int64_t host_number, const program *of) {
    host *it = &e->hosts[host_number];
    it->program = of;
    it->rows = of->rows;
    it->nrows = of->nrows;
    it->called = take((size_t)of->ncomms * sizeof *it->called);
}

/* ---- what the network's functions tell ---- */

API void vt_done(engine *e, int64_t number) {
    e->done = grown(e->done, e->ndone, &e->done_room, sizeof *e->done);
    e->done[e->ndone++] = number;
}

API void vt_revised(engine *e, int64_t number, int64_t before_ns, int64_t after_ns) {
    e->revised = grown(e->revised, e->nrevised, &e->revised_room, sizeof *e->revised);
    e->revised[e->nrevised++] = (revision){e->numbered[number], before_ns, after_ns};
}

typedef struct {
    int64_t comm, call, seq, exchange, by_program;
} collective_view;

API void vt_collective_view(const engine *e, int64_t number, collective_view *to) {
    const collective *it = e->numbered[number];
    *to = (collective_view){it->comm, it->call, it->seq, it->exchange, it->by_program};
}

/* For how many collectives it stands. */
API void vt_weigh(engine *e, int64_t number, int32_t weight) { e->numbered[number]->weight = weight; }

/* ---- running ---- */

API int64_t vt_run(engine *e, int64_t budget, int64_t ahead) {
    int64_t left = budget;
    if (e->log) hear(e);
    stop why = execute(e, &left, ahead);
    e->events += budget - left;
    if (why == STOP_RAISED || why == STOP_BAD) return why;
    if (e->log)
        commit(e);
    else
        commit_collectives(e, e->now_ns);
    collect(e);
    return e->raised ? STOP_RAISED : why;
}

/* These hosts sleep where no record tells of it: until the next answer leaves, they hold no time back. At that instant
 * they go on: whatever wakes them follows from that answer or from one before it. Meanwhile nothing is simulated ahead.
 */
API void vt_pass_over(engine *e, const int64_t *hosts, int64_t n) {
    stop_speculation(e);
    bool answered = false; /* do answers leave that are certain by now? So the same ones have left in every run */
    for (int64_t i = 0; i < e->nhosts; i++) {
        host *it = &e->hosts[i];
        if (!it->state && it->cursor < it->nrows) answered |= foresee(e, it, next_of(e, it));
    }
    if (answered) return;
    e->passing = true;
    e->answers_before = e->answers_sent;
    for (int64_t i = 0; i < n; i++) e->hosts[hosts[i]].may_pass = true;
}

API void vt_stop_speculation(engine *e) { stop_speculation(e); }

/* ---- processes end ---- */

/* Has everything been executed that the host's process sent up to its BYE, and what its GPU was given? */
API int64_t vt_has_ended(engine *e, int64_t host_number) {
    stop_speculation(e);
    const host *it = &e->hosts[host_number];
    if (it->state != FINISHED) return false;
    for (int64_t i = 0; i < it->nstreams; i++)
        if (!it->streams[i]->destroyed && it->streams[i]->state) return false;
    return true;
}

static void begin_process(engine *e, host *it, int64_t at_ns) {
    end_process(e, it);
    for (device *one = it->devices; one; one = one->next)
        if (one->used) account(one, at_ns);
    it->clock_ns = at_ns;
    it->state = RUNNING;
    push(e, at_ns, &it->due);
    if (it->heard) tell(e, it, TOLD_RESTARTED, at_ns, 0, NULL);
}

/* The process of the host has ended, and another one of it starts at the present instant. */
API void vt_begin_again(engine *e, int64_t host_number) {
    host *it = &e->hosts[host_number];
    begin_process(e, it, e->now_ns > it->clock_ns ? e->now_ns : it->clock_ns);
}

/* Before a restart: nothing is ahead, and nobody is passed over. */
API void vt_prepare_restart(engine *e) {
    stop_speculation(e);
    if (e->passing || e->passed_over.n) return_all(e);
}

/* The host's process has ended, and sent nothing more: it holds no time back. */
API void vt_end(engine *e, int64_t host_number) {
    host *it = &e->hosts[host_number];
    drop(e, &it->due);
    block(e, it, ENDED, FOR_NOTHING, NULL);
}

/* All processes have ended; those of `again` start at the end of `failed`, or later. Returns that instant. */
API int64_t vt_restart(engine *e, int64_t failed, const int64_t *again, int64_t n, int64_t steps,
                       int64_t not_before_ns) {
    const host *of = &e->hosts[failed];
    /* It may not come to its end: it waits for ranks whose processes have ended. */
    int64_t at_ns = of->state == RUNNING ? of->clock_ns : e->now_ns;
    if (at_ns < not_before_ns) at_ns = not_before_ns;
    forget_collectives(e);
    for (int64_t i = 0; i < e->ncreations; i++) e->creations[i]->waiting = false, e->creations[i]->narrived = 0;
    for (int64_t i = 0; i < n; i++) {
        host *it = &e->hosts[again[i]];
        begin_process(e, it, at_ns);
        it->steps = steps;
    }
    return at_ns;
}

/* ---- what has left ---- */

typedef struct {
    int64_t nleaving, ntold, nwaits, ngone;
    const leaving *leaving;
    const told *told;
    const outside_wait *waits;
    const int64_t *gone; /* numbers of collectives that will be given to others */
} outputs;

API void vt_outputs(const engine *e, outputs *to) {
    *to = (outputs){e->nleaving, e->ntold, e->nwaits, e->ngone, e->leaving, e->told, e->waits, e->gone};
}

enum { LEAVING = 1, TOLD = 2, WAITS = 4, GONE = 8 };

API void vt_taken(engine *e, int64_t which) {
    if (which & LEAVING) e->nleaving = 0;
    if (which & TOLD) e->ntold = 0;
    if (which & WAITS) e->nwaits = 0;
    if (which & GONE) e->ngone = 0;
}

/* ---- looking at it ---- */

API int64_t vt_poll_ns(int64_t polls) { return poll_ns(polls); }

typedef struct {
    int64_t now_ns, ahead_ns, begun, facts_done, events, starved, log, kept, most_kept, rollbacks, events_back;
    int64_t answers_sent, answered_early, bad_rank;
    int64_t objects, held;
    const char *bad;
} engine_view;

API void vt_view(engine *e, engine_view *to) {
    int64_t now_ns = e->log ? global_ns(e) : e->now_ns, ahead_ns = now_ns;
    if (e->log && furthest_ns(e) > now_ns) ahead_ns = furthest_ns(e);
    *to = (engine_view){now_ns,
                        ahead_ns,
                        e->begun,
                        e->facts - e->facts_back,
                        e->events,
                        e->starved,
                        e->log,
                        e->kept,
                        e->most_kept,
                        e->rollbacks,
                        e->events_back,
                        e->answers_sent,
                        e->answered_early,
                        e->bad_rank,
                        e->nobjects,
                        0,
                        e->bad};
}

API int64_t vt_now(engine *e) { return e->log ? global_ns(e) : e->now_ns; }
API int64_t vt_facts_done(const engine *e) { return e->facts - e->facts_back; }
API int64_t vt_answers_sent(const engine *e) { return e->answers_sent; }
API int64_t vt_queued(const engine *e, int64_t host) { return e->hosts[host].nrows - e->hosts[host].cursor; }

/* Things that grow if nobody forgets them. */
API int64_t vt_held(const engine *e) {
    int64_t held = e->nheap + held_collectives(e) + e->nobjects;
    for (int64_t i = 0; i < e->nhosts; i++) {
        const host *it = &e->hosts[i];
        held += it->nrows + it->recordings.n + it->ncheckpoints;
        for (int64_t k = 0; k < it->ncheckpoints; k++) held += it->checkpoints[k]->nundo;
        for (int64_t k = 0; k < it->nstreams; k++) held += it->streams[k]->count - it->streams[k]->base;
    }
    return held;
}

typedef struct {
    int64_t rank, state, clock_ns, steps, counters, facts_done, queued, last_site, nmemory, ndevices, ntaken, nnotes;
    int64_t wait, wait_site, wait_creation, nqueries, nelapsed, nclocks, nstreams, ncheckpoints;
    int64_t generating_ns, partial_ns;
    const memory_change *memory;
    const uint8_t *queries;
    const int64_t *elapsed, *clocks;
    const taken_change *taken;
    const generation_note *notes;
} host_view;

static int64_t wait_site(const host *it) {
    /* A launch that found its queue full is still to be done; every other wait is behind the cursor. */
    int64_t place = it->state == WAITS_QUEUE ? it->cursor : it->cursor - 1;
    return 0 <= place && place < it->nrows ? it->rows[place].site : 0;
}

API void vt_host(const engine *e, int64_t number, host_view *to) {
    const host *it = &e->hosts[number];
    int64_t ndevices = 0, last_site = 0;
    for (const device *one = it->devices; one; one = one->next) ndevices += one->used != 0;
    const generating batch = generated_until(it->batch, it->clock_ns);
    for (int64_t i = it->nrows; i-- > 0 && !last_site;) last_site = it->rows[i].site;
    *to = (host_view){.rank = it->rank,
                      .state = it->state,
                      .clock_ns = it->clock_ns,
                      .steps = it->steps,
                      .counters = it->counters,
                      .facts_done = facts_done(it),
                      .queued = it->nrows - it->cursor,
                      .last_site = last_site,
                      .nmemory = it->nmemory,
                      .ndevices = ndevices,
                      .ntaken = it->ntaken,
                      .nnotes = it->nnotes,
                      .wait = it->wait,
                      .wait_site = wait_site(it),
                      .wait_creation = it->wait == FOR_CREATION ? ((const creation *)it->waits_for)->number : -1,
                      .nqueries = it->nqueries,
                      .nelapsed = it->nelapsed,
                      .nclocks = it->nclocks,
                      .nstreams = it->nstreams,
                      .ncheckpoints = it->ncheckpoints,
                      .generating_ns = batch.busy_ns,
                      .partial_ns = batch.partial_ns,
                      .memory = it->memory,
                      .queries = it->queries,
                      .elapsed = it->elapsed,
                      .clocks = it->clocks,
                      .taken = it->taken,
                      .notes = it->notes};
}

API int64_t vt_state(const engine *e, int64_t host) { return e->hosts[host].state; }

/* The number of hosts in this state. */
API int64_t vt_in_state(const engine *e, int64_t state) {
    int64_t found = 0;
    for (int64_t i = 0; i < e->nhosts; i++) found += e->hosts[i].state == (host_state)state;
    return found;
}

API int64_t vt_clock(const engine *e, int64_t host) { return e->hosts[host].clock_ns; }
API int64_t vt_steps(const engine *e, int64_t host) { return e->hosts[host].steps; }

/* Instants of the host's checkpoints. */
API void vt_checkpoints(const engine *e, int64_t host, int64_t *to) {
    for (int64_t i = 0; i < e->hosts[host].ncheckpoints; i++) to[i] = e->hosts[host].checkpoints[i]->at_ns;
}

typedef struct {
    int64_t number, width_ns, nsamples, shares[SHARES];
    const int64_t *samples;
} device_view;

/* Of the host's devices that were given work, in the order of that: where time went until this instant, and samples
 * until then. Nothing is booked but samples, which are written again. */
API void vt_devices(engine *e, int64_t host, int64_t now_ns, device_view *to) {
    for (device *one = e->hosts[host].devices; one; one = one->next) {
        if (!one->used) continue;
        device_view *its = &to[one->used - 1];
        device_saved before = one->saved;
        account(one, now_ns);
        *its = (device_view){
            .number = one->number, .width_ns = one->width_ns, .nsamples = one->nsamples, .samples = one->samples};
        memcpy(its->shares, one->shares, sizeof its->shares);
        one->saved = before;
    }
}

API void vt_shares(const engine *e, int64_t host, int64_t now_ns, int64_t *to) {
    shares_of(&e->hosts[host], now_ns, to);
}

enum { SHOWN = 2 /* collectives of a kernel whose data moves: a group call may take part in thousands */, DEPTH = 8 };

typedef struct {
    int64_t id, cause_id, cause_state, ncollectives, collectives[SHOWN];
} stream_view;

/* The stream that a blocked one waits for in the end, or itself. */
static const stream *cause_of(const stream *it) {
    for (int i = 0; i < DEPTH && it->state == BLOCKED; i++) it = ((recording *)ITEM(it, it->head).what)->stream;
    return it;
}

static bool is_awaited(const collective *it) { return it->under_way && it->begun_ns < 0; }

static void view_stream(const stream *it, stream_view *to) {
    const stream *cause = cause_of(it);
    *to = (stream_view){it->id, cause->id, cause->state, 0, {0}};
    if (cause->state != COLLECTIVE) return;
    const kernel *head = (const kernel *)ITEM(cause, cause->head).what;
    for (int32_t i = 0; i < head->ncollectives; i++)
        if (is_awaited(head->collectives[i])) {
            to->collectives[0] = head->collectives[i]->number;
            to->ncollectives = 1;
            return;
        }
    for (; to->ncollectives < head->ncollectives && to->ncollectives < SHOWN; to->ncollectives++)
        to->collectives[to->ncollectives] = head->collectives[to->ncollectives]->number;
}

/* Streams that the host waits for: one, or all causes of its GPU's work. Returns how many; `to` has room for all. */
API int64_t vt_awaited(const engine *e, int64_t number, stream_view *to) {
    const host *it = &e->hosts[number];
    if (it->wait == FOR_STREAM) return view_stream(it->waits_for, to), 1;
    if (it->wait == FOR_RECORDING) return view_stream(((const recording *)it->waits_for)->stream, to), 1;
    int64_t n = 0;
    for (int64_t i = 0; it->wait == FOR_DEVICE && i < it->nstreams; i++) {
        const stream *one = it->streams[i];
        if (one->destroyed || !one->state || one->device != it->waits_for) continue;
        const stream *cause = cause_of(one);
        int64_t known = 0;
        while (known < n && to[known].id != cause->id) known++;
        if (known == n) view_stream(cause, &to[n++]);
    }
    return n;
}

/* Ranks of hosts whose streams have reached the collective; -1: it has begun, or is complete. */
API int64_t vt_arrived(const engine *e, int64_t number, int64_t *to) {
    const collective *it = e->numbered[number];
    if (!is_awaited(it)) return -1;
    for (int32_t i = 0; i < it->nmembers; i++) to[i] = it->members[i].kernel->stream->device->host->rank;
    return it->nmembers;
}

/* Ranks of hosts that wait for others to ask for a communicator. */
API int64_t vt_asking(const engine *e, int64_t number, int64_t *to) {
    const creation *it = e->creations[number];
    if (!it->waiting) return 0;
    for (int32_t i = 0; i < it->narrived; i++) to[i] = it->arrived[i].host->rank;
    return it->narrived;
}

/* Numbers of the host's recordings that are not complete. Returns how many; writes at most so many. */
API int64_t vt_undone(const engine *e, int64_t number, uint64_t *to, int64_t most) {
    const recording_map *of = &e->hosts[number].recordings;
    int64_t n = 0;
    for (int64_t i = 0; i < of->room; i++) {
        if (!of->keys[i] || of->values[i]->done_ns >= 0) continue;
        if (n < most) to[n] = of->keys[i] - 1;
        n++;
    }
    return n;
}
