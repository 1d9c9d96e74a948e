/* See server_memory.h. A process whose table is full, or that came when all places were taken, is not counted. */
#define _GNU_SOURCE
#include "memory/server_memory.h"
#include "channel/channel.h"
#include "core/config.h"
#include "core/run.h"
#include "device/device.h"
#include "memory/memory.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "threads/host.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Sizes of the table. Among a server's places those of its ranks' first processes come first, then those of others. */
enum { SERVERS = 4096, RANKS = PH_MAX_DEVICES, PROCESSES = RANKS + 64, CHANGES = 32, NOBODY = -1 };

typedef struct change {
    uint64_t at_ns, nbytes; /* from then on the process holds so much */
} change;

typedef struct history { /* of one GPU, written by one thread at a time */
    atomic_uint n;       /* changes so far; the last CHANGES of them are kept */
    change changes[CHANGES];
} history;

typedef struct peaks { /* of one GPU, written by one process */
    atomic_uint_fast64_t allocated, reserved, taken;
} peaks;

typedef struct server {
    atomic_uint others;           /* places that other processes have taken */
    atomic_uint seats[PROCESSES]; /* 1 + the rank's own GPU; 0: nobody is there */
    atomic_bool ended[PROCESSES]; /* nobody but those who look back needs the place */
    atomic_uint children[RANKS];  /* processes besides its own that have become this rank */
    history of[PROCESSES][PH_MAX_DEVICES];
    peaks most[PROCESSES][PH_MAX_DEVICES];
} server;

static struct {
    server *servers; /* takes memory where it is touched */
    atomic_int place;
    atomic_flag telling;
    atomic_bool visited[PH_MAX_DEVICES]; /* GPUs of other ranks' numbers that the process has been told to use */
    atomic_uint_fast64_t told[PH_MAX_DEVICES];
} table = {.place = NOBODY, .telling = ATOMIC_FLAG_INIT};

