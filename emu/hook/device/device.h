/*
 * device/: what a device is: its attributes, PCI address and UUID, its context and its peers; and whether this process
 * may use it. attributes.h: the numbers of its attributes. Comes in: the device file's values (core/config.h). Goes
 * out: answers to the API folders. visible: which GPUs a process sees.
 */
#ifndef PHANTORA_DEVICE_H
#define PHANTORA_DEVICE_H

#include "core/config.h"
#include "device/visible.h"

enum { PH_UUID_TEXT = 48 };

static inline bool ph_device_exists(int device) { return device >= 0 && device < ph_visible_count(); }

int ph_device_usable(void); /* CUDA_OK, or cudaErrorInitializationError in a child that a rank forked */
int ph_device_attr(int attribute, int device, int *value);
/* Of a GPU, by its number on the server. */
int ph_device_of_pci(const char *text); /* -1: there is no such GPU */
int ph_device_pci_bus(int gpu);
void ph_device_pci(int gpu, char *text, size_t capacity);
void ph_device_uuid(int gpu, unsigned char uuid[16]);
void ph_device_uuid_text(int gpu, char text[PH_UUID_TEXT]);

/* A device has a context once it has been used. */
void ph_context_use(int device);
bool ph_context_used(int device);

int ph_peer_enable(int from, int to, unsigned flags);
int ph_peer_disable(int from, int to);

#endif
