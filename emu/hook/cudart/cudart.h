/* The runtime's entry points: each returns its status through `result`, which keeps it for cudaGetLastError. */
#ifndef PHANTORA_CUDART_H
#define PHANTORA_CUDART_H

#include "core/device.h"
#include "process/thread.h"
#include "streams/event.h"

static inline int result(int status) {
    if (UNLIKELY(status != CUDA_OK)) ph_self()->last_error = status;
    return status;
}

static inline ph_event *event_of(void *handle) {
    ph_event *event = handle;
    return event && event->magic == PH_EVENT_MAGIC ? event : NULL;
}

#endif