void ph_server_memory_make(void) {
    void *at =
        mmap(NULL, SERVERS * sizeof(server), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return;
    madvise(at, SERVERS * sizeof(server), MADV_DONTDUMP);
    table.servers = at;
}

static server *own_server(void) {
    bool counts = table.servers && ph_run.started && !ph_run.finished && ph_run.server < SERVERS;
    return counts ? &table.servers[ph_run.server] : NULL;
}

/* The server of a process that is no rank: it holds nothing, and has no instant of virtual time of its own. */
static server *server_without_rank(void) {
    bool counts = table.servers && !ph_run.started && !ph_run.orphan && ph_run.server < SERVERS;
    return counts ? &table.servers[ph_run.server] : NULL;
}

/* Does it matter to others what the process holds? */
static bool has_neighbours(server *all) { return ph_run.world_size > 1 || atomic_load(&all->others); }

/* Says whose process this is. One that a rank has started is a child of the rank whose GPU it uses, if that rank has a
 * process of its own; else it is this rank's process. */
static void number_child(server *all) {
    ph_run.child = 0;
    for (int place = 0; ph_run.parent && place < PROCESSES; place++) {
        if (atomic_load(&all->seats[place]) != ph_run.local_rank + 1) continue;
        ph_run.child = 1 + atomic_fetch_add(&all->children[ph_run.local_rank], 1);
        return;
    }
}

static unsigned free_place(server *all) {
    if (ph_run.process == 0) return ph_run.local_rank;
    unsigned place = RANKS + atomic_fetch_add(&all->others, 1);
    for (unsigned i = RANKS; place >= PROCESSES && i < PROCESSES; i++)
        if (atomic_exchange(&all->ended[i], false)) place = i;
    return place;
}

void ph_server_memory_join(void) {
    atomic_store(&table.place, NOBODY);
    atomic_flag_clear(&table.telling); /* the process may have been forked while a thread of its parent told */
    server *all = own_server();
    if (!all || ph_run.local_rank >= RANKS) return;
    number_child(all);
    unsigned place = free_place(all);
    if (place >= PROCESSES) return;
    for (int gpu = 0; gpu < PH_MAX_DEVICES; gpu++) {
        if (atomic_load(&all->of[place][gpu].n)) atomic_store(&all->of[place][gpu].n, 0);
        peaks *most = &all->most[place][gpu];
        if (atomic_exchange(&most->taken, 0)) most->allocated = most->reserved = 0;
        atomic_store(&table.told[gpu], 0);
        atomic_store(&table.visited[gpu], false);
    }
    atomic_store(&all->seats[place], ph_run.local_rank + 1);
    atomic_store(&table.place, (int)place);
}

enum { ENDED = -1 }; /* bytes of a process that has ended: no context either */

static void tell(history *to, uint64_t at_ns, uint64_t nbytes) {
    unsigned n = atomic_load_explicit(&to->n, memory_order_relaxed);
    to->changes[n % CHANGES] = (change){at_ns, nbytes};
    atomic_store_explicit(&to->n, n + 1, memory_order_release);
}

/* The rank of that number may never have a process of its own. */
static void tell_visit(int gpu) {
    struct ph_GPU_USED record = {.gpu = (uint32_t)gpu};
    if (gpu != (int)ph_run.local_rank && !atomic_exchange(&table.visited[gpu], true))
        ph_emit_out_of_band(PH_KIND_GPU_USED, &record, sizeof record, NULL, 0);
}

static void raise_to(atomic_uint_fast64_t *peak, uint64_t to) {
    if (atomic_load_explicit(peak, memory_order_relaxed) < to) atomic_store_explicit(peak, to, memory_order_relaxed);
}

void ph_server_memory_peak(int device, uint64_t allocated, uint64_t reserved) {
    int place = atomic_load_explicit(&table.place, memory_order_relaxed);
    server *all = place == NOBODY ? NULL : own_server();
    if (!all) return;
    peaks *most = &all->most[place][ph_visible_gpu(device)];
    raise_to(&most->allocated, allocated);
    raise_to(&most->reserved, reserved);
}

/* Writes, for each GPU of the server that processes of this rank have used, its number, and the most that they had
 * allocated, reserved and taken of it. `to` has room for so many numbers; returns how many there are. Called where
 * no rank is: in the process that hears of a rank's end. */
PH_EXPORT int phantora_memory_at_end(uint32_t number, uint32_t local_rank, uint64_t *to, int room) {
    int n = 0;
    if (!table.servers || number >= SERVERS) return 0;
    server *all = &table.servers[number];
    for (int gpu = 0; gpu < PH_MAX_DEVICES && n + 4 <= room; gpu++) {
        uint64_t found[3] = {0};
        for (int place = 0; place < PROCESSES; place++) {
            if (atomic_load(&all->seats[place]) != local_rank + 1) continue;
            const peaks *one = &all->most[place][gpu];
            uint64_t its[3] = {one->allocated, one->reserved, one->taken};
            for (int i = 0; i < 3; i++) found[i] = found[i] < its[i] ? its[i] : found[i];
        }
        if (!found[2]) continue;
        to[n++] = (uint64_t)gpu;
        for (int i = 0; i < 3; i++) to[n++] = found[i];
    }
    return n;
}

static void tell_taken(int gpu, uint64_t nbytes, bool ended) {
    struct ph_GPU_MEMORY record = {.gpu = (uint32_t)gpu,
                                   .child = ph_run.child,
                                   .parent = ph_run.child ? ph_run.parent : 0,
                                   .ended = ended,
                                   .taken = nbytes};
    ph_emit(PH_KIND_GPU_MEMORY, &record, sizeof record, NULL, 0);
}

void ph_server_memory_leave(void) {
    int place = atomic_load_explicit(&table.place, memory_order_relaxed);
    server *all = place == NOBODY ? NULL : own_server();
    if (!all) return;
    for (int device = 0, count = ph_visible_count(); device < count; device++) {
        int gpu = ph_visible_gpu(device);
        if (!atomic_load(&all->of[place][gpu].n)) continue;
        tell_taken(gpu, 0, true);
        if (has_neighbours(all)) tell(&all->of[place][gpu], ph_clock_estimate(), (uint64_t)ENDED);
    }
    atomic_store(&all->ended[place], true);
    atomic_store(&table.place, NOBODY);
}

/* Returns whether it has told anything. */
static bool tell_changes(server *all, int place) {
    bool told = false;
    for (int device = 0, count = ph_visible_count(); device < count; device++) {
        uint64_t nbytes = ph_memory_used(device);
        if (LIKELY(atomic_load_explicit(&table.told[device], memory_order_relaxed) == nbytes)) continue;
        int gpu = ph_visible_gpu(device);
        raise_to(&all->most[place][gpu].taken, ph_memory_peak(device));
        tell_visit(gpu); /* before the time is asked for: the answer may wait for the other rank */
        uint64_t at_ns = gpu == (int)ph_run.local_rank ? ph_clock_estimate() : ph_clock_within();
        if (atomic_flag_test_and_set(&table.telling)) return false; /* another thread does */
        atomic_store(&table.told[device], nbytes);
        tell(&all->of[place][gpu], at_ns, nbytes);
        tell_taken(gpu, nbytes, false);
        atomic_flag_clear(&table.telling);
        told = true;
    }
    return told;
}

void ph_server_memory_tell(void) {
    int place = atomic_load_explicit(&table.place, memory_order_relaxed);
    server *all = place == NOBODY ? NULL : own_server();
    if (!all || ph_uncounted()) return;
    /* Who has told looks once more: meanwhile another thread may have left a change to it. */
    while (UNLIKELY(tell_changes(all, place))) continue;
}

/* Finds the bytes that the process held at an instant. Returns false if it had never held anything of this GPU until
 * then. */
static bool held_at(const history *of, uint64_t at_ns, uint64_t *nbytes) {
    unsigned n = atomic_load_explicit(&of->n, memory_order_acquire);
    for (unsigned back = 1; back <= n && back <= CHANGES; back++) {
        change one = of->changes[(n - back) % CHANGES];
        if (one.at_ns > at_ns && !(back == CHANGES && n > CHANGES)) continue;
        *nbytes = one.nbytes;
        return one.nbytes != (uint64_t)ENDED;
    }
    return false;
}

uint64_t ph_server_memory_of_others(int gpu) {
    ph_server_memory_tell();
    int place = atomic_load_explicit(&table.place, memory_order_relaxed);
    server *all = own_server(), *seen = all ? NULL : server_without_rank();
    if (gpu < 0 || gpu >= PH_MAX_DEVICES || !(seen || (all && has_neighbours(all)))) return 0;
    /* Who is no rank sees what was told last. */
    uint64_t now_ns = seen ? UINT64_MAX : ph_clock_within(), nbytes, found = 0;
    if (seen) all = seen;
    int contexts = 0;
    bool has_owner = false;
    for (int i = 0; i < PROCESSES; i++) {
        unsigned seat = atomic_load(&all->seats[i]);
        if (!seat) continue;
        bool owner = i < RANKS && (int)seat - 1 == gpu, holds = held_at(&all->of[i][gpu], now_ns, &nbytes);
        has_owner |= owner && holds;
        contexts += holds && !owner;
        if (holds && i != place) found += nbytes;
    }
    /* The memory that no program can have is one context's, the owner's. */
    if (contexts && !has_owner) contexts--;
    return found + (uint64_t)contexts * ph_cfg.context_nbytes;
}
