/* Counts how often this rank has launched work of each signature for each module: what a MODULE_COUNTS record says. */
#ifndef PHANTORA_MODULE_COUNTS_H
#define PHANTORA_MODULE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* Under the record lock. slowed_ns: what the clock added to its time. module, backward: as ph_module tells them. */
void ph_count_of_module(uint64_t key, uint64_t slowed_ns, uint16_t module, bool backward);
/* A step ends: its counts are whole. */
void ph_module_step_ends(void);

#endif
