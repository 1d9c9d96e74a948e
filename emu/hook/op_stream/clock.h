/* Virtual time as a thread of the rank learns it. */
#ifndef PHANTORA_CLOCK_H
#define PHANTORA_CLOCK_H

#include <stdint.h>

/* The virtual time now: asks, and waits for the answer. */
uint64_t phantora_clock_ns(void);
/* The virtual time last heard of, plus the host time since: never asks. */
uint64_t ph_clock_estimate(void);

/* Does the same as phantora_clock_ns, for a thread that may hold locks of PyTorch's: it keeps Python's lock
 * meanwhile. */
uint64_t ph_clock_within(void);

#endif
