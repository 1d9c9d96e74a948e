/* Device memory: capacity, places, pools, virtual memory, pinned memory. Devices of 1 GiB, 64 MiB of them reserved. */
#include "check.h"

extern int nvmlInit_v2(void), nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
extern int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, void *);

#include <pthread.h>

#define MIB ((size_t)1 << 20)

static size_t free_nbytes(void) {
    size_t available, total;
    EQUAL(cudaMemGetInfo(&available, &total), 0);
    EQUAL(total, 1024 * MIB);
    return available;
}

static void capacity(void) {
    void *a, *b, *c;
    EQUAL(free_nbytes(), 960 * MIB);
    EQUAL(cudaMalloc(&a, 959 * MIB), 0); /* in pages of 2 MiB */
    EQUAL(free_nbytes(), 0);
    b = &c;
    EQUAL(cudaMalloc(&b, 1), 2);
    CHECK(b == NULL);
    EQUAL(cudaGetLastError(), 2);
    EQUAL(cudaGetLastError(), 0);
    EQUAL(cudaFree(a), 0);
    EQUAL(cudaFree(a), 1);
    EQUAL(cudaFree(NULL), 0);
    EQUAL(cudaMalloc(&c, 5ull << 40), 2);
    EQUAL(cudaMalloc(&c, 0), 0);
    CHECK(c == NULL);
    EQUAL(free_nbytes(), 960 * MIB);
    EQUAL(phantora_device_peak(0), 960 * MIB);
    EQUAL(phantora_device_peak(1), 0);
    (void)cudaGetLastError();
}

static void places(void) {
    char *a, *b, *c, *d;
    EQUAL(cudaMalloc((void **)&a, 4 * MIB), 0);
    EQUAL(cudaMalloc((void **)&b, 3 * MIB), 0);
    EQUAL(b - a, 4 * MIB);
    EQUAL(cudaMalloc((void **)&c, 2 * MIB), 0);
    EQUAL(c - b, 4 * MIB);
    EQUAL(cudaFree(b), 0);
    EQUAL(cudaMalloc((void **)&d, 2 * MIB), 0); /* the lowest hole */
    CHECK(d == b);
    EQUAL(cudaFree(a) | cudaFree(c) | cudaFree(d), 0);
    /* addresses are reserved 32 MiB at a time, each below the last, and filled from their low end */
    EQUAL(cudaMalloc((void **)&a, 20 * MIB) | cudaMalloc((void **)&b, 20 * MIB), 0);
    EQUAL(a - b, 32 * MIB);
    EQUAL(cudaMalloc((void **)&c, 12 * MIB) | cudaMalloc((void **)&d, 40 * MIB), 0);
    EQUAL(c - b, 20 * MIB);
    EQUAL(b - d, 64 * MIB);
    EQUAL(cudaFree(d), 0);
    EQUAL(cudaMalloc((void **)&d, 2 * MIB), 0);
    EQUAL(d - a, 20 * MIB); /* what is free below is given back */
    EQUAL(cudaFree(a) | cudaFree(b) | cudaFree(c) | cudaFree(d), 0);
    /* fragments do not eat capacity */
    void *many[240];
    for (int i = 0; i < 240; i++) EQUAL(cudaMalloc(&many[i], 4 * MIB), 0);
    for (int i = 0; i < 240; i += 2) EQUAL(cudaFree(many[i]), 0);
    EQUAL(cudaMalloc((void **)&a, 480 * MIB), 0);
    EQUAL(free_nbytes(), 0);
    for (int i = 1; i < 240; i += 2) EQUAL(cudaFree(many[i]), 0);
    EQUAL(cudaFree(a), 0);
}

