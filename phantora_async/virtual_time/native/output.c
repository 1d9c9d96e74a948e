/*
 * What leaves the simulation: answers, and what listeners are told. What has left cannot be taken back.
 *
 * Each leaves when it is final. A question that is executed once more after it was answered has the same answer, which
 * is dropped here. While the simulation is ahead of global virtual time, everything is held in the rank's checkpoint.
 * An answer that is certain may leave before its time; the one that is found in its time is compared with it.
 */
#include <stdio.h>
#include <string.h>

#include "engine.h"

/* ---- listeners ---- */

static void deliver(engine *e, const told *what) {
    e->told = grown(e->told, e->ntold, &e->told_room, sizeof *e->told);
    e->told[e->ntold++] = *what;
}

void tell(engine *e, host *it, told_kind kind, int64_t at_ns, int64_t n, const int64_t *values) {
    told made = {.kind = kind, .host = it - e->hosts, .at_ns = at_ns};
    if (n) memcpy(made.values, values, (size_t)n * sizeof *values);
    if (!e->log) {
        deliver(e, &made);
        return;
    }
    checkpoint *to = checkpoint_of(e, it);
    to->told = grown(to->told, to->ntold, &to->told_room, sizeof *to->told);
    to->told[to->ntold++] = made;
}

/* ---- answers ---- */

static void keep(host *it, const answer *what) {
    if (what->kind == QUERY) {
        it->queries = grown(it->queries, it->nqueries, &it->queries_room, sizeof *it->queries);
        it->queries[it->nqueries++] = (uint8_t)what->value;
    } else if (what->kind == ELAPSED) {
        it->elapsed = grown(it->elapsed, it->nelapsed, &it->elapsed_room, 2 * sizeof *it->elapsed);
        it->elapsed[2 * it->nelapsed] = what->value;
        it->elapsed[2 * it->nelapsed++ + 1] = what->more;
    } else {
        it->clocks = grown(it->clocks, it->nclocks, &it->clocks_room, sizeof *it->clocks);
        it->clocks[it->nclocks++] = what->value;
    }
}

static void send(engine *e, host *it, const answer *what) {
    it->answered = what->fact + 1;
    e->answers_sent++;
    e->latest = it - e->hosts;
    if (e->keeps_answers) {
        keep(it, what);
        return;
    }
    e->leaving = grown(e->leaving, e->nleaving, &e->leaving_room, sizeof *e->leaving);
    e->leaving[e->nleaving++] = (leaving){it->rank, what->kind, what->qid, what->value, what->more};
}

static void remember_early(host *it, const answer *what) {
    it->early = grown(it->early, it->nearly, &it->early_room, sizeof *it->early);
    it->early[it->nearly++] = *what;
}

static void answer_finally(engine *e, host *it, const answer *what) {
    if (what->fact >= it->answered) {
        send(e, it, what);
        return;
    }
    for (int64_t i = 0; i < it->nearly; i++) {
        answer was = it->early[i];
        if (was.fact != what->fact) continue;
        it->early[i] = it->early[--it->nearly];
        if (was.value == what->value && was.more == what->more) return;
        e->bad_rank = it->rank;
        snprintf(e->bad, sizeof e->bad, "told %lld early, and %lld is right", (long long)was.value,
                 (long long)what->value);
        e->raised = true;
        return;
    }
}

/* Answers the question that the host executes now. */
void give_answer(engine *e, host *it, int64_t kind, int64_t qid, int64_t value, int64_t more) {
    answer made = {kind, facts_done(it), qid, value, more};
    if (!e->log) {
        answer_finally(e, it, &made);
        return;
    }
    checkpoint *to = checkpoint_of(e, it);
    to->answers = grown(to->answers, to->nanswers, &to->answers_room, sizeof *to->answers);
    to->answers[to->nanswers++] = made;
}

/* Answers the host's next row, a question, before its time: the answer is certain. */
static void give_early(engine *e, host *it, int64_t kind, int64_t qid, int64_t value) {
    answer made = {kind, facts_done(it), qid, value, 1}; /* one turn */
    remember_early(it, &made);
    send(e, it, &made);
    e->answered_early++;
}

/* The checkpoint's answers are final. May be called again for the same one: each answer leaves once. */
void release_answers(engine *e, host *it, const checkpoint *what) {
    for (int64_t i = 0; i < what->nanswers; i++) answer_finally(e, it, &what->answers[i]);
}

/* The checkpoint will not be restored any more. Listeners are told no sooner: an instant whose answers have left may
 * still be taken back and executed once more, and they would hear of it twice. */
void release(engine *e, host *it, const checkpoint *what) {
    for (int64_t i = 0; i < what->ntold; i++) deliver(e, &what->told[i]);
    release_answers(e, it, what);
}

/* ---- questions in a row ---- */

