/*
 * The loop that executes events in their total order.
 *
 * Gating: a host whose next row has not come keeps its place in the queue at its clock, because the row can be no
 * earlier. When that place is the first, the simulation stops: nothing later in the total order can be decided yet. So
 * the sequence of events is a function of the rows alone, whatever order they arrive in. To go ahead of such a host,
 * the same loop executes the same events with the log on: see speculation.c.
 */
#include "engine.h"

/* Executes what an event has made possible at the same instant. */
void follow_up(engine *e) {
    while (e->arrived.n || e->woken.n) {
        while (e->arrived.n) arrive(e, take_first(&e->arrived));
        while (e->woken.n) wake(e, take_first(&e->woken));
    }
}

/* The host's rows from the present instant on, while nothing else comes first. Returns how many; -1: one is bad. */
static int64_t execute_rows(engine *e, host *it) {
    int64_t executed = 0, first = it->cursor;
    outcome found;
    for (;;) {
        it->clock_ns = e->now_ns;
        it->retry = false;
        executed++;
        found = execute_row(e, it, &it->rows[it->cursor]);
        if (found != GOES_ON) break;
        it->cursor++;
        if (e->arrived.n || e->woken.n) follow_up(e);
        if (it->cursor >= it->nrows) {
            push(e, e->now_ns, &it->due);
            break;
        }
        int64_t due_ns = next_of(e, it);
        const event *next = e->nheap ? e->heap[0] : NULL;
        bool other = next && (next->at_ns < due_ns || (next->at_ns == due_ns && next->order < it->order));
        if (e->log || other || refresh(e) <= due_ns || due_ns >= e->limit_ns || e->raised) {
            push(e, due_ns, &it->due);
            if (!e->log) foresee(e, it, due_ns);
            break;
        }
        e->now_ns = due_ns;
    }
    e->facts += it->cursor - first;
    if (!e->log) forget_rows(it, facts_done(it));
    return found == BAD ? -1 : executed;
}

/* ---- missing rows ---- */

/* Nothing more can be decided without this host's next row; NULL: no row is missing. */
static stop starve(engine *e, const host *it) {
    e->starved = it ? it->rank : -1;
    return it ? STOP_STARVED : STOP_DRAINED;
}

/* The host is the first in the queue, and its next row has not come. False: the simulation stops. */
static bool goes_on_without(engine *e, host *it, bool ahead) {
    if (it->may_pass) {
        drop(e, &it->due);
        block(e, it, PASSED_OVER, FOR_NOTHING, NULL);
        put(&e->passed_over, it);
    } else if (e->passed_over.n) {
        return_all(e);
    } else if (ahead && !e->passing) {
        fall_silent(e, it);
    } else {
        return false;
    }
    return true;
}

/* An answer has left, or nothing else can happen: hosts that were passed over go on at this instant. */
void return_all(engine *e) {
    bool answered = e->answers_sent != e->answers_before;
    for (int64_t i = 0; i < e->passed_over.n; i++) {
        host *it = e->passed_over.all[i];
        e->waits = grown(e->waits, e->nwaits, &e->waits_room, sizeof *e->waits);
        e->waits[e->nwaits++] =
            (outside_wait){it->rank, facts_done(it), e->now_ns - it->clock_ns, answered ? e->hosts[e->latest].rank : -1,
                           answered ? facts_done(&e->hosts[e->latest]) : 0};
        wake(e, it);
    }
    e->passed_over.n = 0;
    e->passing = false;
    for (int64_t i = 0; i < e->nhosts; i++) e->hosts[i].may_pass = false;
}

/* ---- event by event in their total order ---- */

/* The host's event: its next row, if that is due by now. Returns what it takes of the budget; -1: a row is bad. */
static int64_t execute_host(engine *e, host *it) {
    int64_t due_ns = next_of(e, it);
    if (due_ns > e->now_ns) {
        push(e, due_ns, &it->due);
        if (!e->log) foresee(e, it, due_ns);
        return 0;
    }
    if (e->log) act(e, it);
    drop(e, &it->due);
    return execute_rows(e, it);
}

/* At the limit, or at the end of everything that is known. False: it goes on after all. */
static bool at_end(engine *e, int64_t at_ns, stop *why) {
    host *silent = first_silent(e);
    if (at_ns != NEVER && !silent) {
        e->now_ns = e->limit_ns;
        *why = STOP_LIMIT;
        return true;
    }
    if (at_ns == NEVER && e->passed_over.n) {
        return_all(e);
        return false;
    }
    *why = starve(e, silent);
    return true;
}

stop execute(engine *e, int64_t *budget, bool ahead) {
    while (*budget > 0) {
        int64_t network_ns = refresh(e);
        if (e->raised) return STOP_RAISED;
        event *first = e->nheap ? e->heap[0] : NULL;
        bool network = !first || first->at_ns >= network_ns;
        int64_t at_ns = network ? network_ns : first->at_ns;
        if (at_ns >= e->limit_ns) {
            stop why;
            if (at_end(e, at_ns, &why)) return why;
            continue;
        }
        bool guesses = ahead && at_ns != e->strict_ns;
        if (e->log && !guesses && waits_before(e, at_ns, network ? -1 : first->order))
            return starve(e, first_silent(e));
        if (network) {
            int64_t before_ns = e->now_ns;
            e->now_ns = at_ns;
            if (!complete(e)) e->now_ns = before_ns; /* nobody has noticed: a run does not last until then */
            --*budget;
        } else if (first->is_host) {
            host *it = first->target;
            if (it->cursor >= it->nrows) {
                if (!goes_on_without(e, it, guesses)) return starve(e, it);
                continue;
            }
            e->now_ns = at_ns;
            int64_t executed = execute_host(e, it);
            if (executed < 0) return STOP_BAD;
            if (!executed) continue; /* its row is due later */
            *budget -= executed;
        } else {
            stream *it = first->target;
            e->now_ns = at_ns;
            if (e->log) act(e, it->device->host);
            drop(e, &it->due);
            finish_segment(e, it);
            --*budget;
        }
        if (e->arrived.n || e->woken.n) follow_up(e);
        if (e->passing && e->answers_sent != e->answers_before) return_all(e);
        if (e->log) event_executed(e, ahead);
    }
    return STOP_BUDGET;
}
