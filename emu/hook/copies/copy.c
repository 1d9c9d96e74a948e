/*
 * Copies and sets: their time on the stream, their bytes in the data engine, and where the host waits for them.
 *
 * When the host waits is CUDA's "API synchronization behavior". A synchronous copy waits, unless it is from device to
 * device. A copy from host to host always waits. An asynchronous copy between host and device waits only for pageable
 * memory. Data from pageable memory goes through a staging buffer: a synchronous copy waits for the stream before it is
 * staged and not afterwards; an asynchronous one waits only if the buffer is too small (an H100 with driver 580 took
 * 2 MiB without waiting, and waited for the stream with 3 MiB). Staging takes the host as long as the copy.
 */
#include "copies/copy.h"
#include "channel/channel.h"
#include "core/config.h"
#include "cuda/types.h"
#include "core/hash.h"
#include "threads/host.h"
#include "op_stream/history.h"
#include "op_stream/warn.h"
#include "costs/signature.h"
#include "data/data.h"
#include "graphs/capture.h"
#include "memory/pinned.h"
#include "memory/memory.h"
#include "memory/vmm.h"
#include "kernels/peers.h"
#include "threads/thread.h"
#include "streams/launch.h"
#include "streams/wait.h"

#include <sys/mman.h>

/* The staging of copies up to STAGED_BY_CALL bytes is part of the call's cost. */
enum { STAGED_BY_CALL = 64 << 10, STAGING_NBYTES = 2 << 20 };

typedef struct copy_key {
    uint64_t nbytes;
    uint32_t direction, pinned;
} copy_key;

_Static_assert(COPY_H2H == (int)PH_COPY_H2H && COPY_H2D == (int)PH_COPY_H2D && COPY_D2H == (int)PH_COPY_D2H &&
                   COPY_D2D == (int)PH_COPY_D2D,
               "a signature's directions begin with the numbers of cudaMemcpyKind");

static size_t describe_copy(const void *what, char *text, size_t capacity) {
    const copy_key *key = what;
    ph_signature_copy signature = {
        .direction = key->direction, .nbytes = key->nbytes, .memory = key->pinned ? PH_PINNED : PH_PAGEABLE};
    return ph_format_copy(&signature, text, capacity);
}

static const ph_cost *copy_cost(int direction, size_t nbytes, bool pinned) {
    copy_key key = {.nbytes = nbytes, .direction = (uint32_t)direction, .pinned = pinned};
    return ph_cost_of(ph_hash(0xc0b1, &key, sizeof key), describe_copy, &key);
}

static size_t describe_set(const void *what, char *text, size_t capacity) {
    ph_signature_memset signature = {.nbytes = *(const uint64_t *)what};
    return ph_format_memset(&signature, text, capacity);
}

static const ph_cost *set_cost(uint64_t nbytes) {
    return ph_cost_of(ph_hash(0x5e70, &nbytes, sizeof nbytes), describe_set, &nbytes);
}

typedef struct route {
    int direction;
    bool pinned;
} route;

/* Memory of another process is that of another GPU. */
static bool foreign(const void *p) {
    ph_shared identity;
    return ph_vmm_shared_of(p, &identity) && ph_shared_foreign(&identity);
}

static int find_route(route *out, const void *dst, const void *src, int kind) {
    bool to_device = ph_is_device_pointer(dst), from_device = ph_is_device_pointer(src);
    int actual = from_device ? (to_device ? COPY_D2D : COPY_D2H) : (to_device ? COPY_H2D : COPY_H2H);
    if (kind < COPY_H2H || kind > COPY_DEFAULT) return CUDA_INVALID_COPY_DIRECTION;
    if (kind != COPY_DEFAULT && kind != actual && !(ph_host_pinned(dst) || ph_host_pinned(src)))
        return CUDA_INVALID_VALUE;
    out->direction = actual;
    out->pinned = true;
    if (actual == COPY_H2D)
        out->pinned = ph_host_pinned(src);
    else if (actual == COPY_D2H)
        out->pinned = ph_host_pinned(dst);
    else if (actual == COPY_D2D && (ph_memory_device_of(dst) != ph_memory_device_of(src) ||
                                    (UNLIKELY(ph_vmm_imports) && (foreign(dst) || foreign(src)))))
        out->direction = PH_COPY_P2P;
    return CUDA_OK;
}

static bool staged(const route *way) { return way->direction == COPY_H2D && !way->pinned; }

static bool waits(const route *way, size_t nbytes, bool async) {
    switch (way->direction) {
    case COPY_H2D:
        return way->pinned ? !async : nbytes > STAGING_NBYTES;
    case COPY_D2H:
        return !way->pinned || !async;
    default:
        return way->direction == COPY_H2H;
    }
}

