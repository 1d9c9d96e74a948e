/*
 * Runtime: memory and events of other processes (IPC), and managed memory.
 *
 * Managed memory can be used by host and device. Its pages are taken to be where they are needed: moving them takes no
 * time, and more may be allocated than the device has. It takes none of the device's capacity.
 */
#include "threads/host.h"
#include "cudart/cudart.h"
#include "graphs/capture.h"
#include "memory/managed.h"
#include "memory/shared.h"

#include <string.h>

PH_EXPORT int cudaIpcGetMemHandle(ph_ipc_handle *out, void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return result(out ? ph_ipc_get(out, p) : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaIpcOpenMemHandle(void **out, ph_ipc_handle handle, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_ipc_open(out, &handle));
}

PH_EXPORT int cudaIpcCloseMemHandle(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_ipc_close(p));
}

/* An event of another process counts as done: its recordings are not followed. Programs that pass memory on wait for it
 * by other means, too, before they tell the other process of it. */
PH_EXPORT int cudaIpcGetEventHandle(ph_ipc_handle *out, void *event) {
    ph_host_call(PH_CALL_EVENT);
    if (!out || !event_of(event)) return result(CUDA_INVALID_VALUE);
    memset(out, 0, sizeof *out);
    return CUDA_OK;
}

PH_EXPORT int cudaIpcOpenEventHandle(ph_event **out, ph_ipc_handle handle) {
    (void)handle;
    ph_host_call(PH_CALL_EVENT);
    return result(ph_event_create(0, out));
}

/* ---- managed memory ---------------------------------------------------------------------------------------------- */

PH_EXPORT int cudaMallocManaged(void **out, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    *out = NULL;
    int status = ph_uncapturable();
    return result(status ? status : ph_managed_alloc(out, nbytes));
}

/* Pages move on first use, or with these hints before it. */
PH_EXPORT int cudaMemPrefetchAsync(const void *p, size_t nbytes, struct cudaMemLocation to, unsigned flags,
                                   void *stream) {
    (void)nbytes, (void)to, (void)flags, (void)stream;
    ph_host_call(PH_CALL_QUERY);
    return result(ph_managed_range(p, NULL, NULL) ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaMemAdvise(const void *p, size_t nbytes, int advice, struct cudaMemLocation about) {
    (void)nbytes, (void)advice, (void)about;
    ph_host_call(PH_CALL_QUERY);
    return result(ph_managed_range(p, NULL, NULL) ? CUDA_OK : CUDA_INVALID_VALUE);
}
