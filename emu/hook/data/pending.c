/*
 * Deferred actions, in program order.
 *
 * An action is blocked by each earlier pending one that writes what it reads, reads what it writes, or writes what it
 * writes. Blockers are found once, when the action is submitted; each blocker remembers its dependents. Bytes that
 * arrive from the coordinator are an action, too, with one more blocker until they have arrived: a receive into a
 * buffer that an earlier deferred send still reads waits for that send.
 *
 * The lock guards the lists only and is never held while an action runs, because an action may emit records, take
 * Python's lock or submit actions. A running action stays in the list, so threads that need its result keep waiting.
 */
#include "op_stream/emit.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "data/action.h"
#include "memory/memory.h"
#include "threads/python.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static ph_action *first, *last;
void (*ph_host_action_ready)(ph_action *action);
static atomic_size_t npending, nhost_writes;
static ph_action *python_queue, **python_tail = &python_queue;

/* Bytes that have arrived before the action that expects them was submitted. */
typedef struct early {
    struct early *next;
    uint64_t token;
    size_t nbytes;
    int assumed;
    unsigned char bytes[];
} early;
static early *early_arrivals;

/* Actions that are running on this thread: what they wait for must not include themselves. */
static _Thread_local int running_here;

bool ph_action_running(void) { return running_here > 0; }

ph_action *ph_action_new(enum ph_action_kind kind, const ph_range *reads, int nreads, const ph_range *writes,
                         int nwrites) {
    ph_action *action = ph_allocate(sizeof *action + (size_t)(nreads + nwrites) * sizeof(ph_range));
    action->kind = kind;
    action->nreads = nreads;
    action->nwrites = nwrites;
    if (nreads) memcpy(action->ranges, reads, (size_t)nreads * sizeof *reads);
    if (nwrites) memcpy(action->ranges + nreads, writes, (size_t)nwrites * sizeof *writes);
    return action;
}

static bool any_overlap(const ph_range *a, int na, const ph_range *b, int nb) {
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if (ph_overlap(a[i].start, a[i].nbytes, b[j].start, b[j].nbytes)) return true;
    return false;
}

static bool blocks(const ph_action *earlier, const ph_range *reads, int nreads, const ph_range *writes, int nwrites) {
    const ph_range *its_reads = earlier->ranges, *its_writes = earlier->ranges + earlier->nreads;
    return any_overlap(its_writes, earlier->nwrites, reads, nreads) ||
           any_overlap(its_writes, earlier->nwrites, writes, nwrites) ||
           any_overlap(its_reads, earlier->nreads, writes, nwrites);
}

bool ph_action_conflicts(const ph_range *reads, int nreads, const ph_range *writes, int nwrites) {
    if (!npending) return false;
    bool found = false;
    ph_lock(PH_LOCK_PENDING);
    for (ph_action *earlier = first; earlier && !found; earlier = earlier->next)
        found = blocks(earlier, reads, nreads, writes, nwrites);
    ph_unlock(PH_LOCK_PENDING);
    return found;
}

static bool writes_host(const ph_action *action) {
    return action->nwrites == 1 && !ph_is_device_pointer(action->ranges[action->nreads].start);
}

static void add_dependent(ph_action *blocker, ph_action *dependent) {
    blocker->dependents =
        ph_room_for_one(blocker->dependents, blocker->ndependents, &blocker->dependents_capacity, sizeof(ph_action *));
    blocker->dependents[blocker->ndependents++] = dependent;
    dependent->blockers++;
}

/* Under the lock. */
static void enqueue(ph_action *action) {
    ph_data_marks++;
    const ph_range *reads = action->ranges, *writes = action->ranges + action->nreads;
    for (ph_action *earlier = first; earlier; earlier = earlier->next)
        if (blocks(earlier, reads, action->nreads, writes, action->nwrites)) add_dependent(earlier, action);
    action->prev = last;
    *(last ? &last->next : &first) = action;
    last = action;
    npending++;
    if (writes_host(action)) nhost_writes++;
}

/* Under the lock: hands an action that is no longer blocked to the thread that runs it; returns it if any thread may.
 */
