/*
 * core/: what every other folder builds on. The description of the run's GPUs and hosts (config, device), the rank's
 * host clock and counters (host, counters), warnings and refusals (warn), CUDA's types and numbers (cuda_types),
 * hashes. Comes in: the device file. Goes out: values; records only for counters and warnings.
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
