/*
 * Warnings that emu's Python side has: the same once, the same two places.
 */
#include "core/core.h"

PH_EXPORT void phantora_warn_once(const char *name, const char *text) { ph_warn_once(name, "%s", text); }
