/* The library's locks and conditions: locks.def lists them. */
#ifndef PHANTORA_LOCK_H
#define PHANTORA_LOCK_H

#include "core/base.h"

#include <pthread.h>
#include <time.h>

typedef enum ph_lock_id {
#define LOCK(NAME, about) PH_LOCK_##NAME,
#define CONDITION(NAME, LOCK, about)
#include "core/locks.def"
#undef LOCK
#undef CONDITION
    PH_LOCKS
} ph_lock_id;

typedef enum ph_condition {
#define LOCK(NAME, about)
#define CONDITION(NAME, LOCK, about) PH_CONDITION_##NAME,
#include "core/locks.def"
#undef LOCK
#undef CONDITION
    PH_CONDITIONS
} ph_condition;

/* A mutex, in a cache line of its own. */
typedef struct ph_mutex {
    _Alignas(64) pthread_mutex_t mutex;
} ph_mutex;
extern ph_mutex ph_mutexes[PH_LOCKS];

/* With PH_CHECK_LOCKS the process ends where a thread takes a lock out of order, gives back or needs one that it does
 * not have, or waits with locks. */
#ifdef PH_CHECK_LOCKS
void ph_lock_taken(ph_lock_id id);
void ph_lock_given(ph_lock_id id);
void ph_lock_needed(ph_lock_id id); /* the caller is to hold it */
void ph_holds_no_lock(void);
#else
static inline void ph_lock_taken(ph_lock_id id) { (void)id; }
static inline void ph_lock_given(ph_lock_id id) { (void)id; }
static inline void ph_lock_needed(ph_lock_id id) { (void)id; }
static inline void ph_holds_no_lock(void) {}
#endif

static inline void ph_lock(ph_lock_id id) {
    ph_lock_taken(id);
    pthread_mutex_lock(&ph_mutexes[id].mutex);
}

static inline bool ph_trylock(ph_lock_id id) {
    if (pthread_mutex_trylock(&ph_mutexes[id].mutex) != 0) return false;
    ph_lock_taken(id);
    return true;
}

static inline void ph_unlock(ph_lock_id id) {
    ph_lock_given(id);
    pthread_mutex_unlock(&ph_mutexes[id].mutex);
}

/* Waits, with the condition's lock, and no other one. `until`: by CLOCK_REALTIME; NULL: for ever. Returns 0 or
 * ETIMEDOUT. */
int ph_wait(ph_condition condition, const struct timespec *until);
void ph_wake_all(ph_condition condition);

/* Around a fork: all locks are taken, in their order, and given back on both sides. */
void ph_locks_before_fork(void);
void ph_locks_in_parent(void);
void ph_locks_in_child(void);

#endif