static ph_action *dispatch(ph_action *action) {
    if (action->kind == PH_ACTION_HOST) {
        ph_host_action_ready(action);
        return NULL;
    }
    if (action->kind != PH_ACTION_PYTHON) return action;
    action->ready_next = NULL;
    *python_tail = action;
    python_tail = &action->ready_next;
    ph_wake_all(PH_CONDITION_PYTHON_READY);
    return NULL;
}

/* Under the lock: removes a finished action. Returns the actions that it no longer blocks and that may run on this
 * thread, linked by ready_next. */
static ph_action *retire(ph_action *action) {
    ph_action *ready = NULL, **tail = &ready;
    for (size_t i = 0; i < action->ndependents; i++) {
        ph_action *dependent = action->dependents[i];
        if (--dependent->blockers == 0 && dispatch(dependent)) {
            *tail = dependent;
            tail = &dependent->ready_next;
            dependent->ready_next = NULL;
        }
    }
    *(action->prev ? &action->prev->next : &first) = action->next;
    *(action->next ? &action->next->prev : &last) = action->prev;
    npending--;
    if (writes_host(action)) nhost_writes--;
    ph_wake_all(PH_CONDITION_FINISHED);
    free(action->dependents);
    free(action->staged);
    free(action);
    return ready;
}

/* Runs the actions of a list and all that are no longer blocked then. */
static void run_all(ph_action *ready) {
    while (ready) {
        ph_action *action = ready, *rest = ready->ready_next, *freed;
        running_here++;
        ph_action_perform(action);
        running_here--;
        ph_lock(PH_LOCK_PENDING);
        freed = retire(action);
        ph_unlock(PH_LOCK_PENDING);
        ph_action **tail = &rest;
        while (*tail) tail = &(*tail)->ready_next;
        *tail = freed;
        ready = rest;
    }
}

bool ph_action_submit(ph_action *action) {
    ph_lock(PH_LOCK_PENDING);
    if (action->kind == PH_ACTION_EXPECT) {
        action->blockers = 1;
        for (early **at = &early_arrivals; *at; at = &(*at)->next)
            if ((*at)->token == action->token) {
                early *it = *at;
                *at = it->next;
                action->staged = ph_allocate(it->nbytes ? it->nbytes : 1);
                memcpy(action->staged, it->bytes, it->nbytes);
                action->staged_nbytes = it->nbytes;
                action->assumed = it->assumed;
                action->arrived = true;
                action->blockers = 0;
                free(it);
                break;
            }
    }
    enqueue(action);
    bool now = action->blockers == 0; /* Python actions too: the calling thread holds Python's lock */
    action->ready_next = NULL;
    if (now && action->kind == PH_ACTION_HOST) now = dispatch(action) != NULL;
    ph_unlock(PH_LOCK_PENDING);
    if (now) run_all(action);
    return now;
}

void ph_action_finish(ph_action *action) {
    ph_lock(PH_LOCK_PENDING);
    ph_action *ready = retire(action);
    ph_unlock(PH_LOCK_PENDING);
    run_all(ready);
}

void ph_action_complete(ph_action *action) {
    running_here++;
    ph_action_perform(action);
    running_here--;
    ph_action_finish(action);
}

void ph_data_arrived(uint64_t token, const void *bytes, size_t nbytes, int assumed) {
    ph_lock(PH_LOCK_PENDING);
    ph_action *action = first;
    while (action && (action->kind != PH_ACTION_EXPECT || action->token != token)) action = action->next;
    if (!action) {
        early *it = ph_allocate(sizeof *it + nbytes);
        it->token = token;
        it->nbytes = nbytes;
        it->assumed = assumed;
        if (nbytes) memcpy(it->bytes, bytes, nbytes);
        it->next = early_arrivals;
        early_arrivals = it;
        ph_unlock(PH_LOCK_PENDING);
        return;
    }
    action->staged = ph_allocate(nbytes ? nbytes : 1);
    if (nbytes) memcpy(action->staged, bytes, nbytes);
    action->staged_nbytes = nbytes;
    action->assumed = assumed;
    action->arrived = true;
    bool now = --action->blockers == 0;
    action->ready_next = NULL;
    ph_unlock(PH_LOCK_PENDING);
    if (now) run_all(action);
}

