/* Sends what policies have chosen: emu/control counts it, the coordinator reports it. */
#include "channel/channel.h"
#include "core/base.h"

#include <stdlib.h>
#include <string.h>

/* text: three lines, see ROUTING in records.def. */
PH_EXPORT void phantora_routing(uint64_t calls, uint32_t layer, uint32_t chosen, const uint64_t *loads,
                                uint32_t candidates, const char *text) {
    size_t loads_nbytes = candidates * sizeof *loads, text_nbytes = strlen(text);
    char *payload = malloc(loads_nbytes + text_nbytes + 1);
    if (!payload) return;
    memcpy(payload, loads, loads_nbytes);
    memcpy(payload + loads_nbytes, text, text_nbytes);
    struct ph_ROUTING record = {.calls = calls, .layer = layer, .chosen = chosen, .candidates = candidates};
    ph_emit_out_of_band(PH_KIND_ROUTING, &record, sizeof record, payload, loads_nbytes + text_nbytes);
    free(payload);
}

/* text: three lines, see DATA_SIZE in records.def. */
PH_EXPORT void phantora_data_size(uint64_t calls, uint64_t most, uint64_t chosen, const char *text) {
    struct ph_DATA_SIZE record = {.calls = calls, .most = most, .chosen = chosen};
    ph_emit_out_of_band(PH_KIND_DATA_SIZE, &record, sizeof record, text, strlen(text));
}
