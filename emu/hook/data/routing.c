/* Sends what policies have chosen: emu/control counts it, the coordinator reports it. */
#include "channel/channel.h"
#include "core/base.h"
#include "nvtx/nvtx.h"
#include "op_stream/emit.h"

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

/* A scheduler of responses may be a process that is no rank: nobody reads what it says. */
PH_EXPORT void phantora_batch(uint32_t responses) {
    if (!ph_channel_is_open()) return;
    ph_program_generates();
    struct ph_BATCH record = {.responses = responses};
    ph_emit(PH_KIND_BATCH, &record, sizeof record, NULL, 0);
}

/* event: RESPONSE_EVENT of records.def. */
PH_EXPORT void phantora_response(uint32_t event, uint32_t response, uint64_t tokens) {
    if (!ph_channel_is_open()) return;
    struct ph_RESPONSE record = {.event = event, .response = response, .tokens = tokens};
    ph_emit(PH_KIND_RESPONSE, &record, sizeof record, NULL, 0);
}

PH_EXPORT void phantora_kv_blocks(uint64_t used, uint64_t blocks) {
    if (!ph_channel_is_open()) return;
    struct ph_KV_BLOCKS record = {.used = used, .blocks = blocks};
    ph_emit(PH_KIND_KV_BLOCKS, &record, sizeof record, NULL, 0);
}

/* program: the payload of GENERATION in records.def. */
PH_EXPORT void phantora_generation(uint64_t batches, uint64_t responses, uint64_t ended, uint64_t tokens,
                                   uint64_t longest, uint64_t places, const char *program) {
    if (!ph_channel_is_open()) return;
    struct ph_GENERATION record = {.batches = batches,
                                   .responses = responses,
                                   .ended = ended,
                                   .tokens = tokens,
                                   .longest = longest,
                                   .places = places};
    ph_emit_out_of_band(PH_KIND_GENERATION, &record, sizeof record, program, strlen(program));
}
