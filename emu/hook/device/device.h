/*
 * device/: what a device is: its attributes, PCI address and UUID, its context and its peers; and whether this process
 * may use it (device); which GPUs a process sees (visible); versions of the real libraries (versions). Comes in: the
 * device file's values (core/config.h). Goes out: answers to the API folders.
 */
#ifndef PHANTORA_DEVICE_H
#define PHANTORA_DEVICE_H

#include "core/config.h"

enum { PH_UUID_TEXT = 48 };

/* Devices are numbered in each process by CUDA_VISIBLE_DEVICES; GPUs are numbered on their server (visible.c). */
int ph_visible_count(void);
int ph_visible_gpu(int device); /* the GPU that the process calls by this number */
int ph_visible_as(int gpu);     /* the opposite; -1 if the process does not see it */
/* The environment is read again when the process next asks. */
void ph_visible_forget(void);

static inline bool ph_device_exists(int device) { return device >= 0 && device < ph_visible_count(); }

int ph_device_usable(void);  /* CUDA_OK, or cudaErrorInitializationError in a child that a rank forked */
void ph_device_forget(void); /* what has been initialised was for the emulation, not for a rank */
/* Tells, in a child that a rank has forked, whether it may use the device, as the rank had not initialised CUDA.
 * Then it joins. */
bool ph_device_left_to_child(void);
int ph_device_attr(int attribute, int device, int *value);
/* The names of a GPU, by its number on the server. */
int ph_device_of_pci(const char *text); /* -1: there is no such GPU */
int ph_device_pci_bus(int gpu);
void ph_device_pci(int gpu, char *text, size_t capacity);
void ph_device_uuid(int gpu, unsigned char uuid[16]);
void ph_device_uuid_text(int gpu, char text[PH_UUID_TEXT]);

/* The program uses this device: a process that is not a rank yet may become one now. */
void ph_join(int device);
/* A device has a context once it has been used. */
void ph_context_use(int device);
bool ph_context_used(int device);

int ph_peer_enable(int from, int to, unsigned flags);
int ph_peer_disable(int from, int to);

#endif
