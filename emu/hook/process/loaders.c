/* Sends what data loaders have loaded: Python knows it, here it becomes a record. */
#include "channel/channel.h"
#include "core/base.h"

#include <string.h>

PH_EXPORT void phantora_loader(uint32_t number, uint32_t workers, uint32_t prefetch, uint32_t waits, uint64_t batches,
                               uint64_t measured, uint64_t cpu_ns, uint64_t latency_ns, uint64_t waited_ns,
                               uint64_t step_batches, uint64_t step_waited_ns, uint32_t per_step, const char *dataset) {
    struct ph_LOADER record = {.number = number,
                               .workers = workers,
                               .prefetch = prefetch,
                               .waits = waits,
                               .batches = batches,
                               .measured = measured,
                               .cpu_ns = cpu_ns,
                               .latency_ns = latency_ns,
                               .waited_ns = waited_ns,
                               .step_batches = step_batches,
                               .step_waited_ns = step_waited_ns,
                               .per_step = per_step};
    ph_emit_out_of_band(PH_KIND_LOADER, &record, sizeof record, dataset, strlen(dataset));
}