static void small(void) {
    enum { N = 10000 };
    static char *p[N];
    size_t before = free_nbytes();
    for (int i = 0; i < N; i++) {
        EQUAL(cudaMalloc((void **)&p[i], (size_t)(i % 5000) + 1), 0);
        EQUAL((uintptr_t)p[i] % 512, 0);
        memset(p[i], i, (size_t)(i % 5000) + 1);
    }
    for (int i = 0; i < N; i++) CHECK(p[i][0] == (char)i && p[i][i % 5000] == (char)i); /* no overlap */
    CHECK(free_nbytes() < before && (before - free_nbytes()) % (2 * MIB) == 0);
    uint64_t start;
    size_t nbytes;
    EQUAL(cuMemGetAddressRange_v2(&start, &nbytes, (uintptr_t)p[4999] + 700), 0);
    EQUAL(start, (uintptr_t)p[4999]);
    EQUAL(nbytes, 5120);
    EQUAL(cudaFree(p[4999] + 512), 1); /* within an allocation, not its start */
    for (int i = 0; i < N; i++) EQUAL(cudaFree(p[(i * 7919) % N]), 0);
    EQUAL(free_nbytes(), before);
    (void)cudaGetLastError();
}

static void freed_pages_read_zero(void) {
    char *p;
    EQUAL(cudaMalloc((void **)&p, 2 * MIB), 0);
    memset(p, 1, 2 * MIB);
    EQUAL(cudaFree(p), 0);
    EQUAL(p[12345], 0);
}

static void devices_apart(void) {
    char *a, *b;
    EQUAL(cudaMalloc((void **)&a, 900 * MIB), 0);
    EQUAL(cudaSetDevice(1), 0);
    EQUAL(cudaMalloc((void **)&b, 900 * MIB), 0);
    struct cudaPointerAttributes found;
    EQUAL(cudaPointerGetAttributes(&found, b + 899 * MIB), 0);
    EQUAL(found.type, MEMORY_DEVICE);
    EQUAL(found.device, 1);
    EQUAL(cudaSetDevice(2), 101);
    EQUAL(cudaSetDevice(0), 0);
    EQUAL(cudaFree(a) | cudaFree(b), 0);
    CHECK((uint64_t)(uintptr_t)b >= phantora_device_base());
    CHECK((uint64_t)(uintptr_t)b < phantora_device_base() + phantora_device_nbytes());
    (void)cudaGetLastError();
}

/* The process's memory as nvidia-smi and PyTorch's error show it: also that of its context. */
static void process_memory(void) {
    struct {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
    } self;
    unsigned count = 1;
    size_t available, total;
    void *gpu;
    EQUAL(nvmlInit_v2() | nvmlDeviceGetHandleByIndex_v2(0, &gpu), 0);
    EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, &self), 0);
    EQUAL(cudaMemGetInfo(&available, &total), 0);
    EQUAL(self.used, total - available);
}

