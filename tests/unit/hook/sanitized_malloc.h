/*
 * AddressSanitizer's allocator for a program whose threads fork. That of GCC 12 does not take its own locks before a
 * fork, as glibc's does: a child waits for ever if another thread was in malloc(). Here one lock is around all of it,
 * and a fork takes it after the locks of everyone whose constructors run later.
 */
#ifndef SANITIZED_MALLOC_H
#define SANITIZED_MALLOC_H
#ifdef __SANITIZE_ADDRESS__

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static pthread_mutex_t allocator = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool ready; /* not while the libraries are being loaded, by one thread */

static void lock_allocator(void) {
    if (ready) pthread_mutex_lock(&allocator);
}
static void unlock_allocator(void) {
    if (ready) pthread_mutex_unlock(&allocator);
}
static void new_allocator_lock(void) {
    allocator = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* the owner's number is the parent's */
}

#define LOCKED(type, name, parameters, ...)                                                                            \
    extern type __interceptor_##name parameters;                                                                       \
    type name parameters {                                                                                             \
        lock_allocator();                                                                                              \
        type made = __interceptor_##name(__VA_ARGS__);                                                                 \
        unlock_allocator();                                                                                            \
        return made;                                                                                                   \
    }

LOCKED(void *, malloc, (size_t nbytes), nbytes)
LOCKED(void *, calloc, (size_t n, size_t nbytes), n, nbytes)
LOCKED(void *, realloc, (void *p, size_t nbytes), p, nbytes)
LOCKED(void *, reallocarray, (void *p, size_t n, size_t nbytes), p, n, nbytes)
LOCKED(void *, memalign, (size_t alignment, size_t nbytes), alignment, nbytes)
LOCKED(void *, aligned_alloc, (size_t alignment, size_t nbytes), alignment, nbytes)
LOCKED(int, posix_memalign, (void **p, size_t alignment, size_t nbytes), p, alignment, nbytes)
LOCKED(char *, strdup, (const char *text), text)

extern void __interceptor_free(void *p);
void free(void *p) {
    lock_allocator();
    __interceptor_free(p);
    unlock_allocator();
}

static void watch_forks(void) {
    pthread_atfork(lock_allocator, unlock_allocator, new_allocator_lock);
    ready = true;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = watch_forks;

#endif
#endif