enum {
#define POLL(from, each_ns)
#define CLOSE(ns) CLOSE_NS = (ns),
#define TURN(ns) TURN_NS = (ns),
#include "polls.def"
#undef TURN
#undef CLOSE
#undef POLL
};

/* How many questions in a row the host has asked, with one that it asks at this instant. */
static int64_t polls_by(const host *it, int64_t at_ns) { return at_ns - it->polled_ns > CLOSE_NS ? 1 : it->polls + 1; }

/* How long the question takes that is the row's number `polls`, counted from 1. */
int64_t poll_ns(int64_t polls) {
    int64_t for_ns = 0;
#define CLOSE(ns)
#define TURN(ns)
#define POLL(from, each_ns)                                                                                            \
    if (polls >= from) for_ns = each_ns;
#include "polls.def"
#undef POLL
#undef TURN
#undef CLOSE
    return for_ns;
}

int64_t turn_ns(const row *what) { return (int64_t)what->host_ns > TURN_NS ? (int64_t)what->host_ns : TURN_NS; }

/* Counts a question of the host. True if it takes time: the host asks it again when that has passed. */
bool delay_poll(engine *e, host *it) {
    if (it->poll_delayed) {
        it->poll_delayed = false;
        it->polled_ns = e->now_ns;
        return false;
    }
    it->polls = polls_by(it, e->now_ns);
    it->polled_ns = e->now_ns;
    int64_t for_ns = poll_ns(it->polls);
    if (!for_ns) return false;
    it->poll_delayed = it->retry = true;
    it->clock_ns = e->now_ns + for_ns;
    push(e, it->clock_ns, &it->due);
    return true;
}

/*
 * ---- answers that are certain before virtual time comes to their question: they leave at once ----
 *
 * A rank asks whether an event is complete, and cannot go on without the answer. Virtual time comes to the question
 * only when every other rank has said what it did until then, so ranks would run one after the other. But as soon as
 * the question is the host's next row, its instant is known, and mostly the answer too, whatever other ranks still say:
 * what is complete stays complete, and work takes no less time than it takes on a GPU that does nothing else.
 *
 * This is looked at when the row before the question has been executed, a moment in the total order. So which answers
 * leave early follows from the rows alone. What left is compared with the answer that is found in its time.
 */

/* How far ahead of virtual time an answer leaves. A rank that sleeps where no record tells of it may be woken by a rank
 * that was answered early, and then goes on by as much too early. */
enum { FURTHEST_NS = 1000000, DEEPEST = 8 /* streams that wait for each other, of which this looks at so many */ };

/* If from now on nothing else ran on its GPU. */
static int64_t end_of_segment(engine *e, const stream *it, const item *segment) {
    wide left = left_of(e, it);
    wide fastest = (wide)segment->contended_ns * WORK_UNIT * (it->device->pace ? FULL_PACE : 1);
    int64_t end_ns = e->now_ns + (left > 0 ? (int64_t)((left + fastest - 1) / fastest) : 0);
    return end_ns > segment->floor_ns ? end_ns : segment->floor_ns;
}

/* An instant before which the pending recording cannot be complete. */
static int64_t not_before(engine *e, const recording *it, int depth) {
    const stream *on = it->stream;
    const item *head = &ITEM(on, on->head);
    int64_t latest_ns = 0;
    switch (head->kind) {
    case ITEM_SEGMENT:
        return end_of_segment(e, on, head);
    case ITEM_KERNEL:
        for (int32_t i = 0; i < ((kernel *)head->what)->ncollectives; i++) {
            int64_t at_ns = collective_not_before(e, ((kernel *)head->what)->collectives[i]);
            if (at_ns > latest_ns) latest_ns = at_ns;
        }
        return latest_ns;
    case ITEM_WAIT:
        if (on->state == BLOCKED && depth) return not_before(e, (recording *)head->what, depth - 1);
        return e->now_ns;
    default:
        return e->now_ns;
    }
}

/* The host's next row is known, and due later. Does its answer leave now? */
bool foresee(engine *e, host *it, int64_t due_ns) {
    const row *next = &it->rows[it->cursor];
    if (next->kind != QUERY || next->values[0] != SCOPE_EVENT || it->retry || e->keeps_answers) return false;
    if (facts_done(it) < it->answered || due_ns > e->now_ns + FURTHEST_NS) return false;
    const recording *of = recording_of(it, next->values[1]);
    if (!of) return false; /* a mistake of the rank's, which is told when its time comes */
    int64_t since_ns = (int64_t)next->values[2], by_ns = due_ns - since_ns;
    bool done = of->done_ns >= 0 && of->done_ns <= by_ns;
    if (of->done_ns < 0) {
        bool polls = next->values[3] || (!since_ns && poll_ns(polls_by(it, due_ns)) > 0);
        if (polls || not_before(e, of, DEEPEST) <= by_ns) return false;
    }
    give_early(e, it, QUERY, (int64_t)next->values[4], done);
    return true;
}