static void pools(void) {
    void *pool, *p;
    uint64_t used, high;
    EQUAL(cudaDeviceGetDefaultMemPool(&pool, 0), 0);
    EQUAL(cudaMallocAsync(&p, 10 * MIB, NULL), 0);
    EQUAL(cudaMemPoolGetAttribute(pool, 7, &used), 0);
    EQUAL(used, 10 * MIB);
    EQUAL(cudaFreeAsync(p, NULL), 0);
    EQUAL(cudaMemPoolGetAttribute(pool, 7, &used) | cudaMemPoolGetAttribute(pool, 8, &high), 0);
    EQUAL(used, 0);
    EQUAL(high, 10 * MIB);
    EQUAL(cudaMallocAsync(&p, 2000 * MIB, NULL), 2);
    (void)cudaGetLastError();

    /* With a threshold a pool keeps what it has reserved, 32 MiB at a time, until it is trimmed. */
    uint64_t all = UINT64_MAX, reserved;
    size_t before, after, total;
    void *small;
    EQUAL(cudaMemGetInfo(&before, &total), 0);
    EQUAL(cudaMemPoolSetAttribute(pool, 4, &all), 0);
    EQUAL(cudaMallocAsync(&p, 40 * MIB, NULL) | cudaMallocAsync(&small, 2 * MIB, NULL), 0);
    EQUAL(cudaMemPoolGetAttribute(pool, 5, &reserved), 0);
    EQUAL(reserved, 64 * MIB);
    EQUAL(cudaFreeAsync(p, NULL), 0);
    EQUAL(cudaMemGetInfo(&after, &total), 0);
    EQUAL(before - after, 64 * MIB);
    EQUAL(cudaMallocAsync(&p, 950 * MIB, NULL) | cudaFreeAsync(p, NULL), 0); /* it fits with what is kept */
    EQUAL(cudaMemPoolGetAttribute(pool, 5, &reserved), 0);
    EQUAL(reserved, 960 * MIB);
    EQUAL(cudaMemPoolTrimTo(pool, 0), 0);
    EQUAL(cudaMemPoolGetAttribute(pool, 5, &reserved) | cudaMemPoolGetAttribute(pool, 6, &high), 0);
    EQUAL(reserved, 2 * MIB);
    EQUAL(high, 960 * MIB);
    EQUAL(cudaFreeAsync(small, NULL) | cudaMemPoolTrimTo(pool, 0), 0);
    EQUAL(cudaMemGetInfo(&after, &total), 0);
    EQUAL(after, before);
    all = 0;
    EQUAL(cudaMemPoolSetAttribute(pool, 4, &all), 0);
}

static uint64_t pool_attribute(void *pool, int attribute) {
    uint64_t value;
    EQUAL(cudaMemPoolGetAttribute(pool, attribute, &value), 0);
    return value;
}

/* What is freed goes back to the pool that it is of, whichever is the current one. */
static void pools_of_the_program(void) {
    struct cudaMemPoolProps properties = {.allocType = 1, .location = {1, 0}, .maxSize = 100 * MIB};
    void *own, *standard, *current, *a, *b, *c;
    size_t before = free_nbytes();
    uint64_t all = UINT64_MAX;
    EQUAL(cudaDeviceGetDefaultMemPool(&standard, 0), 0);
    EQUAL(cudaMemPoolCreate(&own, &properties) | cudaMemPoolSetAttribute(own, 4, &all), 0);
    EQUAL(cudaMallocFromPoolAsync(&a, 10 * MIB, own, NULL) | cudaMallocAsync(&b, 4 * MIB, NULL), 0);
    EQUAL(pool_attribute(own, 7), 10 * MIB);
    EQUAL(pool_attribute(standard, 7), 4 * MIB);
    EQUAL(cudaFreeAsync(a, NULL), 0);
    EQUAL(pool_attribute(own, 7), 0);
    EQUAL(pool_attribute(own, 5), 32 * MIB); /* kept, as its threshold says */
    EQUAL(pool_attribute(standard, 7), 4 * MIB);

    EQUAL(cudaDeviceSetMemPool(0, own) | cudaDeviceGetMemPool(&current, 0), 0);
    EQUAL(current == own, 1);
    EQUAL(cudaMallocAsync(&a, 20 * MIB, NULL) | cudaMallocAsync(&c, 2 * MIB, NULL), 0);
    EQUAL(pool_attribute(own, 7), 22 * MIB);
    EQUAL(cudaMallocAsync(&current, 90 * MIB, NULL), 2); /* more than the pool may have */
    EQUAL(cudaFree(a) | cudaFreeAsync(b, NULL), 0);
    EQUAL(pool_attribute(own, 7), 2 * MIB);
    EQUAL(pool_attribute(standard, 7), 0);

    /* A pool that is destroyed lasts until all of it is freed. */
    EQUAL(cudaMemPoolDestroy(standard), 1);
    EQUAL(cudaMemPoolDestroy(own) | cudaDeviceGetMemPool(&current, 0), 0);
    EQUAL(current == standard, 1);
    EQUAL(cudaMallocFromPoolAsync(&a, MIB, own, NULL), 400);
    EQUAL(before - free_nbytes(), 32 * MIB);
    EQUAL(cudaFreeAsync(c, NULL), 0);
    EQUAL(free_nbytes(), before);
    properties.location.id = 7;
    EQUAL(cudaMemPoolCreate(&own, &properties), 1);
    (void)cudaGetLastError();
}

