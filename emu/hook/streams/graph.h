/*
 * Graphs: what a capture recorded, in the order it was given. `branch` is the captured stream it was given to; the
 * capture's origin is branch 0. Two kinds are no nodes but order: FORK (an event recorded), JOIN (a stream waits for
 * it).
 */
#ifndef PHANTORA_GRAPH_H
#define PHANTORA_GRAPH_H

#include "streams/capture.h"

#include <pthread.h>

enum ph_step_kind {
    STEP_LAUNCH,
    STEP_COPY,
    STEP_SET,
    STEP_HOST,
    STEP_CALL,
    STEP_EVENT_RECORD,
    STEP_EVENT_WAIT,
    STEP_FORK,
    STEP_JOIN
};

typedef struct ph_step {
    enum ph_step_kind kind;
    int branch;
    const ph_cost *cost;
    void *dst;
    const void *src;
    size_t nbytes;
    int value;
    void (*function)(void *);
    void (*run)(ph_stream *stream, void *arg);
    void *arg;
    ph_event *event;
    int fork;               /* JOIN: which fork, by its index */
    bool joined;            /* FORK: somebody waits for it */
    bool reached;           /* while looking for what was not joined */
    struct ph_step **after; /* direct dependencies */
    size_t nafter;
    ph_graph *graph;
} ph_step;

typedef struct ph_user_object {
    uint32_t magic;
    int references;
    void *object;
    void (*destroy)(void *);
} ph_user_object;

typedef struct ph_owned {
    ph_user_object *object;
    int count;
    struct ph_owned *next;
} ph_owned;

struct ph_graph {
    uint32_t magic;
    int references; /* the graph's handle and its executables */
    int device;
    ph_step **steps;
    size_t nsteps, capacity, nnodes;
    int nbranches;
    ph_owned *owned;
};

/* An executable graph and the streams that its side branches run on. */
typedef struct ph_graph_exec {
    uint32_t magic;
    ph_graph *graph;
    ph_stream **branches;
    uint64_t recording; /* behind its last launch: it does not run beside itself */
    uint32_t stream_id;
} ph_graph_exec;

enum { GRAPH_MAGIC = 0x47524150, EXEC_MAGIC = 0x47455845, USER_OBJECT_MAGIC = 0x554f424a };

static inline bool ph_is_node(const ph_step *step) { return step->kind < STEP_FORK; }

typedef struct ph_tails {
    ph_step **steps;
    size_t n;
} ph_tails; /* what the next node of a branch depends on */

typedef struct ph_capture ph_capture;
struct ph_capture {
    uint64_t id;
    int mode;
    bool invalid;
    ph_graph *graph;
    ph_stream *origin;
    ph_tails *tails; /* by branch */
    pthread_t thread;
};

ph_graph *ph_graph_new(int device);
ph_step *ph_graph_add(ph_graph *graph, enum ph_step_kind kind, int branch);
void ph_graph_release(ph_graph *graph);
int ph_graph_launch(ph_graph_exec *exec, ph_stream *stream);
int ph_user_object_release(ph_user_object *object, int count);

#endif
