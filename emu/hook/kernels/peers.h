/*
 * Kernels that work on memory of several processes: those of torch.distributed._symmetric_memory, Transformer Engine's
 * of user buffers, and the all-reduces of vLLM and SGLang. nccl/symmetric.c sets these functions.
 */
#ifndef PHANTORA_PEERS_H
#define PHANTORA_PEERS_H

#include "kernels/kernel.h"

/* Does the name belong to such a kernel? */
bool ph_is_peer_kernel(const char *name);

typedef struct ph_peers {
    /* A table of addresses, one for each member of a group, has been copied to the device. */
    void (*table)(const void *dst, const void *src, size_t nbytes);
    /* The launch becomes what the group does together. False: it is an ordinary kernel. */
    bool (*launch)(const ph_kernel *kernel, void *const *params, ph_stream *stream);
    /* Is called when a launch was that of an ordinary kernel. */
    void (*launched)(const ph_kernel *kernel, void *const *params, ph_stream *stream);
} ph_peers;
extern ph_peers ph_peer_functions;

#endif