static void expandable_segments(void) {
    struct CUmemAllocationProp kind = {.type = 1, .location = {1, 0}};
    struct CUmemAccessDesc access = {.location = {1, 0}, .flags = 3};
    size_t granularity, before = free_nbytes();
    EQUAL(cuMemGetAllocationGranularity(&granularity, &kind, 0), 0);
    EQUAL(granularity, 2 * MIB);
    uint64_t space, handles[3], other;
    EQUAL(cuMemAddressReserve(&space, 1160 * MIB, 0, 0, 0), 0);
    EQUAL(cuMemAddressReserve(&other, 1160 * MIB, 0, 0, 0), 0);
    EQUAL(other - space, 1160 * MIB);
    EQUAL(free_nbytes(), before);
    EQUAL(cuMemCreate(&handles[0], 3 * MIB, &kind, 0), 1);
    EQUAL(cuMemCreate(&handles[0], 2000 * MIB, &kind, 0), 2);
    for (int i = 0; i < 3; i++) {
        EQUAL(cuMemCreate(&handles[i], 20 * MIB, &kind, 0), 0);
        EQUAL(cuMemMap(space + (uint64_t)i * 20 * MIB, 20 * MIB, 0, handles[i], 0), 0);
    }
    EQUAL(cuMemSetAccess(space, 60 * MIB, &access, 1), 0);
    EQUAL(before - free_nbytes(), 60 * MIB);
    memset((void *)(uintptr_t)(space + 39 * MIB), 5, 2 * MIB);
    int ordinal;
    EQUAL(cuPointerGetAttribute(&ordinal, 9, space + 59 * MIB), 0);
    EQUAL(ordinal, 0);
    EQUAL(cuPointerGetAttribute(&ordinal, 9, space + 60 * MIB), 1);
    EQUAL(cuMemMap(space, 20 * MIB, 0, handles[0], 0), 1);
    for (int i = 0; i < 3; i++) EQUAL(cuMemRelease(handles[i]), 0); /* stays as long as it is mapped */
    EQUAL(before - free_nbytes(), 60 * MIB);
    EQUAL(cuMemUnmap(space + 10 * MIB, 10 * MIB), 1);
    EQUAL(cuMemUnmap(space + 20 * MIB, 40 * MIB), 0);
    EQUAL(before - free_nbytes(), 20 * MIB);
    EQUAL(*(char *)(uintptr_t)(space + 40 * MIB), 0);
    EQUAL(cuMemUnmap(space, 20 * MIB), 0);
    EQUAL(free_nbytes(), before);
    EQUAL(cuMemAddressFree(space, 4096), 1);
    EQUAL(cuMemAddressFree(space, 1160 * MIB) | cuMemAddressFree(other, 1160 * MIB), 0);
}

static void pinned(void) {
    char *p, own[64];
    struct cudaPointerAttributes found;
    EQUAL(cudaHostAlloc((void **)&p, 1000, 0), 0);
    EQUAL(cudaPointerGetAttributes(&found, p + 999), 0);
    EQUAL(found.type, MEMORY_HOST);
    EQUAL(cudaPointerGetAttributes(&found, own), 0);
    EQUAL(found.type, MEMORY_UNREGISTERED);
    CHECK(found.devicePointer == NULL);
    EQUAL(cudaHostRegister(own, sizeof own, 0), 0);
    EQUAL(cudaHostRegister(own + 8, 8, 0), 712);
    EQUAL(cudaPointerGetAttributes(&found, own), 0);
    EQUAL(found.type, MEMORY_HOST);
    EQUAL(cudaHostUnregister(own), 0);
    EQUAL(cudaHostUnregister(own), 713);
    EQUAL(cudaFreeHost(p), 0);
    EQUAL(cudaFreeHost(p), 1);
    (void)cudaGetLastError();
}

