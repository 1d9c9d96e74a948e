/*
 * device/: what a device is: its attributes, PCI address and UUID, its context and its peers; and whether this process
 * may use it. attributes.h: the numbers of its attributes. Comes in: the device file's values (core/config.h). Goes
 * out: answers to the API folders.
 */
#ifndef PHANTORA_DEVICE_H
#define PHANTORA_DEVICE_H

#include "core/config.h"

static inline bool ph_device_exists(int device) { return device >= 0 && device < ph_cfg.device_count; }

int ph_device_usable(void); /* CUDA_OK, or cudaErrorInitializationError in a child that a rank forked */
int ph_device_attr(int attribute, int device, int *value);
int ph_device_of_pci(const char *text); /* -1: there is no such device */
int ph_device_pci_bus(int device);
void ph_device_pci(int device, char *text, size_t capacity);
void ph_device_uuid(int device, unsigned char uuid[16]);

/* A device has a context once it has been used. */
void ph_context_use(int device);
bool ph_context_used(int device);

int ph_peer_enable(int from, int to, unsigned flags);
int ph_peer_disable(int from, int to);

#endif
