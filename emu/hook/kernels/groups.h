/* The groups of a grouped product. Their sizes are data: emu/control/routing/groups.py tells them, rounded. */
#ifndef PHANTORA_GROUPS_H
#define PHANTORA_GROUPS_H

#include <stdint.h>

/* Fields as in the `grouped` signature (emu/contract/signature.def). Without groups nothing is known. */
typedef struct ph_groups {
    uint64_t groups, used, rows, longest, tiles64, tiles128;
} ph_groups;

#endif
