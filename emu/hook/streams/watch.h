/* What watching threads (see process/thread.h) are told about work that may be done. */
#ifndef PHANTORA_WATCH_H
#define PHANTORA_WATCH_H

#include "core/base.h"

/* For a watching thread: is an event done that was recorded at that instant, by ph_clock_estimate? */
bool ph_watch_done(uint64_t recorded_at_ns);
/* A thread of the program starts (1) or ends (-1) to wait inside the library. */
void ph_watch_blocked(int change);

#endif
