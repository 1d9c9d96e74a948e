/* When collectives begin and complete: see virtual_time/collectives.py. */
#include "engine.h"

#include <stdlib.h>

static uint64_t slot_of(const engine *e, int32_t comm, int32_t sender, int32_t receiver, int64_t seq) {
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
    e->table = take(e, (size_t)e->table_room * sizeof *e->table);
    for (int64_t i = 0; i < room; i++)
        for (collective *one = old[i], *next; one; one = next) {
            next = one->next;
            uint64_t slot = slot_of(e, one->comm, one->sender, one->receiver, one->seq);
            one->next = e->table[slot];
            e->table[slot] = one;
        }
}

static collective *collective_of(engine *e, int32_t comm, const call *by, int32_t number, int64_t seq) {
    int32_t sender = by->pair ? by->sender : -1, receiver = by->pair ? by->receiver : -1;
    if (e->collectives.n >= e->table_room) enlarge(e);
    uint64_t slot = slot_of(e, comm, sender, receiver, seq);
    for (collective *one = e->table[slot]; one; one = one->next)
        if (one->comm == comm && one->sender == sender && one->receiver == receiver && one->seq == seq) return one;
    collective *made = take(e, sizeof *made);
    int32_t needed = by->pair ? 2 : e->in.members[comm];
    *made = (collective){.seq = seq,
                         .comm = comm,
                         .sender = sender,
                         .receiver = receiver,
                         .call = number,
                         .number = (int32_t)e->collectives.n,
                         .needed = needed,
                         .next = e->table[slot]};
    made->kernels = take(e, (size_t)needed * sizeof *made->kernels);
    e->table[slot] = made;
    put(&e->collectives, made);
    return made;
}

/* How many calls of this kind the rank has made before: sends and receives are counted by pair. */
static int64_t count(engine *e, host *of, const call *by) {
    if (!by->pair) return of->called[by->comm]++;
    pair_count *one = of->pairs;
    while (one && (one->comm != by->comm || one->sender != by->sender || one->receiver != by->receiver))
        one = one->next;
    if (!one) {
        one = take(e, sizeof *one);
        *one = (pair_count){.comm = by->comm, .sender = by->sender, .receiver = by->receiver, .next = of->pairs};
        of->pairs = one;
    }
    return one->calls++ / (by->sender == by->receiver ? 2 : 1);
}

kernel *make_kernel(engine *e, host *of, stream *on, int64_t number) {
    int64_t first = e->in.kernels[number], n = e->in.kernels[number + 1] - first;
    kernel *made = take(e, sizeof *made);
    made->stream = on;
    made->ncollectives = (int32_t)n;
    made->collectives = take(e, (size_t)n * sizeof *made->collectives);
    bool sends = false, receives = false;
    for (int64_t i = 0; i < n; i++) {
        const call *by = &e->in.calls[first + i];
        int32_t place = of->program->places[by->comm];
        sends |= by->pair && by->sender == place;
        receives |= by->pair && by->receiver == place;
        made->collectives[i] =
            collective_of(e, of->program->comms[by->comm], by, (int32_t)(first + i), count(e, of, by));
    }
    if (sends && receives)
        for (int64_t i = 0; i < n; i++) made->collectives[i]->exchange = true;
    return made;
}

static bool begin(engine *e, collective *it) {
    bool beside_compute = false;
    e->begun++;
    for (int32_t i = 0; i < it->needed; i++) {
        kernel *of = it->kernels[i];
        device *on = of->stream->device;
        beside_compute |= of->beside_compute;
        if (!of->active++) {
            account(on, e->now_ns);
            on->transferring++;
        }
    }
    e->network_ns = e->begin(it->number, it->comm, it->call, it->seq, it->exchange, e->now_ns, beside_compute);
    return e->network_ns >= 0;
}

bool arrive(engine *e, kernel *it) {
    it->beside_compute = it->stream->device->busy_until_ns > e->now_ns;
    it->remaining = it->ncollectives;
    for (int32_t i = 0; i < it->ncollectives; i++) {
        collective *part = it->collectives[i];
        if (part->arrived == part->needed) return false;
        part->kernels[part->arrived++] = it;
        if (part->arrived == part->needed && !begin(e, part)) return false;
    }
    return true;
}

static void deliver(engine *e, collective *it) {
    for (int32_t i = 0; i < it->needed; i++) {
        kernel *of = it->kernels[i];
        device *on = of->stream->device;
        of->remaining--;
        if (!--of->active) {
            account(on, e->now_ns);
            on->transferring--;
        }
        if (!of->remaining) finish_kernel(e, of);
    }
}

bool complete(engine *e) {
    e->ndone = 0;
    e->network_ns = e->complete(e->now_ns);
    if (e->network_ns < 0) return false;
    for (int64_t i = 0; i < e->ndone; i++) deliver(e, e->collectives.all[e->done[i]]);
    return true;
}
