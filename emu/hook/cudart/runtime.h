/* The runtime's entry points: each returns its status through `result`, which keeps it for cudaGetLastError. */
#ifndef PHANTORA_RUNTIME_H
#define PHANTORA_RUNTIME_H

#include "core/core.h"

static inline int result(int status) {
    if (UNLIKELY(status != CUDA_OK)) ph_self()->last_error = status;
    return status;
}

static inline ph_event *event_of(void *handle) {
    ph_event *event = handle;
    return event && event->magic == PH_EVENT_MAGIC ? event : NULL;
}

static inline bool device_exists(int device) { return device >= 0 && device < ph_cfg.device_count; }

#endif
