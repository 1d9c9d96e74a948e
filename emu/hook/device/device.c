/*
 * What a device is: attributes, names, addresses; and whether this process may use it.
 */
#include "device/device.h"
#include "cuda/types.h"
#include "core/hash.h"
#include "cuda/attributes.h"
#include "core/run.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_PCI_BUS = 0x10 };

/* This process has initialised CUDA. */
static atomic_bool initialised;

/* A child of a rank that had initialised CUDA (a data loader worker, a shell) cannot use it, as with real CUDA. */
int ph_device_usable(void) {
    if (UNLIKELY(ph_run.orphan)) return CUDA_NOT_INITIALIZED;
    if (UNLIKELY(!atomic_load_explicit(&initialised, memory_order_relaxed))) atomic_store(&initialised, true);
    return CUDA_OK;
}

void ph_device_forget(void) { atomic_store(&initialised, false); }

enum { MULTICAST_SUPPORTED = 132 }; /* of the driver alone: CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED */

int ph_device_attr(int attribute, int device, int *value) {
    *value = 0;
    if (!ph_device_exists(device)) return CUDA_INVALID_DEVICE;
    if (!ph_device_attribute(attribute, value)) return CUDA_INVALID_VALUE;
    if (attribute == MULTICAST_SUPPORTED && ph_cfg.multicast) *value = ph_cfg.cc_major >= 9;
    if (attribute == cudaDevAttrPciBusId) *value = ph_device_pci_bus(ph_visible_gpu(device));
    return CUDA_OK;
}

int ph_device_pci_bus(int gpu) { return FIRST_PCI_BUS + gpu; }

void ph_device_pci(int gpu, char *text, size_t capacity) {
    snprintf(text, capacity, "0000:%02X:00.0", ph_device_pci_bus(gpu));
}

int ph_device_of_pci(const char *text) {
    unsigned domain, bus, slot;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 || bus < FIRST_PCI_BUS ||
        (int)(bus - FIRST_PCI_BUS) >= ph_cfg.device_count)
        return -1;
    return (int)(bus - FIRST_PCI_BUS);
}

/* Unique among all devices of all servers: ProcessGroupNCCL and others tell GPUs apart by it. */
void ph_device_uuid(int gpu, unsigned char uuid[16]) {
    uint64_t words[2] = {ph_mix(ph_run.server + 1, (uint64_t)gpu + 1), ph_mix((uint64_t)gpu + 17, ph_run.server + 91)};
    memcpy(uuid, words, 16);
    uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40);
    uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
}

void ph_device_uuid_text(int gpu, char text[PH_UUID_TEXT]) {
    unsigned char u[16];
    ph_device_uuid(gpu, u);
    snprintf(text, PH_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* ---- contexts and peers ------------------------------------------------------------------------------------------ */

static atomic_bool used[PH_MAX_DEVICES];

typedef void (*ph_join_function)(int device);

/* Python's, see emu/start/warm_children.py. */
static _Atomic(ph_join_function) joining;

/* The function by which a child that a rank has forked joins. */
static ph_join_function rejoining;

PH_EXPORT void phantora_join_in_child(ph_join_function join) { rejoining = join; }

bool ph_device_left_to_child(void) {
    if (!rejoining || atomic_load(&initialised)) return false;
    ph_visible_forget();
    atomic_store(&joining, rejoining);
    return true;
}

PH_EXPORT void phantora_join_later(uint32_t server, ph_join_function join) {
    ph_visible_forget();
    ph_run.server = server;
    atomic_store(&joining, join);
}

void ph_join(int device) {
    if (LIKELY(!atomic_load_explicit(&joining, memory_order_relaxed))) return;
    ph_join_function join = atomic_exchange(&joining, NULL);
    if (join && !ph_run.started && !ph_run.orphan) join(device);
}

void ph_context_use(int device) {
    ph_join(ph_visible_gpu(device));
    if (UNLIKELY(!atomic_load_explicit(&used[device], memory_order_relaxed))) atomic_store(&used[device], true);
}

bool ph_context_used(int device) { return atomic_load(&used[device]); }

static bool peers[PH_MAX_DEVICES][PH_MAX_DEVICES];

int ph_peer_enable(int from, int to, unsigned flags) {
    if (!ph_device_exists(to) || from == to) return CUDA_INVALID_DEVICE;
    if (flags) return CUDA_INVALID_VALUE;
    if (peers[from][to]) return CUDA_PEER_ACCESS_ALREADY_ENABLED;
    peers[from][to] = true;
    return CUDA_OK;
}

int ph_peer_disable(int from, int to) {
    if (!ph_device_exists(to) || !peers[from][to]) return CUDA_PEER_ACCESS_NOT_ENABLED;
    peers[from][to] = false;
    return CUDA_OK;
}
