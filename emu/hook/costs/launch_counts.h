/* How often this rank has launched work of each signature: what a LAUNCH_COUNTS record says. */
#ifndef PHANTORA_LAUNCH_COUNTS_H
#define PHANTORA_LAUNCH_COUNTS_H

#include "costs/cost.h"

/* Both under the record lock. */
void ph_count_launch(const ph_cost *cost);
/* Tells the counts since the last call, if there are any. */
void ph_emit_launch_counts(void);

#endif
