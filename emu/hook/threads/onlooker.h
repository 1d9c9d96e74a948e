/* Threads of the program that only ask. */
#ifndef PHANTORA_ONLOOKER_H
#define PHANTORA_ONLOOKER_H

#include "core/base.h"

/* Does the calling thread only look on, so that its questions must move no clock? */
bool ph_looks_on(void);
/* Does the calling thread, which waits for the GPU, only look on? The program may wait for it though it is a daemon. */
bool ph_looks_on_waiting(void);

#endif
