/*
 * core/: what every other folder builds on. The description of the run's GPUs and hosts (config), counters (counters),
 * memory that must be there (alloc), hashes (hash), tables by them (interned), the records as C structs (records).
 * Comes in: the device file. Goes out: values; the record COUNTERS.
 *
 * This header: the few macros and limits that all files share.
 */
#ifndef PHANTORA_BASE_H
#define PHANTORA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PH_EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { PH_MAX_DEVICES = 64 };

#endif
