/*
 * When collectives begin and complete: all members' streams must have come, then the network says how long it takes.
 *
 * While the log is on, a rank can be ahead of the collective's instant: it goes back before it is told. So the
 * collective begins with the member that is the last in virtual time, in whatever order they are simulated.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static host *host_of(const kernel *it) { return it->stream->device->host; }

/* ---- which collective a call belongs to ---- */

collective *new_collective(engine *e, int64_t comm, int32_t needed, int32_t weight) {
    collective *made = (collective *)make(e, A_COLLECTIVE, sizeof *made);
    if (e->nfree) {
        made->number = e->free_numbers[--e->nfree];
    } else {
        e->numbered = grown(e->numbered, e->nnumbered, &e->numbered_room, sizeof *e->numbered);
        made->number = e->nnumbered++;
    }
    e->numbered[made->number] = made;
    made->comm = comm;
    made->needed = needed;
    made->weight = weight;
    made->begun_ns = made->done_ns = -1;
    return made;
}

static uint64_t slot_of(const engine *e, int64_t comm, int32_t sender, int32_t receiver, int64_t seq) {
    uint64_t hash = 14695981039346656037u;
    const int64_t parts[] = {comm, sender, receiver, seq};
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ (uint64_t)parts[i]) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return hash & (uint64_t)(e->table_room - 1);
}

static void enlarge(engine *e) {
    collective **old = e->table;
    int64_t room = e->table_room;
    e->table_room = room ? 2 * room : 1024;
    e->table = take((size_t)e->table_room * sizeof *e->table);
    for (int64_t i = 0; i < room; i++)
        for (collective *one = old[i], *next; one; one = next) {
            next = one->next;
            uint64_t slot = slot_of(e, one->comm, one->sender, one->receiver, one->seq);
            one->next = e->table[slot];
            e->table[slot] = one;
        }
    free(old);
}

static collective *called_collective(engine *e, int32_t comm, const call *by, int32_t number, int64_t seq) {
    int32_t sender = by->pair ? by->sender : -1, receiver = by->pair ? by->receiver : -1;
    if (e->ntable >= e->table_room) enlarge(e);
    uint64_t slot = slot_of(e, comm, sender, receiver, seq);
    for (collective *one = e->table[slot]; one; one = one->next)
        if (one->comm == comm && one->sender == sender && one->receiver == receiver && one->seq == seq) return one;
    collective *made = new_collective(e, comm, by->pair ? by->pair : e->tables.members[comm], 0);
    made->by_program = true;
    made->seq = seq;
    made->sender = sender;
    made->receiver = receiver;
    made->call = number;
    made->next = e->table[slot];
    e->table[slot] = made;
    e->ntable++;
    return made;
}

void leave_table(engine *e, collective *it) {
    collective **at = &e->table[slot_of(e, it->comm, it->sender, it->receiver, it->seq)];
    while (*at != it) at = &(*at)->next;
    *at = it->next;
    e->ntable--;
}

/* How many calls of this kind the rank has made before: sends and receives are counted by pair. */
static int64_t count(host *of, const call *by) {
    if (!by->pair) return of->called[by->comm]++;
    pair_count *one = of->pairs;
    while (one && (one->comm != by->comm || one->sender != by->sender || one->receiver != by->receiver))
        one = one->next;
    if (!one) {
        one = take(sizeof *one);
        *one = (pair_count){.comm = by->comm, .sender = by->sender, .receiver = by->receiver, .next = of->pairs};
        of->pairs = one;
    }
    return one->calls++ / (by->sender == by->receiver ? 2 : 1);
}

static kernel *new_kernel(engine *e, stream *on, int64_t n) {
    kernel *made = (kernel *)make(e, A_KERNEL, sizeof *made);
    made->stream = on;
    made->ncollectives = (int32_t)n;
    made->arrived_ns = -1;
    made->collectives = take((size_t)n * sizeof *made->collectives);
    return made;
}