bool ph_data_any_pending(void) { return npending != 0; }

bool ph_data_pending(const void *start, size_t nbytes) {
    ph_range range = {(void *)(uintptr_t)start, nbytes};
    if (!npending || running_here) return false;
    bool found = false;
    ph_lock(PH_LOCK_PENDING);
    for (ph_action *action = first; action && !found; action = action->next)
        found = any_overlap(action->ranges + action->nreads, action->nwrites, &range, 1);
    ph_unlock(PH_LOCK_PENDING);
    return found;
}

/* Under the lock: is an action pending that the caller waits for? */
typedef bool outstanding(const void *start, size_t nbytes);

static bool nobody_listens; /* no other rank waits for what this one has read */

static bool tells_outstanding(const void *start, size_t nbytes) {
    (void)start, (void)nbytes;
    if (nobody_listens) return false;
    for (ph_action *action = first; action; action = action->next)
        if (!action->nwrites) return true;
    return false;
}

static bool host_writes_outstanding(const void *start, size_t nbytes) {
    (void)start, (void)nbytes;
    return nhost_writes != 0;
}

static bool writes_outstanding(const void *start, size_t nbytes) {
    ph_range range = {(void *)(uintptr_t)start, nbytes};
    for (ph_action *action = first; action; action = action->next)
        if (any_overlap(action->ranges + action->nreads, action->nwrites, &range, 1)) return true;
    return false;
}

static _Thread_local bool ends_process;

static void wait_while(outstanding *any, const void *start, size_t nbytes) {
    if (ends_process) return; /* what it would wait for may need Python */
    ph_lock(PH_LOCK_PENDING);
    bool must = any(start, nbytes);
    ph_unlock(PH_LOCK_PENDING);
    if (!must) return;
    ph_flush(); /* other ranks may wait for records that are still in the batch */
    void *interpreter = ph_python_release();
    ph_lock(PH_LOCK_PENDING);
    while (any(start, nbytes)) ph_wait(PH_CONDITION_FINISHED, NULL);
    ph_unlock(PH_LOCK_PENDING);
    ph_python_restore(interpreter);
}

void ph_data_wait(const void *start, size_t nbytes) {
    if (npending && !running_here && nbytes) wait_while(writes_outstanding, start, nbytes);
}

void ph_data_wait_host(void) {
    if (nhost_writes && !running_here) wait_while(host_writes_outstanding, NULL, 0);
}

void ph_data_wait_told(void) {
    if (npending && !running_here) wait_while(tells_outstanding, NULL, 0);
}

void ph_data_nobody_listens(void) {
    ph_lock(PH_LOCK_PENDING);
    nobody_listens = true;
    ph_wake_all(PH_CONDITION_FINISHED);
    ph_unlock(PH_LOCK_PENDING);
}

/* ---- Python actions ---------------------------------------------------------------------------------------------- */

static bool python_runs, python_ended;

void ph_action_python_begin(void) {
    ph_lock(PH_LOCK_PENDING);
    while (!python_queue || python_ended) ph_wait(PH_CONDITION_PYTHON_READY, NULL);
    python_runs = true;
    ph_unlock(PH_LOCK_PENDING);
}

ph_action *ph_action_python_take(void) {
    ph_lock(PH_LOCK_PENDING);
    ph_action *action = python_ended ? NULL : python_queue;
    if (action && !(python_queue = action->ready_next)) python_tail = &python_queue;
    ph_unlock(PH_LOCK_PENDING);
    return action;
}

void ph_action_python_end(void) {
    ph_lock(PH_LOCK_PENDING);
    python_runs = false;
    ph_wake_all(PH_CONDITION_FINISHED);
    ph_unlock(PH_LOCK_PENDING);
}

void ph_data_end_python(void) {
    void *interpreter = ph_python_release();
    ph_lock(PH_LOCK_PENDING);
    python_ended = true;
    while (python_runs && !running_here) ph_wait(PH_CONDITION_FINISHED, NULL);
    ph_unlock(PH_LOCK_PENDING);
    ph_python_restore(interpreter);
    ends_process = true;
}
