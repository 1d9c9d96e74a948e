/* What happens to trains: ports that send, links that serve, marks that come back. See trains.h. */
#include "trains.h"

static bool sooner(const happening *a, const happening *b) {
    if (a->at != b->at) return a->at < b->at;
    if (a->kind != b->kind) return a->kind < b->kind;
    if (a->order != b->order) return a->order < b->order;
    return a->serial < b->serial;
}

void push_happening(happenings *h, happening e) {
    h->items = grow(h->items, &h->room, h->n + 1, sizeof *h->items);
    int32_t i = h->n++;
    for (; i && sooner(&e, &h->items[(i - 1) / 2]); i = (i - 1) / 2) h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = e;
}

static happening pop_happening(happenings *h) {
    happening top = h->items[0], e = h->items[--h->n];
    int32_t i = 0;
    for (int32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && sooner(&h->items[child + 1], &h->items[child])) child++;
        if (!sooner(&h->items[child], &e)) break;
        h->items[i] = h->items[child];
    }
    if (h->n) h->items[i] = e;
    return top;
}

static void expect(trains *s, int32_t flow, enum train_kind kind, happening e) {
    e.kind = kind;
    e.flow = flow;
    e.order = s->flows[flow].order;
    e.generation = s->flows[flow].generation;
    e.serial = s->now.sendings[flow].serial++;
    push_happening(&s->now.events, e);
}

