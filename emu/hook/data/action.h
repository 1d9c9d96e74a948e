/* The action: one unit of work on bytes that waits for others. Shared by the files of data/. */
#ifndef PHANTORA_ACTION_H
#define PHANTORA_ACTION_H

#include "data/data.h"

enum ph_action_kind {
    PH_ACTION_COPY,   /* bytes of `source` (or of `staged`, taken when the call was made) to writes[0] */
    PH_ACTION_SET,    /* `value` into writes[0] */
    PH_ACTION_EXPECT, /* bytes that arrive under `token` into writes[0] */
    PH_ACTION_CALL,   /* run(arg), C code that may run on any thread */
    PH_ACTION_PYTHON, /* run(arg), needs the interpreter: only python_actions.c's thread runs it */
    PH_ACTION_HOST    /* run(arg), a host function of the program: only host_function.c's thread runs it */
};

typedef struct ph_action {
    struct ph_action *prev, *next; /* all that is pending, in program order */
    struct ph_action *ready_next;
    struct ph_action **dependents; /* actions that this one blocks */
    size_t ndependents, dependents_capacity;
    int blockers; /* earlier actions it waits for, plus one while an EXPECT's bytes are missing */
    enum ph_action_kind kind;
    bool arrived;
    int value;
    uint64_t token;
    const void *source;
    unsigned char *staged;
    size_t staged_nbytes;
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
/* Runs it now if nothing stands in its way (true), else queues it. Takes the action over. */
bool ph_action_submit(ph_action *action);
/* Would an action over these ranges have to wait? One atomic load when nothing is pending. */
bool ph_action_conflicts(const ph_range *reads, int nreads, const ph_range *writes, int nwrites);
/* Blocks until a Python action's turn has come. */
void ph_action_python_wait(void);
/* The next such action, NULL if none; the caller performs and finishes it. */
ph_action *ph_action_python_take(void);
void ph_action_finish(ph_action *action);
/* Performs and finishes it here: its own waits do not wait for it. */
void ph_action_complete(ph_action *action);

/* data.c */
void ph_action_perform(ph_action *action);

#endif
