/*
 * Graphs: the items that a capture has recorded, in order. `branch` numbers the captured streams; the capture's origin
 * is branch 0. Most items are CUDA's graph nodes. Two kinds only order branches: FORK (an event was recorded) and JOIN
 * (a stream waits for that event). DATA is what a launch does besides the GPU's work (replayed.c).
 */
#ifndef PHANTORA_GRAPH_H
#define PHANTORA_GRAPH_H

#include "graphs/capture.h"

enum ph_graph_item_kind {
    ITEM_LAUNCH,
    ITEM_COPY,
    ITEM_SET,
    ITEM_HOST,
    ITEM_CALL,
    ITEM_EVENT_RECORD,
    ITEM_EVENT_WAIT,
    ITEM_FORK,
    ITEM_JOIN,
    ITEM_DATA
};

typedef struct ph_graph_item {
    enum ph_graph_item_kind kind;
    int branch;
    const ph_cost *cost;
    const ph_cost *(*price)(const void *arg); /* LAUNCH: what it costs at a launch of the graph; NULL: always `cost` */
    void *dst;
    const void *src;
    size_t nbytes;
    int value;
    void (*function)(void *);
    void (*run)(ph_stream *stream, void *arg);
    void *arg;
    ph_event *event;
    int fork;                     /* JOIN: the index of its FORK */
    bool joined;                  /* FORK: a stream waits for it */
    bool reached;                 /* used while the capture ends */
    struct ph_graph_item **after; /* direct dependencies */
    size_t nafter;
    ph_graph *graph;
} ph_graph_item;

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
    int references; /* by the graph's handle and by executable graphs */
    int device;
    ph_graph_item **items;
    size_t nitems, capacity, nnodes;
    int nbranches;
    ph_owned *owned;
};

/* An executable graph and the streams that its branches but the first run on. */
typedef struct ph_graph_exec {
    uint32_t magic;
    ph_graph *graph;
    ph_stream **branches;
    uint64_t recording; /* after its last launch: two launches never overlap */
    uint32_t stream_id;
} ph_graph_exec;

enum { GRAPH_MAGIC = 0x47524150, EXEC_MAGIC = 0x47455845, USER_OBJECT_MAGIC = 0x554f424a };

static inline bool ph_is_node(const ph_graph_item *item) { return item->kind < ITEM_FORK; }

typedef struct ph_tails {
    ph_graph_item **items;
    size_t n;
} ph_tails; /* the items that the next one of a branch depends on */

/* A capture, with the graph that it makes. */
typedef struct ph_graph_capture {
    ph_capture capture; /* the first member: stream->capture points to it */
    ph_graph *graph;
    ph_tails *tails; /* by branch */
} ph_graph_capture;

static inline ph_graph_capture *ph_graph_capture_of(const ph_stream *stream) {
    return (ph_graph_capture *)stream->capture;
}

/* replayed.c: for ph_step_captured (nvtx.h). */
bool ph_capture_step(const char *name);
ph_graph *ph_graph_new(int device);
ph_graph_item *ph_graph_add(ph_graph *graph, enum ph_graph_item_kind kind, int branch);
void ph_graph_release(ph_graph *graph);
int ph_graph_launch(ph_graph_exec *exec, ph_stream *stream);
int ph_user_object_release(ph_user_object *object, int count);

#endif
