/* Counts how often this rank has launched work of each signature: what a LAUNCH_COUNTS record says. */
#ifndef PHANTORA_LAUNCH_COUNTS_H
#define PHANTORA_LAUNCH_COUNTS_H

#include <stdint.h>

/* Returns the place in the program if no launch of this signature has been counted since the last record, else 0. Not
 * under the record lock: it may announce the site. */
uint16_t ph_launch_site(uint64_t key);
/* The others under the record lock. */
/* slowed_ns: what the clock added to its time. site: of ph_launch_site. */
void ph_count_launch(uint64_t key, uint64_t slowed_ns, uint16_t site);
/* Tells the counts since the last call, if there are any. */
void ph_emit_launch_counts(void);

#endif