/* Of a program's row. Programs are never simulated ahead, so that no count is taken back. */
kernel *called_kernel(engine *e, host *of, stream *on, int64_t number) {
    int64_t first = e->tables.kernels[number], n = e->tables.kernels[number + 1] - first;
    kernel *made = new_kernel(e, on, n);
    bool sends = false, receives = false;
    for (int64_t i = 0; i < n; i++) {
        const call *by = &e->tables.calls[first + i];
        int32_t place = of->program->places[by->comm];
        sends |= by->pair && by->sender == place;
        receives |= by->pair && by->receiver == place;
        made->collectives[i] =
            called_collective(e, of->program->comms[by->comm], by, (int32_t)(first + i), count(of, by));
    }
    if (sends && receives)
        for (int64_t i = 0; i < n; i++) made->collectives[i]->exchange = true;
    return made;
}

kernel *fed_kernel(engine *e, stream *on, const row *what) {
    int64_t n = (int64_t)what->values[1];
    kernel *made = new_kernel(e, on, n);
    if (n == 1)
        made->collectives[0] = (collective *)(uintptr_t)what->values[0];
    else
        memcpy(made->collectives, (void *)(uintptr_t)what->values[0], (size_t)n * sizeof *made->collectives);
    return made;
}

/* ---- completions that members must be told again: a heap ---- */

