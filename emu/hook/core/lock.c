/* See lock.h. */
#include "core/lock.h"
#include "core/run.h"

#define LOCK(NAME, about) [PH_LOCK_##NAME] = {PTHREAD_MUTEX_INITIALIZER},
#define CONDITION(NAME, LOCK, about)
ph_mutex ph_mutexes[PH_LOCKS] = {
#include "core/locks.def"
};
#undef LOCK
#undef CONDITION

static struct {
    pthread_cond_t condition;
    ph_lock_id lock;
} conditions[PH_CONDITIONS] = {
#define LOCK(NAME, about)
#define CONDITION(NAME, LOCK, about) [PH_CONDITION_##NAME] = {PTHREAD_COND_INITIALIZER, PH_LOCK_##LOCK},
#include "core/locks.def"
#undef LOCK
#undef CONDITION
};

int ph_wait(ph_condition condition, const struct timespec *until) {
    pthread_cond_t *on = &conditions[condition].condition;
    ph_lock_id id = conditions[condition].lock;
    ph_lock_given(id);
    ph_holds_no_lock();
    int status =
        until ? pthread_cond_timedwait(on, &ph_mutexes[id].mutex, until) : pthread_cond_wait(on, &ph_mutexes[id].mutex);
    ph_lock_taken(id);
    return status;
}

void ph_wake_all(ph_condition condition) { pthread_cond_broadcast(&conditions[condition].condition); }

/* ---- forks ------------------------------------------------------------------------------------------------------- */

void ph_locks_before_fork(void) {
    for (int id = 0; id < PH_LOCKS; id++) ph_lock(id);
}

void ph_locks_in_parent(void) {
    for (int id = PH_LOCKS; id-- > 0;) ph_unlock(id);
}

/* The threads that waited for conditions are not there. */
void ph_locks_in_child(void) {
    for (int i = 0; i < PH_CONDITIONS; i++) pthread_cond_init(&conditions[i].condition, NULL);
    ph_locks_in_parent();
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

#ifdef PH_CHECK_LOCKS
static const char *const names[PH_LOCKS] = {
#define LOCK(NAME, about) #NAME,
#define CONDITION(NAME, LOCK, about)
#include "core/locks.def"
#undef LOCK
#undef CONDITION
};

static _Thread_local struct {
    int n;
    ph_lock_id ids[PH_LOCKS];
} held;

void ph_lock_taken(ph_lock_id id) {
    for (int i = 0; i < held.n; i++)
        if (held.ids[i] >= id) ph_die("the lock %s is taken by a thread that has %s", names[id], names[held.ids[i]]);
    held.ids[held.n++] = id;
}

void ph_lock_given(ph_lock_id id) {
    int i = held.n;
    while (i > 0 && held.ids[i - 1] != id) i--;
    if (i == 0) ph_die("the lock %s is given back by a thread that does not have it", names[id]);
    for (held.n--; i <= held.n; i++) held.ids[i - 1] = held.ids[i];
}

void ph_lock_needed(ph_lock_id id) {
    for (int i = 0; i < held.n; i++)
        if (held.ids[i] == id) return;
    ph_die("a thread changes what the lock %s guards, but does not have it", names[id]);
}

void ph_holds_no_lock(void) {
    if (held.n) ph_die("a thread waits while it has the lock %s", names[held.ids[held.n - 1]]);
}
#endif
