/*
 * memory/: the device address space (memory), virtual memory management (vmm), managed memory (managed), memory of
 * other processes (shared), what all processes of a server hold of a GPU (server_memory). Comes in: calls of the API
 * folders. Goes out: addresses.
 */
#ifndef PHANTORA_MEMORY_H
#define PHANTORA_MEMORY_H

#include "core/base.h"

enum { PH_PAGE = 2 << 20 };

extern struct ph_memory_map {
    unsigned char *base;
    size_t nbytes, slice_nbytes, capacity;
    unsigned char *mapped_area; /* addresses for virtual memory management */
    size_t mapped_nbytes;
} ph_mem;

int ph_memory_reserve(void);
/* Return a cudaError_t. */
int ph_device_alloc(int device, size_t nbytes, void **out);
int ph_device_free(void *p);
bool ph_is_device_pointer(const void *p);
int ph_memory_device_of(const void *p); /* -1: not device memory */
int ph_memory_range_of(const void *p, void **start, size_t *nbytes);
/* Returns the memory of a GPU of the server, by its number there, with all processes together. Called with no lock:
 * it may wait for virtual time. */
void ph_memory_info(int gpu, size_t *free_nbytes, size_t *total_nbytes);
/* Take or give back capacity without addresses, for physical memory of vmm.c. */
int ph_memory_take(int device, size_t nbytes);
void ph_memory_give(int device, size_t nbytes);
uint64_t ph_memory_used(int device);
uint64_t ph_memory_peak(int device);
/* Memory for variables of modules: part of what the context takes, never freed. */
void *ph_memory_static(int device, size_t nbytes);
void ph_memory_drop_pages(void *start, size_t nbytes);
/* The bytes of dropped pages are gone; set by data/. */
extern void (*ph_pages_dropped)(const void *start, size_t nbytes);

#endif
