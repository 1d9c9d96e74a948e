/* The fast core of netsim: max-min fair flows in time, exact, with late arrivals.
 *
 * All instants are ticks and all rates rate units (netsim/units.py). Flows and links are named by the numbers that
 * calls return or that follow from their order. Calls do not check their arguments: netsim/native/core.py does. Results
 * that are lists stay valid until the next call. Not thread safe.
 */
#ifndef NETSIM_H
#define NETSIM_H

#include <stdint.h>

#define NS_ABI 3
#define NS_NEVER INT64_MAX

typedef struct netsim netsim;

typedef struct {
    int64_t flow, before, after; /* completions; NS_NEVER: not known at the present */
} ns_moved;

typedef struct {
    int64_t at, rate;
    int32_t path, pad;
} ns_segment;

typedef struct {
    int64_t events, solves, filled, rollbacks, redone, flows, segments, bytes;
} ns_counters;

int ns_abi(void);
netsim *ns_new(int links, const int64_t *capacities);
void ns_free(netsim *s);

/* A flow of n hops; path p of the flow is in force from path_from[p] on (path_from[0] is not read). capacity < 0: no
 * cap. */
int64_t ns_add(netsim *s, int64_t start, int64_t nbytes, int64_t capacity, int n, const int32_t *links,
               const int32_t *weights, const int32_t *paths, int npaths, const int64_t *path_from);
/* From path_from[0] on the flow takes these paths instead of what it had from then on. */
void ns_redirect(netsim *s, int64_t flow, int n, const int32_t *links, const int32_t *weights, const int32_t *paths,
                 int npaths, const int64_t *path_from);
void ns_retime(netsim *s, int64_t flow, int64_t start);
void ns_retract(netsim *s, int64_t flow);
void ns_capacity(netsim *s, int link, int64_t at, int64_t capacity);

/* Completions in (present, to]: their number; they are at ns_flows and ns_ticks. */
int ns_advance(netsim *s, int64_t to);
/* Flows of the earliest completion after the present if nothing else is added: their number. */
int ns_next(netsim *s);
const int64_t *ns_flows(const netsim *s);
const int64_t *ns_ticks(const netsim *s);
/* Completions that the last add, retime, retract or capacity moved. */
int ns_moves(const netsim *s, const ns_moved **moved);

int64_t ns_completion(const netsim *s, int64_t flow); /* NS_NEVER if not at or before the present; -1: no such flow */
int ns_segments(netsim *s, int64_t flow, const ns_segment **segments);
/* Forget flows that completed at or before the horizon: their number; they are at ns_flows. */
int ns_commit(netsim *s, int64_t horizon);
/* Plain flows: flow i has hops links[offsets[i]] to links[offsets[i + 1] - 1], each of weight 1, and no cap. Flow
 * order[i] is handed over once the present is at submit[order[i]]; then everything runs to the end. The network must be
 * empty. What later flows cannot touch is committed on the way. done[i]: completion of flow i
 * (NS_NEVER where it stalls), as set by the caller before. most_bytes: the most that was held. */
void ns_play(netsim *s, int count, const int32_t *order, const int64_t *submit, const int64_t *starts,
             const int64_t *nbytes, const int64_t *offsets, const int32_t *links, int64_t *done, int64_t *most_bytes);
void ns_count(const netsim *s, ns_counters *out);

/* These are for links with queues (trains.h). `reverse`: the link of the other direction, or -1. `whole`, `parts`:
 * the rules, in the order of nt_rules.
 */
typedef struct trains trains;

trains *nt_new(int links, const int64_t *capacities, const int64_t *latencies, const int32_t *reverse,
               const int64_t *whole, const double *parts);
void nt_free(trains *s);
/* joint: the links are taken at once, as by a group. Else they are a path, and the sender's port is hop number `port`.
 * answer: ticks until the sender hears of a mark. order: flows of one instant go by it.
 */
int64_t nt_add(trains *s, int64_t start, int64_t nbytes, int64_t cap, int64_t order, int joint, int port,
               int64_t answer, int n, const int32_t *links, const int32_t *weights, const int32_t *paths, int npaths,
               const int64_t *path_from);
/* Numbers flows anew, `gap` apart, in the order that they have: as many as returned, in nt_flows and nt_ticks. */
int nt_renumber(trains *s, int64_t gap);
void nt_redirect(trains *s, int64_t flow, int n, const int32_t *links, const int32_t *weights, const int32_t *paths,
                 int npaths, const int64_t *path_from);
void nt_retime(trains *s, int64_t flow, int64_t start);
void nt_retract(trains *s, int64_t flow);
void nt_capacity(trains *s, int link, int64_t at, int64_t capacity);
int nt_advance(trains *s, int64_t to);
int nt_next(trains *s);
const int64_t *nt_flows(const trains *s);
const int64_t *nt_ticks(const trains *s);
int nt_moves(const trains *s, const ns_moved **moved);
int64_t nt_completion(const trains *s, int64_t flow);
int nt_segments(trains *s, int64_t flow, const ns_segment **segments); /* one: the mean rate */
int nt_commit(trains *s, int64_t horizon);
void nt_count(const trains *s, ns_counters *out);

#endif
