/* The answers to watching threads (see process/thread.h) about work that may be done, and when they let go of it. */
#ifndef PHANTORA_WATCH_H
#define PHANTORA_WATCH_H

#include "core/base.h"

struct ph_event;
struct ph_stream;

/* Hosts take at least so many tenths of the described one's time. */
enum { PH_FASTEST_HOST_TENTHS = 7 };

/* One communicator whose collectives a process group's watchdog watches. */
typedef struct ph_watch ph_watch;

/* If the calling thread creates a communicator for a process group with a watchdog; NULL otherwise. */
ph_watch *ph_watch_make(void);
/* The communicator has not come about. */
void ph_watch_free(ph_watch *watch);
/* A thread of the program is about to launch collectives. Lets the watchdog finish with those that it has seen complete
 * by now in virtual time. */
void ph_watch_launch(ph_watch *watch);
/* The thread has launched collectives on that stream: the next event that it records there says when they end.
 * `first_on_blocks`: no earlier one was given one of their blocks. */
void ph_watch_launched(ph_watch *watch, const struct ph_stream *stream, bool first_on_blocks);
/* A thread of the program waits for the GPU. */
void ph_watch_host_waited(void);
/* All work of the communicator counts as done: the program has said that none will follow. */
void ph_watch_end(ph_watch *watch);

/* Are called by event.c, at each record, at each wait of a stream of the program's, and before the event is
 * destroyed. */
void ph_watch_recorded(struct ph_event *event, const struct ph_stream *stream);
void ph_watch_waited(struct ph_event *event);
void ph_watch_forget(struct ph_event *event);

/* For a watching thread: is the event done? */
bool ph_watch_done(struct ph_event *event);
/* Is there work that a watching thread would find done, and has not? */
bool ph_watch_any_visible(void);
/* watchdog_sleep.c: from now on watchdogs in that library of PyTorch's sleep while there is nothing to find. */
void ph_watchdog_sleeps_in(const char *library);
/* A watching thread goes on after an answer of ph_watch_done. */
void ph_watch_step(void);

/* The coordinator says that all ranks sleep and nothing is left to simulate: the program may wait for a watching
 * thread. */
void ph_told_of_rest(const unsigned char *body, size_t nbytes);
/* For a thread that only looks on: has the program made no call for some of its looks, in real time, and does no other
 * thread run? */
bool ph_watch_program_is_idle(void);

/* ---- watchdog_clock.c: once nothing can happen any more but that watchdogs lose patience ------------------------- */
struct timespec;
/* The coordinator says so: the instant, and which recordings are not done. */
void ph_told_of_stall(const unsigned char *body, size_t nbytes);
bool ph_stalled(void);
bool ph_stalled_done(uint64_t recording);
/* Takes the place of libstdc++'s steady clock, in PyTorch's library. */
int64_t ph_watchdog_now(void);
/* Does the calling watchdog's wait pass in virtual time? Then the second one stands for the wait. */
bool ph_watchdog_jumps(const struct timespec *until);
int ph_watchdog_jump(void *condition, void *mutex);

#endif
