/*
 * cudart/: the CUDA runtime's entry points. Each is thin over core/, streams/, memory/ and kernels/, and returns its
 * status through `result`, which keeps it for cudaGetLastError.
 *
 *   device.c stream.c memory.c pool.c launch.c graph.c errors.c   by what the calls are about
 *   per_thread.c   the names that programs with a default stream per thread call
 *
 * Comes in: calls. Goes out: operations on streams, memory and kernels, with the host time of each call.
 */
#ifndef PHANTORA_CUDART_H
#define PHANTORA_CUDART_H

#include "core/run.h"
#include "device/device.h"
#include "threads/thread.h"
#include "streams/event.h"

/* The error of the current device if it is dead; else the status. Watchdogs see neither: the program does, in its own
 * time. */
int cudart_alive(int status);

/* Frees device memory; that of a pool is the pool's again. */
int cudart_free(void *p);

static inline int result(int status) {
    if (UNLIKELY(atomic_load_explicit(&ph_run.dead, memory_order_relaxed))) status = cudart_alive(status);
    if (UNLIKELY(status != CUDA_OK)) ph_self()->last_error = status;
    return status;
}

static inline ph_event *event_of(void *handle) {
    ph_event *event = handle;
    return event && event->magic == PH_EVENT_MAGIC ? event : NULL;
}

#endif