/* Prepares a copy, before it is given to the stream. */
static int begin(route *way, void *dst, const void *src, int kind, ph_stream *stream, bool async) {
    int status = ph_stream_usable(stream);
    if (status == CUDA_OK) status = find_route(way, dst, src, kind);
    if (status) return status;
    if (UNLIKELY(ph_stream_capturing(stream)) && !async) {
        ph_capture_invalidate(stream);
        return CUDA_CAPTURE_UNSUPPORTED;
    }
    if (staged(way) && !async) ph_stream_wait(stream);
    return CUDA_OK;
}

/* The host copies to a buffer of the driver's, or from one. */
static void host_copies(const ph_cost *cost) {
    if (UNLIKELY(ph_cfg.history) && !ph_uncounted()) {
        ph_record_lock();
        ph_history_wait(cost->key);
        ph_record_unlock();
    }
    ph_host_advance(cost->solo_ns);
}

/* Ends a copy that has been given to the stream: the host waits, if it does. */
static void finish(const route *way, size_t nbytes, const ph_cost *cost, ph_stream *stream, bool async) {
    if (waits(way, nbytes, async))
        ph_stream_wait(stream);
    else if (staged(way) && nbytes > STAGED_BY_CALL)
        host_copies(cost);
}

/*
 * For a table that an op copies to the device for its own kernel (see kernel_data in nvtx.c). Kernels are not executed,
 * so nothing reads the copy, and the program does not read the source again. Neither may keep pages: there is a table
 * for each layer and step, and PyTorch's cache of pinned memory keeps the sources.
 */
static void drop_table(void *dst, const void *src, size_t nbytes, bool pinned) {
    ph_data_overwrite(dst, nbytes);
    uintptr_t page = 4096, begin = ((uintptr_t)src + page - 1) & ~(page - 1),
              end = ((uintptr_t)src + nbytes) & ~(page - 1);
    if (pinned && begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* malloc gives what is larger back to the kernel when it is freed, so that every table has to touch new pages. */
static void charge_table(size_t nbytes) {
    uint64_t kib = (nbytes + 1023) / 1024;
    ph_host_work(PH_WORK_TABLE, kib);
    if (nbytes > ph_cfg.kept_table_nbytes) ph_host_work(PH_WORK_FRESH_TABLE, kib);
}

int ph_copy(void *dst, const void *src, size_t nbytes, int kind, ph_stream *stream, bool async) {
    route way;
    if (nbytes == 0) return ph_stream_usable(stream);
    int status = begin(&way, dst, src, kind, stream, async);
    if (status) return status;
    const ph_cost *cost = copy_cost(way.direction, nbytes, way.pinned);
    if (UNLIKELY(ph_stream_capturing(stream)) && ph_capture_copy(stream, cost, dst, src, nbytes)) return CUDA_OK;
    ph_launch(stream, cost);
    if (way.direction == COPY_H2D && ph_self()->kernel_data_depth) {
        charge_table(nbytes);
        drop_table(dst, src, nbytes, way.pinned);
    } else
        ph_data_copy(dst, src, nbytes);
    if (UNLIKELY(ph_vmm_imports) && way.direction == COPY_H2D) ph_peer_functions.table(dst, src, nbytes);
    finish(&way, nbytes, cost, stream, async);
    return CUDA_OK;
}

int ph_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind,
               ph_stream *stream, bool async) {
    if (width > dst_pitch || width > src_pitch) return CUDA_INVALID_PITCH;
    size_t nbytes = width * height;
    if ((width == dst_pitch && width == src_pitch) || nbytes == 0)
        return ph_copy(dst, src, nbytes, kind, stream, async);
    route way;
    int status = begin(&way, dst, src, kind, stream, async);
    if (status) return status;
    if (ph_stream_capturing(stream)) return ph_refuse("a 2D copy in a stream capture", CUDA_CAPTURE_UNSUPPORTED);
    const ph_cost *cost = copy_cost(way.direction, nbytes, way.pinned);
    ph_launch(stream, cost);
    if (nbytes > ph_cfg.data_limit_nbytes)
        ph_data_overwrite(dst, dst_pitch * height);
    else
        for (size_t row = 0; row < height; row++)
            ph_data_copy((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch, width);
    finish(&way, nbytes, cost, stream, async);
    return CUDA_OK;
}

int ph_set_time(size_t nbytes, ph_stream *stream) {
    int status = ph_stream_usable(stream);
    if (status == CUDA_OK && nbytes) ph_launch(stream, set_cost(nbytes));
    return status;
}

int ph_set(void *dst, int value, size_t nbytes, ph_stream *stream, bool async) {
    int status = ph_stream_usable(stream);
    if (status || nbytes == 0) return status;
    const ph_cost *cost = set_cost(nbytes);
    if (UNLIKELY(ph_stream_capturing(stream)) && ph_capture_set(stream, cost, dst, value, nbytes)) return CUDA_OK;
    ph_launch(stream, cost);
    ph_data_set(dst, value, nbytes);
    /* the host does not wait for a synchronous set of device memory, but for one of pinned host memory */
    if (!async && !ph_is_device_pointer(dst)) ph_stream_wait(stream);
    return CUDA_OK;
}
