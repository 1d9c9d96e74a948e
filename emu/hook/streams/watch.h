/* What a library's watching threads are told about work that may be done. */
#ifndef PHANTORA_WATCH_H
#define PHANTORA_WATCH_H

#include "core/base.h"

/* To a watching thread: is what an event recorded at that instant (as ph_clock_estimate told) stands for done? */
bool ph_watch_done(uint64_t recorded_at_ns);
/* A thread of the program enters (1) or leaves (-1) a wait inside the library. */
void ph_watch_blocked(int change);

#endif