static void add_again(engine *e, collective *of, int64_t at_ns) {
    e->again = grown(e->again, e->nagain, &e->again_room, sizeof *e->again);
    int64_t place = e->nagain++;
    while (place && e->again[(place - 1) / 2].at_ns > at_ns) {
        e->again[place] = e->again[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    e->again[place] = (completion){at_ns, of};
}

static completion pop_again(engine *e) {
    completion first = e->again[0], last = e->again[--e->nagain];
    int64_t place = 0;
    for (int64_t below; (below = 2 * place + 1) < e->nagain; place = below) {
        if (below + 1 < e->nagain && e->again[below + 1].at_ns < e->again[below].at_ns) below++;
        if (e->again[below].at_ns >= last.at_ns) break;
        e->again[place] = e->again[below];
    }
    e->again[place] = last;
    return first;
}

static bool all_know(const collective *it) {
    for (int32_t i = 0; i < it->nmembers; i++)
        if (!it->members[i].told) return false;
    return true;
}

static bool is_due(const completion *it) {
    return it->of->in_network && it->of->done_ns == it->at_ns && !all_know(it->of);
}

/* Instant of the next completion, NEVER if nothing is under way. */
int64_t refresh(engine *e) {
    if (!e->stale || e->raised) return e->next_ns;
    e->stale = false;
    int64_t found = e->to.next();
    if (found < 0) {
        e->raised = true;
        found = NEVER;
    }
    e->network_ns = e->next_ns = found;
    while (e->nagain && !is_due(&e->again[0])) pop_again(e);
    if (e->nagain && e->again[0].at_ns < e->next_ns) e->next_ns = e->again[0].at_ns;
    return e->next_ns;
}

/* An instant before which the collective cannot be complete. If it is complete: the present. */
int64_t collective_not_before(engine *e, collective *it) {
    if (!it->under_way) return e->now_ns;
    int64_t shortest_ns = e->to.shortest(it->number);
    if (shortest_ns < 0) e->raised = true;
    return (it->begun_ns < 0 ? e->now_ns : it->begun_ns) + shortest_ns;
}

/* ---- begin ---- */

static void add_member(collective *to, kernel *who) {
    int64_t room = to->room;
    to->members = grown(to->members, to->nmembers, &room, sizeof *to->members);
    to->room = (int32_t)room;
    to->members[to->nmembers++] = (member){who, false, 0};
}

static void lose_member(collective *from, const kernel *who) {
    int32_t left = 0;
    for (int32_t i = 0; i < from->nmembers; i++)
        if (from->members[i].kernel != who) from->members[left++] = from->members[i];
    from->nmembers = left;
}

void undo_arrived(engine *e, collective *it, kernel *who) {
    (void)e;
    who->arrived_ns = -1;
    who->beside_compute = false;
    who->remaining = 0;
    lose_member(it, who);
    if (!it->nmembers && !it->naborted) it->under_way = false;
}

/* Completions have moved: members that have been told of them go back to before. */
static void revise(engine *e) {
    for (int64_t i = 0; i < e->nrevised; i++) {
        revision *one = &e->revised[i];
        collective *of = one->of;
        if (!of->in_network) continue; /* its members' processes have ended */
        of->done_ns = -1;
        int64_t at_ns = one->before_ns < one->after_ns ? one->before_ns : one->after_ns;
        for (int32_t k = 0; k < of->nmembers; k++)
            if (of->members[k].told) demand(e, host_of(of->members[k].kernel), at_ns);
    }
    e->nrevised = 0;
}

static void undo_kernel(checkpoint *to, kernel *it) {
    undo *entry = write_undo(to, UNDO_KERNEL);
    entry->one = &it->object;
    entry->x = it->active;
    entry->y = it->remaining;
}

static void begin(engine *e, collective *it) {
    int64_t now_ns = e->now_ns;
    it->begun_ns = now_ns;
    it->in_network = true;
    bool beside_compute = false;
    for (int32_t i = 0; i < it->nmembers; i++) {
        kernel *of = it->members[i].kernel;
        device *on = of->stream->device;
        beside_compute |= of->beside_compute;
        if (e->log) {
            checkpoint *to = reach(e, on->host);
            undo_kernel(to, of);
            undo *entry = write_undo(to, UNDO_BEGUN);
            entry->one = &it->object;
            entry->x = now_ns;
        }
        if (!of->active) {
            account(on, now_ns);
            on->transferring++;
        }
        of->active++;
    }
    e->stale = true;
    e->nrevised = 0;
    if (e->to.begin(it->number, now_ns, beside_compute) < 0) e->raised = true;
    e->begun += it->weight; /* of what a program calls, it is known by now */
    if (e->nrevised) {
        revise(e);
        settle(e);
    }
}

/* Called when a member goes back. The first call undoes the begin and sends the other members back. */
void undo_begun(engine *e, collective *it, int64_t begun_ns) {
    if (it->begun_ns != begun_ns) return;
    e->begun -= it->weight;
    it->begun_ns = it->done_ns = -1;
    it->in_network = false;
    for (int32_t i = 0; i < it->nmembers; i++) demand(e, host_of(it->members[i].kernel), begun_ns);
    e->stale = true;
    e->nrevised = 0;
    if (e->to.retract(it->number) < 0) e->raised = true;
    revise(e);
}

/* The last member arrives now. Members that arrived or aborted at a later instant go back and do so again. */
static void send_back_later_members(engine *e, collective *it) {
    int64_t now_ns = e->now_ns, last_ns = -1;
    for (int32_t i = it->naborted; i-- > 0;) {
        if (i >= it->naborted) continue;
        member one = it->aborted[i];
        if (one.aborted_ns == now_ns) found_disorder(e);
        if (one.aborted_ns > now_ns) go_back(e, host_of(one.kernel), one.aborted_ns);
    }
    if (it->nmembers != it->needed) return;
    for (int32_t i = 0; i < it->nmembers; i++)
        if (it->members[i].kernel->arrived_ns > last_ns) last_ns = it->members[i].kernel->arrived_ns;
    if (last_ns <= now_ns) return;
    list back = {0};
    for (int32_t i = 0; i < it->nmembers; i++)
        if (it->members[i].kernel->arrived_ns == last_ns) put(&back, host_of(it->members[i].kernel));
    for (int64_t i = 0; i < back.n; i++) go_back(e, back.all[i], last_ns);
    free(back.all);
}

/* The kernel is resident: it takes part in each of its collectives, which begin with the last member. */
void arrive(engine *e, kernel *it) {
    it->arrived_ns = e->now_ns;
    /* Copies count, too: the factors were measured by this rule, and the copies before a gather are followed by kernels
     * that run beside it. */
    it->beside_compute = it->stream->device->busy_until_ns > e->now_ns;
    it->remaining = it->ncollectives;
    for (int32_t i = 0; i < it->ncollectives; i++) {
        collective *part = it->collectives[i];
        if (!part->under_way) {
            part->under_way = true;
            part->nmembers = part->naborted = 0;
            part->begun_ns = part->done_ns = -1;
        }
        add_member(part, it);
        if (e->log) {
            undo *entry = write_undo(checkpoint_of(e, host_of(it)), UNDO_ARRIVED);
            entry->one = &part->object;
            entry->two = &it->object;
            if (part->nmembers + part->naborted >= part->needed) send_back_later_members(e, part);
        }
        if (part->nmembers == part->needed) begin(e, part);
    }
}

/* ---- complete ---- */

/* Members at this instant or later go back to its start: completions come first. Adds those that are told again. */
static void add_those_again(engine *e, list *found) {
    int64_t now_ns = e->now_ns;
    for (int64_t checked = 0;;) {
        while (e->nagain && e->again[0].at_ns <= now_ns) {
            completion one = pop_again(e);
            if (one.at_ns == now_ns && is_due(&one) && !one.of->found) {
                one.of->found = true;
                put(found, one.of);
            }
        }
        if (checked == found->n) return;
        for (; checked < found->n; checked++) {
            collective *of = found->all[checked];
            for (int32_t i = 0; i < of->nmembers; i++)
                if (!of->members[i].told) go_back(e, host_of(of->members[i].kernel), now_ns + (of->begun_ns == now_ns));
        }
    }
}

/* Into the order of collectives, which is the same in every run. */
static void sort(engine *e, list *found) {
    if (found->n < 2) return;
    int64_t *numbers = take((size_t)found->n * sizeof *numbers);
    for (int64_t i = 0; i < found->n; i++) numbers[i] = ((collective *)found->all[i])->number;
    if (e->to.sort(found->n, numbers) < 0) e->raised = true;
    for (int64_t i = 0; i < found->n; i++) found->all[i] = e->numbered[numbers[i]];
    free(numbers);
}

static void tell_done(engine *e, const collective *it) {
    const kernel *last = NULL;
    for (int32_t i = 0; i < it->nmembers; i++) {
        const kernel *one = it->members[i].kernel;
        if (!last || one->arrived_ns > last->arrived_ns ||
            (one->arrived_ns == last->arrived_ns && host_of(one)->rank > host_of(last)->rank))
            last = one;
    }
    for (int32_t i = 0; i < it->nmembers; i++) {
        const kernel *one = it->members[i].kernel;
        if (host_of(one)->heard && !it->members[i].told)
            TELL(e, host_of(one), TOLD_COLLECTIVE_DONE, one->stream->id, it->number, it->begun_ns, host_of(last)->rank,
                 last->stream->id);
    }
}

/* Tells the members, or those of them that do not know. */
static void deliver(engine *e, collective *it) {
    tell_done(e, it);
    it->under_way = false;
    if (!e->log) it->in_network = false;
    host *logged = NULL;
    for (int32_t i = 0; i < it->nmembers; i++) {
        kernel *of = it->members[i].kernel;
        device *on = of->stream->device;
        if (e->log) {
            if (it->members[i].told) continue;
            checkpoint *to = act(e, on->host);
            undo_kernel(to, of);
            undo *entry = write_undo(to, UNDO_DELIVERED);
            entry->one = &it->object;
            entry->two = &of->object;
            it->members[i].told = true;
        }
        of->active--;
        of->remaining--;
        if (!of->active) {
            account(on, e->now_ns);
            on->transferring--;
        }
        if (!of->remaining) finish_kernel(e, of);
        if (on->host->rank == LOGGED_RANK) logged = on->host;
    }
    if (logged) TELL(e, logged, TOLD_COMPLETED, it->number);
    if (!e->log) it->nmembers = it->naborted = 0;
}

void undo_delivered(engine *e, collective *it, kernel *who) {
    for (int32_t i = 0; i < it->nmembers; i++)
        if (it->members[i].kernel == who) it->members[i].told = false;
    it->under_way = true;
    if (it->done_ns >= 0) {
        add_again(e, it, it->done_ns);
        e->stale = true;
    }
}

/* It is the instant of the next completion: collectives that are complete release their kernels. */
bool complete(engine *e) {
    list found = {0};
    if (e->network_ns == e->now_ns) {
        e->ndone = 0;
        if (e->to.complete(e->now_ns) < 0) e->raised = true;
        for (int64_t i = 0; i < e->ndone; i++) {
            collective *of = e->numbered[e->done[i]];
            if (!of->in_network) continue; /* its members' processes have ended */
            of->done_ns = e->now_ns;
            of->found = true;
            put(&found, of);
        }
    }
    e->stale = true;
    for (int64_t i = 0; e->log && i < found.n; i++) {
        e->completed = grown(e->completed, e->ncompleted, &e->completed_room, sizeof *e->completed);
        e->completed[e->ncompleted++] = (completion){e->now_ns, found.all[i]};
    }
    if (e->log || e->nagain) {
        add_those_again(e, &found);
        sort(e, &found);
    }
    for (int64_t i = 0; i < found.n; i++) ((collective *)found.all[i])->found = false;
    for (int64_t i = 0; i < found.n && !e->raised; i++) deliver(e, found.all[i]);
    free(found.all);
    return found.n > 0;
}

/* The simulation will take back nothing before this instant. */
void commit_collectives(engine *e, int64_t at_ns) {
    int64_t left = 0;
    for (int64_t i = 0; i < e->ncompleted; i++) {
        completion one = e->completed[i];
        if (!one.of->in_network || one.of->done_ns != one.at_ns) continue;
        if (one.at_ns < at_ns && all_know(one.of)) {
            one.of->in_network = false;
            one.of->nmembers = one.of->naborted = 0;
        } else {
            e->completed[left++] = one;
        }
    }
    e->ncompleted = left;
    if (!e->raised && e->to.commit(at_ns) < 0) e->raised = true;
}

/* All processes have ended, and nothing is simulated ahead. What is in the network goes on to its end there. */
void forget_collectives(engine *e) {
    for (int64_t i = 0; i < e->nnumbered; i++) {
        collective *it = e->numbered[i];
        if (!it) continue;
        it->under_way = it->in_network = false;
        it->nmembers = it->naborted = 0;
    }
    e->ncompleted = e->nagain = 0;
    e->stale = true;
}

/* Entries that are kept in case collectives move. */
int64_t held_collectives(const engine *e) {
    int64_t held = e->ncompleted + e->nagain;
    for (int64_t i = 0; i < e->nnumbered; i++)
        if (e->numbered[i]) held += e->numbered[i]->in_network + e->numbered[i]->under_way;
    return held;
}

/* ---- abort ---- */

static bool concerns(const kernel *it, int64_t comm) {
    for (int32_t i = 0; i < it->ncollectives; i++)
        if (it->collectives[i]->comm == comm) return true;
    return false;
}

static void withdraw(engine *e, collective *from, kernel *who) {
    lose_member(from, who);
    int64_t room = from->aborted_room;
    from->aborted = grown(from->aborted, from->naborted, &room, sizeof *from->aborted);
    from->aborted_room = (int32_t)room;
    from->aborted[from->naborted++] = (member){who, false, e->now_ns};
    if (e->log) {
        undo *entry = write_undo(checkpoint_of(e, host_of(who)), UNDO_WITHDRAWN);
        entry->one = &from->object;
        entry->two = &who->object;
    }
}

void undo_withdrawn(collective *it, kernel *who) {
    int32_t left = 0;
    for (int32_t i = 0; i < it->naborted; i++)
        if (it->aborted[i].kernel != who) it->aborted[left++] = it->aborted[i];
    it->naborted = left;
    add_member(it, who);
}

/* ncclCommAbort: the communicator's kernels on the host's streams that wait for peers end now, later ones at once.
 * Their peers' kernels go on waiting, as on real GPUs. */
void abort_kernels(engine *e, host *of, int64_t comm) {
    /* Later ones of all streams first: the end of a kernel lets other streams go on, and none may start there. */
    for (int64_t s = 0; s < of->nstreams; s++) {
        stream *it = of->streams[s];
        for (int64_t place = it->head + 1; place < it->count && !it->destroyed; place++) {
            item *one = &ITEM(it, place);
            if (one->kind != ITEM_KERNEL || !concerns((kernel *)one->what, comm)) continue;
            if (e->acting) {
                undo *entry = write_undo(e->acting, UNDO_ITEM);
                entry->one = &it->object;
                entry->x = place;
                entry->old = *one;
            }
            *one = (item){.kind = ITEM_SEGMENT, .launches = 1, .aborted = true};
        }
    }
    for (int64_t s = 0; s < of->nstreams; s++) {
        stream *it = of->streams[s];
        if (it->destroyed || it->state != COLLECTIVE) continue;
        kernel *head = (kernel *)ITEM(it, it->head).what;
        if (!concerns(head, comm)) continue;
        for (int32_t i = 0; i < head->ncollectives; i++)
            if (head->collectives[i]->begun_ns == e->now_ns) found_disorder(e);
        if (head->active) continue;
        /* On a dead GPU the kernel has not arrived: it is no member, and must not become one when this is taken back.
         */
        for (int32_t i = 0; i < head->ncollectives && head->arrived_ns >= 0; i++) {
            collective *part = head->collectives[i];
            if (part->under_way && part->begun_ns < 0) withdraw(e, part, head);
        }
        finish_kernel(e, head);
    }
}
