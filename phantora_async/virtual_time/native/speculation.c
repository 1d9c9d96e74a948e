/*
 * The simulation ahead of global virtual time: it goes on without hosts whose next row has not come.
 *
 * Such a host is silent: it leaves the queue and the others go on. When its row comes and belongs to an instant that
 * has been simulated, its rank goes back to just after that instant, and so do ranks that it has affected since. One
 * rank affects another only by the begin and the completion of collectives and by the creation of communicators, and
 * each of these sends a rank back first that is ahead of it. So what is simulated of every rank is what it would be if
 * all rows had come in order.
 *
 * Global virtual time is the earliest thing still to come: a silent host's clock, an event, a completion. No row can
 * come before it; checkpoints before it are dropped, and what they tell the outside leaves.
 */
#include <string.h>

#include "engine.h"

enum { COMMIT_EVERY = 512 }; /* events between two looks at what has become final */

/* ---- silent hosts: a heap by clock and order; entries are valid as long as the host is silent at that clock ---- */

static bool earlier(const silence *a, const silence *b) {
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void add_silent(engine *e, host *it) {
    silence made = {it->clock_ns, it->order, it};
    e->silent = grown(e->silent, e->nsilent, &e->silent_room, sizeof *e->silent);
    int64_t place = e->nsilent++;
    for (; place && earlier(&made, &e->silent[(place - 1) / 2]); place = (place - 1) / 2)
        e->silent[place] = e->silent[(place - 1) / 2];
    e->silent[place] = made;
}

static void pop_silent(engine *e) {
    silence last = e->silent[--e->nsilent];
    int64_t place = 0;
    for (int64_t below; (below = 2 * place + 1) < e->nsilent; place = below) {
        if (below + 1 < e->nsilent && earlier(&e->silent[below + 1], &e->silent[below])) below++;
        if (!earlier(&e->silent[below], &last)) break;
        e->silent[place] = e->silent[below];
    }
    e->silent[place] = last;
}

/* The silent host that is first in the total order. */
host *first_silent(engine *e) {
    while (e->nsilent) {
        const silence *first = &e->silent[0];
        if (first->host->silent && first->host->clock_ns == first->at_ns) return first->host;
        pop_silent(e);
    }
    return NULL;
}

/* The host is the first in the queue, and its next row has not come. */
void fall_silent(engine *e, host *it) {
    if (!e->log) {
        e->log = true;
        e->final_ns = e->guessed_ns = e->now_ns;
    }
    drop(e, &it->due);
    it->silent = true;
    add_silent(e, it);
}

/* The host is in the queue again, for its next row or, if that has not come, at its clock. */
static void speak(engine *e, host *it) {
    it->silent = false;
    int64_t due_ns = next_of(e, it);
    if (due_ns < e->now_ns) e->now_ns = due_ns;
    push(e, due_ns, &it->due);
}

/* Late rows send their ranks back. A host that has gone back may be silent again; its row may have come. */
void hear(engine *e) {
    while (e->heard.n || e->restored.n) {
        for (int64_t i = 0; i < e->restored.n; i++) put(&e->heard, e->restored.all[i]);
        e->restored.n = 0;
        host *it = e->heard.all[--e->heard.n];
        if (!it->silent) continue;
        if (it->cursor >= it->nrows)
            add_silent(e, it);
        else if (go_back(e, it, next_of(e, it) + 1))
            put(&e->heard, it);
        else
            speak(e, it);
    }
}

/* Is some host silent at an earlier place of the total order? */
bool waits_before(engine *e, int64_t at_ns, int64_t order) {
    const host *first = first_silent(e);
    return first && (first->clock_ns < at_ns || (first->clock_ns == at_ns && first->order < order));
}

/* ---- what is final ---- */

/*
 * Where ranks that meet at one instant act in another order than the total one, the result is the same, except of a
 * collective's begin and the abort of one of its members: whichever comes first prevents the other. So an instant at
 * which both happened ahead of some rank's rows is simulated again, strictly in order.
 */
void found_disorder(engine *e) {
    if (e->log && e->now_ns != e->strict_ns) e->disordered = true;
}

static void simulate_strictly(engine *e) {
    e->disordered = false;
    e->strict_ns = e->now_ns;
    for (int64_t i = 0; i < e->nhosts; i++) demand(e, &e->hosts[i], e->now_ns);
    settle(e);
}

/* `ahead`: the event may be later than a silent host. */
void event_executed(engine *e, bool ahead) {
    if (e->disordered) simulate_strictly(e);
    if (ahead && e->now_ns > e->guessed_ns) e->guessed_ns = e->now_ns;
    if (e->restored.n) hear(e);
    if (!(++e->looked % COMMIT_EVERY)) commit(e);
}

/* The last instant at which anything of a rank has been simulated. */
int64_t furthest_ns(const engine *e) {
    int64_t latest_ns = 0;
    for (int64_t i = 0; i < e->nhosts; i++) {
        const host *it = &e->hosts[i];
        if (it->ncheckpoints && it->checkpoints[it->ncheckpoints - 1]->at_ns > latest_ns)
            latest_ns = it->checkpoints[it->ncheckpoints - 1]->at_ns;
    }
    return latest_ns;
}

/* Global virtual time: everything before it is decided. */
int64_t global_ns(engine *e) {
    int64_t first_ns = refresh(e);
    const host *silent = first_silent(e);
    if (silent && silent->clock_ns < first_ns) first_ns = silent->clock_ns;
    if (e->nheap && e->heap[0]->at_ns < first_ns) first_ns = e->heap[0]->at_ns;
    if (first_ns != NEVER) return first_ns;
    int64_t furthest = furthest_ns(e);
    return furthest > e->final_ns ? furthest : e->final_ns;
}

/* Answers at global virtual time itself, if everything to come is behind them in the total order. Without this, a host
 * that asks and says nothing until it is answered would wait for itself. */
static void release_answers_at(engine *e, int64_t at_ns) {
    int64_t event_ns = NEVER, event_order = 0, silent_ns = NEVER, silent_order = 0;
    if (e->nheap) event_ns = e->heap[0]->at_ns, event_order = e->heap[0]->order;
    const host *silent = first_silent(e);
    if (silent) silent_ns = silent->clock_ns, silent_order = silent->order;
    if (refresh(e) <= at_ns || (event_ns <= at_ns && event_order < HOSTS)) return;
    for (int64_t i = 0; i < e->nhosts; i++) {
        host *it = &e->hosts[i];
        if (!it->ncheckpoints || it->checkpoints[0]->at_ns != at_ns) continue;
        bool event_later = event_ns > at_ns || (event_ns == at_ns && event_order >= it->order);
        bool silent_later = silent_ns > at_ns || (silent_ns == at_ns && silent_order >= it->order);
        if (event_later && silent_later) release_answers(e, it, it->checkpoints[0]);
    }
}

static void end_speculation(engine *e) {
    e->now_ns = e->final_ns;
    e->nsilent = e->heard.n = e->restored.n = 0;
    e->log = false;
    e->strict_ns = -1;
    e->acting = NULL;
}

/* Releases what is final and drops its history. Ends speculation when no rank is ahead. */
void commit(engine *e) {
    int64_t at_ns = global_ns(e);
    /* What dead GPUs and servers would do next stays in the queue for ever. */
    bool nothing_left = (!e->nheap || e->heap[0]->at_ns >= NEVER) && refresh(e) == NEVER;
    bool over = !first_silent(e) && (at_ns > e->guessed_ns || nothing_left);
    if (e->kept > e->most_kept) e->most_kept = e->kept;
    for (int64_t i = 0; i < e->nhosts; i++) {
        host *it = &e->hosts[i];
        int64_t final = 0;
        for (; final < it->ncheckpoints; final++) {
            checkpoint *one = it->checkpoints[final];
            if (one->at_ns >= at_ns && !over) break;
            if (one->at_ns > e->final_ns) e->final_ns = one->at_ns;
            release(e, it, one);
            if (e->acting == one) e->acting = NULL;
            free_checkpoint(one);
        }
        if (final) {
            it->ncheckpoints -= final;
            e->kept -= final;
            memmove(it->checkpoints, it->checkpoints + final, (size_t)it->ncheckpoints * sizeof *it->checkpoints);
        }
        forget_rows(it, it->ncheckpoints ? it->checkpoints[0]->facts : facts_done(it));
    }
    release_answers_at(e, at_ns);
    commit_collectives(e, at_ns);
    if (over) end_speculation(e);
}

/* Takes back everything from global virtual time on, as if nothing had been simulated ahead. */
void stop_speculation(engine *e) {
    if (!e->log) return;
    hear(e);
    int64_t at_ns = global_ns(e);
    for (int64_t i = 0; i < e->nhosts; i++) demand(e, &e->hosts[i], at_ns);
    settle(e);
    hear(e);
    commit(e);
    if (!e->log) return;
    for (int64_t i = 0; i < e->nhosts; i++)
        if (e->hosts[i].silent) speak(e, &e->hosts[i]);
    end_speculation(e);
}
