/* The GPU's clock under its power limit. Under the record lock. */
#ifndef PHANTORA_POWER_H
#define PHANTORA_POWER_H

#include "costs/cost.h"

/* The work is launched on that device and stream, at that instant of the host's clock, and followed by a gap. Returns
 * how many times longer it takes than at the full clock. */
double ph_power_launch(int device, uint32_t stream, const ph_cost *cost, uint64_t now_ns, uint64_t gap_ns);
/* The host, whose clock leaves waits out, has waited for all work of the stream, or of the device if the stream is 0.
 */
void ph_power_host_waited(int device, uint32_t stream, uint64_t now_ns);

#endif
