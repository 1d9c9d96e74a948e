/*
 * Memory of another process of the same server: shareable handles of physical memory, and CUDA IPC.
 *
 * Who exports memory gives it an identity, which travels as the contents of a file (a shareable handle) or as the bytes
 * of an IPC handle. Who imports it gets addresses of its own for it, which take none of its capacity. Bytes are not
 * shared: what one process stores, the others do not see. What is read through imported addresses counts as unknown
 * unless this process has stored it there.
 */
#ifndef PHANTORA_SHARED_H
#define PHANTORA_SHARED_H

#include "core/base.h"

/* The identity of exported memory, the same in every process that has it. There are no gaps in the struct: its bytes
 * are compared. */
typedef struct ph_shared {
    uint64_t magic, number; /* number: counted by the process that exports */
    uint32_t rank, process;
    int32_t gpu, pad; /* the GPU's number on its server */
    uint64_t nbytes;
} ph_shared;

/* The next identity of this process, for memory of one of its devices. */
ph_shared ph_shared_make(int device, size_t nbytes);
/* A new file descriptor for it, -1 if there is none to be had; and back. */
int ph_shared_export(const ph_shared *it);
bool ph_shared_import(int fd, ph_shared *out);
/* Is it memory of a process other than this one? */
bool ph_shared_foreign(const ph_shared *it);

/* The 64 bytes of a CUDA IPC handle of memory. */
typedef struct ph_ipc_handle {
    char bytes[64];
} ph_ipc_handle;
int ph_ipc_get(ph_ipc_handle *out, const void *p);
int ph_ipc_open(void **out, const ph_ipc_handle *handle);
int ph_ipc_close(void *p);
/* The identity of the allocation that an address lies in; false if this process has exported none there by IPC. */
bool ph_ipc_shared_of(const void *p, ph_shared *out);

#endif
