/* The action: one unit of work on bytes, which may have to wait for earlier ones. */
#ifndef PHANTORA_ACTION_H
#define PHANTORA_ACTION_H

#include "data/data.h"
#include "sources/source_map.h"

enum ph_action_kind {
    PH_ACTION_COPY,   /* bytes of `source`, or of `staged` (copied when the call was made), to writes[0] */
    PH_ACTION_SET,    /* `value` into writes[0] */
    PH_ACTION_REFER,  /* writes[0] refers to `content` */
    PH_ACTION_FORGET, /* writes[0] becomes unknown */
    PH_ACTION_EXPECT, /* bytes that arrive under `token` into writes[0] */
    PH_ACTION_CALL,   /* run(arg): C code, on any thread */
    PH_ACTION_PYTHON, /* run(arg): Python code, on the thread of python_actions.c */
    PH_ACTION_HOST    /* run(arg): a host function of the program, on the thread of host_function.c */
};

typedef struct ph_action {
    struct ph_action *prev, *next; /* in the list of pending actions, in program order */
    struct ph_action *ready_next;
    struct ph_action **dependents; /* actions that this one blocks */
    size_t ndependents, dependents_capacity;
    int blockers; /* earlier actions it waits for, plus one while an EXPECT's bytes are missing */
    enum ph_action_kind kind;
    bool arrived;
    int assumed; /* of what has arrived: see the record DATA */
    bool large;  /* of a copy, see ph_move_copy */
    int value;
    uint64_t token;
    const void *source;
    unsigned char *staged;
    size_t staged_nbytes;
    ph_source *content;
    uint64_t offset; /* in `content` */
    void (*run)(void *);
    void *arg;
    int nreads, nwrites;
    ph_range ranges[]; /* reads, then writes */
} ph_action;

static inline bool ph_overlap(const void *a, size_t a_nbytes, const void *b, size_t b_nbytes) {
    uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p < q + b_nbytes && q < p + a_nbytes;
}

/* pending.c */
ph_action *ph_action_new(enum ph_action_kind kind, const ph_range *reads, int nreads, const ph_range *writes,
                         int nwrites);
/* Runs the action now, if nothing blocks it, and returns true; else queues it. Frees the action in the end. */
bool ph_action_submit(ph_action *action);
/* Would an action over these ranges be blocked? One atomic load if nothing is pending. */
bool ph_action_conflicts(const ph_range *reads, int nreads, const ph_range *writes, int nwrites);
/* Does the calling thread run an action? What that does to its ranges happens at once. */
bool ph_action_running(void);
/* Waits, on the thread that runs Python actions, until one can run; from then on the thread runs some, until it ends
 * that. */
void ph_action_python_begin(void);
/* Takes the next such action, NULL if there is none. The caller performs and finishes it. */
ph_action *ph_action_python_take(void);
void ph_action_python_end(void);
/* The bytes have arrived; `assumed`: as in the record DATA. Called on the channel's reader thread. */
void ph_data_arrived(uint64_t token, const void *bytes, size_t nbytes, int assumed);
void ph_action_finish(ph_action *action);
/* Performs and finishes the action on this thread. What it waits for meanwhile does not include itself. */
void ph_action_complete(ph_action *action);

/* The turn of a host function has come; called under the lock of pending actions. Set by streams/. */
extern void (*ph_host_action_ready)(ph_action *action);

/* data.c */
void ph_action_perform(ph_action *action);

/* moves.c: what a copy or a set does to bytes, at once. */
void ph_move_set(void *dst, int value, size_t nbytes);
/* `large`: to the device, and too large to write bytes there. */
void ph_move_copy(void *dst, const void *src, size_t nbytes, bool large);
/* Does what a large copy from the host does. `refer`: makes a range refer to a source. */
void ph_move_from_host(void *dst, const void *src, size_t nbytes,
                       void refer(void *, struct ph_source *, uint64_t, size_t));
/* The range refers to the source, whose reference passes on, from an offset on; NULL: it becomes unknown. */
void ph_move_refer(void *dst, ph_source *source, uint64_t offset, size_t nbytes);

#endif