static void patterns_and_rows(void) {
    uint32_t *words, back[4];
    EQUAL(cudaMalloc((void **)&words, 4096), 0);
    EQUAL(cuMemsetD32Async((uintptr_t)words, 0x01020304, 3, NULL), 0);
    EQUAL(cudaMemcpy(back, words, sizeof back, COPY_D2H), 0);
    EQUAL(back[2], 0x01020304);
    EQUAL(back[3], 0);
    char rows[4][8], packed[4][3];
    memset(rows, 9, sizeof rows);
    EQUAL(cudaMemcpy2DAsync(words, 16, rows, 8, 3, 4, COPY_H2D, NULL), 0);
    EQUAL(cudaMemcpy2DAsync(packed, 3, words, 16, 3, 4, COPY_D2H, NULL), 0);
    EQUAL(cudaStreamSynchronize(NULL), 0);
    EQUAL(packed[3][2], 9);
    EQUAL(((char *)words)[16 * 3 + 3], 0);
    EQUAL(cudaMemcpy2DAsync(words, 2, rows, 8, 3, 4, COPY_H2D, NULL), 12);
    EQUAL(cudaFree(words), 0);
    (void)cudaGetLastError();
}

enum { PAGE = 4096, TURNS = 80 };

/* What a thread stores in memory that another thread has just freed stays there. */
static void *allocate_and_store(void *unused) {
    for (int i = 0; i < TURNS; i++) {
        char *p;
        EQUAL(cudaMalloc((void **)&p, 4 * MIB), 0);
        for (size_t at = 0; at < 4 * MIB; at += PAGE) p[at] = 1;
        for (size_t at = 0; at < 4 * MIB; at += PAGE) EQUAL(p[at], 1);
        EQUAL(cudaFree(p), 0);
    }
    return unused;
}

/* Addresses that another thread has just unmapped are mapped again, and keep what is stored there. */
static uint64_t range;
static void *map_and_store(void *unused) {
    const struct CUmemAllocationProp properties = {.type = 1, .location = {.type = 1, .id = 0}};
    uint64_t handle;
    EQUAL(cuMemCreate(&handle, 4 * MIB, &properties, 0), 0);
    for (int i = 0; i < TURNS;) {
        if (cuMemMap(range, 4 * MIB, 0, handle, 0) != 0) continue;
        char *p = (char *)range;
        for (size_t at = 0; at < 4 * MIB; at += PAGE) p[at] = 1;
        for (size_t at = 0; at < 4 * MIB; at += PAGE) EQUAL(p[at], 1);
        EQUAL(cuMemUnmap(range, 4 * MIB), 0);
        i++;
    }
    EQUAL(cuMemRelease(handle), 0);
    return unused;
}

static void side_by_side(void *(*run)(void *)) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) EQUAL(pthread_create(&threads[i], NULL, run, NULL), 0);
    for (int i = 0; i < 2; i++) EQUAL(pthread_join(threads[i], NULL), 0);
}

static void concurrent_frees(void) {
    side_by_side(allocate_and_store);
    EQUAL(cuMemAddressReserve(&range, 4 * MIB, 0, 0, 0), 0);
    side_by_side(map_and_store);
    EQUAL(cuMemAddressFree(range, 4 * MIB), 0);
}

int main(int argc, char **argv) {
    EQUAL(argc, 2);
    EQUAL(phantora_load(argv[1]), 0);
    capacity();
    places();
    small();
    freed_pages_read_zero();
    devices_apart();
    pools();
    pools_of_the_program();
    process_memory();
    expandable_segments();
    pinned();
    patterns_and_rows();
    concurrent_frees();
    return 0;
}
