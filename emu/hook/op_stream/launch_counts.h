/* Counts how often this rank has launched work of each signature: what a LAUNCH_COUNTS record says. */
#ifndef PHANTORA_LAUNCH_COUNTS_H
#define PHANTORA_LAUNCH_COUNTS_H

#include <stdint.h>

/* All under the record lock. */
/* slowed_ns: what the clock added to its time. */
void ph_count_launch(uint64_t key, uint64_t slowed_ns);
/* Tells the counts since the last call, if there are any. */
void ph_emit_launch_counts(void);

#endif
