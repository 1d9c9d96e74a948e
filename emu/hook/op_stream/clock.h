/* Virtual time as a thread of the rank learns it. */
#ifndef PHANTORA_CLOCK_H
#define PHANTORA_CLOCK_H

#include <stdint.h>

/* The virtual time now: asks, and waits for the answer. */
uint64_t phantora_clock_ns(void);
/* The virtual time now, for a read of the program's: asks only if it is not certain. */
uint64_t phantora_clock_read_ns(void);
/* Under the record lock: the rank has stated this, as its record of that number. */
void ph_clock_stated(uint16_t kind, uint64_t number);
/* Under the record lock: it has stated so many launches of one stream. */
void ph_clock_launched(uint64_t launches);
/* Under the record lock: time may have passed of which the rank does not know. */
void ph_clock_is_uncertain(void);
/* The virtual time last heard of, plus the host time since: never asks. */
uint64_t ph_clock_estimate(void);

/* Does the same as phantora_clock_ns, for a thread that may hold locks of PyTorch's: it keeps Python's lock
 * meanwhile. */
uint64_t ph_clock_within(void);

#endif
