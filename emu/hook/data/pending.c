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
#include "channel/channel.h"
#include "core/alloc.h"
#include "data/action.h"
#include "memory/memory.h"
#include "process/python.h"
#include "streams/host_function.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static pthread_cond_t python_ready = PTHREAD_COND_INITIALIZER;
static ph_action *first, *last;
static atomic_size_t npending, nhost_writes;
static ph_action *python_queue, **python_tail = &python_queue;

/* Bytes that have arrived before the action that expects them was submitted. */
typedef struct early {
    struct early *next;
    uint64_t token;
    size_t nbytes;
    bool assumed;
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
    pthread_mutex_lock(&lock);
    for (ph_action *earlier = first; earlier && !found; earlier = earlier->next)
        found = blocks(earlier, reads, nreads, writes, nwrites);
    pthread_mutex_unlock(&lock);
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
        ph_host_function_ready(action);
        return NULL;
    }
    if (action->kind != PH_ACTION_PYTHON) return action;
    action->ready_next = NULL;
    *python_tail = action;
    python_tail = &action->ready_next;
    pthread_cond_signal(&python_ready);
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
    pthread_cond_broadcast(&finished);
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
        pthread_mutex_lock(&lock);
        freed = retire(action);
        pthread_mutex_unlock(&lock);
        ph_action **tail = &rest;
        while (*tail) tail = &(*tail)->ready_next;
        *tail = freed;
        ready = rest;
    }
}

bool ph_action_submit(ph_action *action) {
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    if (now) run_all(action);
    return now;
}

void ph_action_finish(ph_action *action) {
    pthread_mutex_lock(&lock);
    ph_action *ready = retire(action);
    pthread_mutex_unlock(&lock);
    run_all(ready);
}

void ph_action_complete(ph_action *action) {
    running_here++;
    ph_action_perform(action);
    running_here--;
    ph_action_finish(action);
}

void ph_data_arrived(uint64_t token, const void *bytes, size_t nbytes, bool assumed) {
    pthread_mutex_lock(&lock);
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
        pthread_mutex_unlock(&lock);
        return;
    }
    action->staged = ph_allocate(nbytes ? nbytes : 1);
    if (nbytes) memcpy(action->staged, bytes, nbytes);
    action->staged_nbytes = nbytes;
    action->assumed = assumed;
    action->arrived = true;
    bool now = --action->blockers == 0;
    action->ready_next = NULL;
    pthread_mutex_unlock(&lock);
    if (now) run_all(action);
}

bool ph_data_pending(const void *start, size_t nbytes) {
    ph_range range = {(void *)(uintptr_t)start, nbytes};
    if (!npending || running_here) return false;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (ph_action *action = first; action && !found; action = action->next)
        found = any_overlap(action->ranges + action->nreads, action->nwrites, &range, 1);
    pthread_mutex_unlock(&lock);
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

static void wait_while(outstanding *any, const void *start, size_t nbytes) {
    pthread_mutex_lock(&lock);
    bool must = any(start, nbytes);
    pthread_mutex_unlock(&lock);
    if (!must) return;
    ph_flush(); /* other ranks may wait for records that are still in the batch */
    void *interpreter = ph_python_release();
    pthread_mutex_lock(&lock);
    while (any(start, nbytes)) pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    nobody_listens = true;
    pthread_cond_broadcast(&finished);
    pthread_mutex_unlock(&lock);
}

void ph_action_python_wait(void) {
    pthread_mutex_lock(&lock);
    while (!python_queue) pthread_cond_wait(&python_ready, &lock);
    pthread_mutex_unlock(&lock);
}

ph_action *ph_action_python_take(void) {
    pthread_mutex_lock(&lock);
    ph_action *action = python_queue;
    if (action && !(python_queue = action->ready_next)) python_tail = &python_queue;
    pthread_mutex_unlock(&lock);
    return action;
}
