/* Names of host memory that ranks map from the same files. See host_names.c. */
#ifndef PHANTORA_HOST_NAMES_H
#define PHANTORA_HOST_NAMES_H

#include "core/base.h"

/* The key of a range that has a name and to which this process has not written; false if there is none. */
bool ph_host_name_key(const void *bytes, size_t nbytes, uint64_t key[2]);

#endif