/* Ticks that a rate needs for some bytes; at least one. */
static int64_t lasts(int64_t nbytes, double rate) {
    double ticks = (double)nbytes * 0x1p60 / rate + 0.5;
    return ticks < 1 ? 1 : ticks > 0x1p61 ? (int64_t)1 << 61 : (int64_t)ticks;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int32_t path_of(const train_flow *f, int64_t at) {
    int32_t p = f->npaths - 1;
    while (p > 0 && f->from[p] > at) p--;
    return p;
}

static bool path_up(const trains *s, const train_flow *f, int32_t p) {
    if (!s->now.down) return true;
    for (int32_t i = f->first[p]; i < f->first[p + 1]; i++)
        if (!s->now.queues[f->links[i]].rate) return false;
    return true;
}

/* Ticks of work that trains which have begun to reach the link by now bring after `at`. */
static int64_t still_to_come(trains *s, queue_ *q, int64_t now, int64_t at) {
    double nbytes = 0;
    for (int32_t *i = &q->arriving; *i >= 0;) {
        arriving *x = &s->now.arrivals[*i];
        if (x->tail <= now) {
            int32_t gone = *i;
            *i = x->next;
            x->next = s->now.free_arrival;
            s->now.free_arrival = gone;
            continue;
        }
        if (x->tail > at) nbytes += (double)x->nbytes * (double)(x->tail - at) / (double)(x->tail - x->head);
        i = &x->next;
    }
    return (int64_t)(nbytes * 0x1p60 / (double)q->rate);
}

static void remember(trains *s, queue_ *q, int64_t head, int64_t tail, int64_t nbytes) {
    train_state *t = &s->now;
    int32_t i = t->free_arrival;
    if (i >= 0) {
        t->free_arrival = t->arrivals[i].next;
    } else {
        i = t->narrivals++;
        t->arrivals = grow(t->arrivals, &t->arrivals_room, t->narrivals, sizeof *t->arrivals);
    }
    t->arrivals[i] = (arriving){head, tail, nbytes, q->arriving};
    q->arriving = i;
}

typedef struct {
    int64_t begins, ends, queued; /* queued: ticks of work that the train finds */
} service;

/* A train, from `now` to `tail`, reaches a link. */
static service serve(trains *s, int32_t link, int64_t now, int64_t tail, int64_t nbytes) {
    queue_ *q = &s->now.queues[link];
    int64_t takes = lasts(nbytes, (double)q->rate), found = q->free - still_to_come(s, q, now, now);
    int64_t last = q->free - still_to_come(s, q, now, tail);
    service x = {most(found, now), 0, most(found - now, 0)};
    x.ends = most(last, x.begins) + takes;
    q->free = most(q->free, now) + takes;
    if (tail > now && nbytes > s->rules.packet) remember(s, q, now, tail, nbytes - s->rules.packet);
    return x;
}

static int64_t packets_of(const trains *s, int64_t nbytes) { return (nbytes + s->rules.packet - 1) / s->rules.packet; }

static bool meets_mark(const trains *s, sending *x, int64_t queued, int64_t nbytes) {
    const nt_rules *r = &s->rules;
    if (!r->marking || queued <= r->mark_from) return false;
    double share = queued >= r->mark_to
                       ? 1.0
                       : r->mark_most * (double)(queued - r->mark_from) / (double)(r->mark_to - r->mark_from);
    x->marks += share * (double)packets_of(s, nbytes);
    if (x->marks < 1) return false;
    x->marks -= (double)(int64_t)x->marks;
    return true;
}

static void wake_port(trains *s, int32_t link, int64_t at, int64_t now) {
    queue_ *q = &s->now.queues[link];
    if (q->woken >= 0 && q->woken <= at && q->woken > now) return;
    q->woken = at;
    push_happening(&s->now.events, (happening){.at = at, .kind = PORT, .order = (uint64_t)link, .flow = link});
}

static void stop_sending(trains *s, queue_ *q, int32_t flow) {
    int32_t *i = &q->sends;
    while (*i != flow) i = &s->now.sendings[*i].next_send;
    *i = s->now.sendings[flow].next_send;
}

static int64_t train_of(const trains *s, const train_flow *f, const sending *x) {
    int64_t part = f->nbytes / s->rules.parts, span = (int64_t)(x->rate * 0x1p-60 * (double)s->rules.span);
    if (f->joint) span *= s->rules.joint_spans;
    if (span < part) part = span;
    return part > s->rules.packet ? part / s->rules.packet * s->rules.packet : s->rules.packet;
}

/* The train's first byte reaches the next link, or its end, at `e.at`. What arrives is looked at one tick before: a
 * flow then ends after the event that finds it, so all events before an instant tell of all that ends up to it.
 */
static void go_on(trains *s, int32_t flow, happening e) {
    const train_flow *f = &s->flows[flow];
    e.at -= e.hop == f->first[e.path + 1] - f->first[e.path];
    expect(s, flow, REACH, e);
}

/* A train leaves its port: at `now` it begins, at `tail` its last byte is through. */
static void leave(trains *s, int32_t flow, int32_t p, int64_t nbytes, int64_t now, int64_t tail) {
    const train_flow *f = &s->flows[flow];
    sending *x = &s->now.sendings[flow];
    int32_t link = f->links[f->first[p] + f->port];
    queue_ *q = &s->now.queues[link];
    int64_t begins = now, first = lasts(least(nbytes, s->rules.packet), (double)q->rate);
    for (int32_t i = 0; i < f->port; i++) { /* what lies before the port hands bytes on as the port takes them */
        service before = serve(s, f->links[f->first[p] + i], now, tail, nbytes);
        begins = most(begins, before.begins);
        tail = most(tail, before.ends);
    }
    int64_t way = 0;
    for (int32_t i = 0; i <= f->port; i++) way += s->latencies[f->links[f->first[p] + i]];
    x->sent += nbytes;
    if (x->had > q->turn) q->turn = x->had;
    x->had = (x->had > q->turn ? x->had : q->turn) + (double)nbytes;
    x->next = now + lasts(nbytes, x->rate);
    q->free = most(q->free, now) + lasts(nbytes, (double)q->rate);
    if (x->sent == f->nbytes) stop_sending(s, q, flow);
    go_on(s, flow,
          (happening){.at = begins + first + way, .hop = f->port + 1, .path = p, .nbytes = nbytes, .tail = tail + way});
    if (q->sends >= 0) wake_port(s, link, q->free, now);
}

/* The port is free: of the flows that may send, the one that has had the least sends a train. */
static void port_sends(trains *s, int32_t link, int64_t now) {
    queue_ *q = &s->now.queues[link];
    if (!q->rate || q->sends < 0) return;
    if (q->free > now) {
        wake_port(s, link, q->free, now);
        return;
    }
    int64_t next = NS_NEVER, nbytes = INT64_MAX;
    int32_t best = -1, count = 0;
    for (int32_t i = q->sends; i >= 0; i = s->now.sendings[i].next_send) {
        const train_flow *f = &s->flows[i];
        const sending *x = &s->now.sendings[i];
        if (!path_up(s, f, path_of(f, now))) continue;
        count++;
        nbytes = least(nbytes, train_of(s, f, x));
        if (x->next > now) {
            next = least(next, x->next);
            continue;
        }
        const sending *y = best < 0 ? NULL : &s->now.sendings[best];
        if (!y || x->had < y->had || (x->had == y->had && f->order < s->flows[best].order)) best = i;
    }
    if (best < 0) {
        if (next != NS_NEVER) wake_port(s, link, next, now);
        return;
    }
    const train_flow *f = &s->flows[best];
    sending *x = &s->now.sendings[best];
    if (count == 1) nbytes = train_of(s, f, x);
    nbytes = least(nbytes, f->nbytes - x->sent);
    leave(s, best, path_of(f, now), nbytes, now, now + lasts(nbytes, (double)q->rate));
}

/* A flow begins at a port that is in the middle of a train: packets go by turns, so it need not wait for the rest. */
static void join_port(trains *s, int32_t flow, int32_t link, int64_t now) {
    queue_ *q = &s->now.queues[link];
    const train_flow *f = &s->flows[flow];
    int32_t others = 0;
    for (int32_t i = q->sends; i >= 0; i = s->now.sendings[i].next_send) others += i != flow;
    if (others < 1) others = 1;
    int64_t packet = s->rules.packet;
    int64_t rest = (int64_t)((double)(q->free - now) * (double)q->rate * 0x1p-60) / others;
    int64_t nbytes = rest > packet ? rest / packet * packet : packet;
    if (nbytes > f->nbytes) nbytes = f->nbytes;
    int64_t takes = lasts(nbytes, (double)q->rate);
    leave(s, flow, path_of(f, now), nbytes, now, now + (nbytes <= packet ? takes : takes * (others + 1)));
}

/* A group's train takes all of its links at once; the next one follows when the slowest has served it. */
static void joint_sends(trains *s, int32_t flow, int64_t now) {
    const train_flow *f = &s->flows[flow];
    sending *x = &s->now.sendings[flow];
    int32_t p = path_of(f, now);
    x->waits = !path_up(s, f, p);
    if (x->waits || x->sent == f->nbytes) return;
    int64_t nbytes = least(train_of(s, f, x), f->nbytes - x->sent), ends = now + lasts(nbytes, x->rate), queued = 0;
    for (int32_t i = f->first[p]; i < f->first[p + 1]; i++) {
        service one = serve(s, f->links[i], now, now, nbytes * f->weights[i]);
        ends = most(ends, one.ends);
        queued = most(queued, one.queued);
    }
    x->sent += nbytes;
    x->arrived += nbytes;
    x->tail = most(x->tail, ends);
    if (meets_mark(s, x, queued, nbytes))
        expect(s, flow, MARKED, (happening){.at = ends + f->answer, .tail = ends - now});
    if (x->sent < f->nbytes) expect(s, flow, REACH, (happening){.at = ends});
}

static void complete(trains *s, int32_t flow) {
    sending *x = &s->now.sendings[flow];
    if (x->arrived < s->flows[flow].nbytes || x->done != NS_NEVER) return;
    x->done = x->tail;
    s->fresh = grow(s->fresh, &s->fresh_room, s->nfresh + 1, sizeof *s->fresh);
    s->fresh[s->nfresh++] = flow;
}

static void begin_sending(trains *s, int32_t flow, int64_t now) {
    const train_flow *f = &s->flows[flow];
    int32_t link = f->links[f->first[path_of(f, now)] + f->port], *i = &s->now.queues[link].sends;
    while (*i >= 0) i = &s->now.sendings[*i].next_send;
    *i = flow;
    s->now.sendings[flow].next_send = -1;
}

/* The rate that its port, a cap and the slowest link of a group allow. */
static double line_rate(const trains *s, const train_flow *f, int32_t p) {
    double rate = f->cap >= 0 ? (double)f->cap : 0x1p62;
    for (int32_t i = f->first[p]; i < f->first[p + 1]; i++) {
        double here = (double)s->built[f->links[i]] / f->weights[i];
        if ((f->joint || i - f->first[p] == f->port) && here < rate) rate = here;
    }
    return rate;
}

static void start(trains *s, int32_t flow, int64_t now) {
    const train_flow *f = &s->flows[flow];
    sending *x = &s->now.sendings[flow];
    int32_t p = path_of(f, now);
    x->started = true;
    x->rate = x->target = line_rate(s, f, p);
    x->alpha = 1;
    if (f->joint) {
        joint_sends(s, flow, now);
        complete(s, flow);
        return;
    }
    int32_t link = f->links[f->first[p] + f->port];
    queue_ *q = &s->now.queues[link];
    x->had = q->turn;
    begin_sending(s, flow, now);
    if (q->free > now && path_up(s, f, p))
        join_port(s, flow, link, now);
    else
        port_sends(s, link, now);
}

/* The train is through: packets are answered, and the answers take their part of the way back. */
static void arrive(trains *s, const happening *e) {
    const train_flow *f = &s->flows[e->flow];
    sending *x = &s->now.sendings[e->flow];
    int64_t tail = most(e->tail, e->at + 1);
    x->arrived += e->nbytes;
    x->tail = most(x->tail, tail);
    complete(s, e->flow);
    for (int32_t i = f->first[e->path]; i < f->first[e->path + 1] && s->rules.ack; i++) {
        int32_t back = s->reverse[f->links[i]];
        queue_ *q = back < 0 ? NULL : &s->now.queues[back];
        if (q && q->rate && q->free > e->at) q->free += lasts(packets_of(s, e->nbytes) * s->rules.ack, (double)q->rate);
    }
    if (e->marked) expect(s, e->flow, MARKED, (happening){.at = e->at + f->answer, .tail = tail - e->at});
}

static void reach(trains *s, const happening *e) {
    const train_flow *f = &s->flows[e->flow];
    if (f->joint) {
        joint_sends(s, e->flow, e->at);
        complete(s, e->flow);
        return;
    }
    if (e->hop == f->first[e->path + 1] - f->first[e->path]) {
        arrive(s, e);
        return;
    }
    sending *x = &s->now.sendings[e->flow];
    int32_t link = f->links[f->first[e->path] + e->hop];
    int64_t rate = s->now.queues[link].rate;
    if (!rate) { /* it is lost, and sent again */
        if (x->sent == f->nbytes) begin_sending(s, e->flow, e->at);
        x->sent -= e->nbytes;
        port_sends(s, f->links[f->first[path_of(f, e->at)] + f->port], e->at);
        return;
    }
    service one = serve(s, link, e->at, e->tail, e->nbytes);
    int64_t first = lasts(least(e->nbytes, s->rules.packet), (double)rate);
    happening next = *e;
    next.marked |= meets_mark(s, x, one.queued, e->nbytes);
    next.at = one.begins + first + s->latencies[link];
    next.tail = most(one.ends, e->tail + first) + s->latencies[link];
    next.hop++;
    go_on(s, e->flow, next);
}

static double power(double base, int64_t n) {
    double result = 1;
    for (; n > 0; n >>= 1, base *= base)
        if (n & 1) result *= base;
    return result;
}

/* Alpha, updated at each of its ticks since: marks came until `seen_until`. */
static void update_alpha(trains *s, sending *x, int64_t now) {
    int64_t every = s->rules.alpha_every, ticks = (now - x->alpha_at) / every;
    if (ticks <= 0) return;
    int64_t seen = x->seen_until > x->alpha_at ? least((x->seen_until - x->alpha_at - 1) / every + 1, ticks) : 0;
    double keep = 1 - s->rules.gain;
    x->alpha = 1 - (1 - x->alpha) * power(keep, seen);
    x->alpha *= power(keep, ticks - seen);
    x->alpha_at += ticks * every;
}

static void cut(trains *s, int32_t flow, int64_t now) {
    sending *x = &s->now.sendings[flow];
    if (!x->cut_once || x->stage > 0) x->target = x->rate;
    x->cut_once = true;
    x->rate *= 1 - x->alpha / 2;
    if (x->rate < s->rules.least_rate) x->rate = s->rules.least_rate;
    x->stage = 0;
    expect(s, flow, RECOVER, (happening){.at = now + s->rules.recover, .hop = (int32_t)++x->timer});
}

static void marked(trains *s, const happening *e) {
    sending *x = &s->now.sendings[e->flow];
    if (x->congested) update_alpha(s, x, e->at);
    x->seen_until = most(x->seen_until, e->at + most(e->tail, 1));
    if (!x->congested) {
        x->congested = true;
        x->alpha = 1;
        x->alpha_at = x->cut_from = e->at;
        cut(s, e->flow, e->at);
    } else if (!x->cut_due) {
        int64_t every = s->rules.cut_every;
        x->cut_due = true;
        expect(s, e->flow, CUT, (happening){.at = x->cut_from + ((e->at - x->cut_from) / every + 1) * every});
    }
}

static void cut_again(trains *s, const happening *e) {
    sending *x = &s->now.sendings[e->flow];
    x->cut_due = false;
    update_alpha(s, x, e->at);
    cut(s, e->flow, e->at);
    if (x->seen_until <= e->at) return;
    x->cut_due = true;
    expect(s, e->flow, CUT, (happening){.at = e->at + s->rules.cut_every});
}

/* First halfway back to the rate before the cut; then this rate rises as well, slowly, then faster. */
static void recover(trains *s, const happening *e) {
    sending *x = &s->now.sendings[e->flow];
    const train_flow *f = &s->flows[e->flow];
    if ((uint32_t)e->hop != x->timer) return;
    double line = line_rate(s, f, path_of(f, e->at));
    x->stage++;
    if (x->stage > 1) x->target += (x->stage == 2 ? 2e-4 : 2e-3) * line;
    if (x->target > line) x->target = line;
    x->rate = (x->rate + x->target) / 2;
    if (x->rate > line) x->rate = line;
    if (x->rate < line) expect(s, e->flow, RECOVER, (happening){.at = e->at + s->rules.recover, .hop = e->hop});
}

/* A link changes, or a flow takes another path: all that waited looks again. */
static void turn(trains *s, const turn_ *t) {
    if (t->link >= 0) {
        queue_ *q = &s->now.queues[t->link];
        s->now.down += !t->rate - !q->rate;
        q->rate = t->rate;
    }
    for (int32_t i = 0; i < s->nlinks; i++) wake_port(s, i, t->at, t->at);
    for (int32_t i = 0; i < s->now.nsendings; i++)
        if (s->now.sendings[i].waits) {
            s->now.sendings[i].waits = false;
            expect(s, i, REACH, (happening){.at = t->at});
        }
}

int64_t next_happening(const trains *s) {
    int64_t at = s->now.events.n ? s->now.events.items[0].at : NS_NEVER;
    if (s->now.turned < s->nturns) at = least(at, s->turns[s->now.turned].at);
    return s->nstarts ? least(at, s->starts[0].at) : at;
}

static void happen(trains *s, const happening *e) {
    if (e->kind == PORT) {
        queue_ *q = &s->now.queues[e->flow];
        if (q->woken == e->at) q->woken = -1;
        port_sends(s, e->flow, e->at);
        return;
    }
    const train_flow *f = &s->flows[e->flow];
    if (f->generation != e->generation) return;
    if (e->kind == REACH) {
        reach(s, e);
    } else if (s->now.sendings[e->flow].sent < f->nbytes) {
        if (e->kind == MARKED) marked(s, e);
        if (e->kind == CUT) cut_again(s, e);
        if (e->kind == RECOVER) recover(s, e);
    }
}

/* Of one instant: changes of links, then flows that start, then all else. */
void happen_next(trains *s) {
    int64_t at = next_happening(s);
    s->now.last = at;
    s->events++;
    s->since++;
    if (s->now.turned < s->nturns && s->turns[s->now.turned].at == at) {
        turn(s, &s->turns[s->now.turned++]);
    } else if (s->nstarts && s->starts[0].at == at) {
        int32_t flow = s->starts[0].flow;
        pop_start(s);
        start(s, flow, at);
    } else {
        happening e = pop_happening(&s->now.events);
        happen(s, &e);
    }
}
