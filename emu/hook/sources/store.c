/*
 * Bytes that programs have given to the device, once for all ranks of the run.
 *
 * Equal bytes are kept once: an entry has a hash of 128 bits of its content (or of its name, see host_names.c), and is
 * counted by the sources that refer to it in any rank. A process keeps them that runs no program of the user's
 * (store_process.c); ranks ask it over a socket and read its file. Without it, a process keeps its own.
 */
#define _GNU_SOURCE
#include "sources/store.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/lock.h"
#include "op_stream/warn.h"
#include "sources/source_map.h"
#include "sources/store_messages.h"
#include "threads/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PRIVATE_BUDGET ((uint64_t)1 << 30) /* of a process that shares with nobody */
enum {
    DESCRIPTORS_FROM = 700, /* above those that programs choose */
    TURN_US = 1000,         /* while another process adds the same bytes */
    QUICK_MS = 3,           /* an answer that takes longer: the store's process waits for a processor */
};

typedef struct descriptor {
    int number;
    dev_t device;
    ino_t inode;
} descriptor;

/* All under the store's lock. */
static struct {
    char folder[100]; /* "": there is no process that keeps bytes */
    pid_t connected;  /* the process whose socket it is */
    descriptor socket, file;
    ph_contents *own;
    ph_content *told; /* by number, of entries that this process or a parent of it refers to */
    size_t ntold;
    ph_store_totals totals;
} store;
static pid_t owner; /* a forked child gives nothing back that its parent holds */

void ph_store_open(const char *folder) {
    if (strlen(folder) < sizeof store.folder) strcpy(store.folder, folder);
}

bool ph_store_shared(void) { return *store.folder; }

/* ---- the connection, under the lock ------------------------------------------------------------------------------ */
static bool is_open(const descriptor *it) {
    struct stat about;
    return fstat(it->number, &about) == 0 && about.st_dev == it->device && about.st_ino == it->inode;
}

static bool keep_open(descriptor *it, int number) {
    struct stat about;
    if (number < 0) return false;
    int above = fcntl(number, F_DUPFD_CLOEXEC, DESCRIPTORS_FROM);
    if (above >= 0) close(number);
    *it = (descriptor){.number = above >= 0 ? above : number};
    if (fstat(it->number, &about) != 0) return false;
    it->device = about.st_dev;
    it->inode = about.st_ino;
    return true;
}

/* Again in a child, and where the program has closed what was open. */
static bool connected(void) {
    if (store.connected == getpid() && is_open(&store.socket) && is_open(&store.file)) return true;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[sizeof store.folder + sizeof PH_STORE_FILE + 1];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/" PH_STORE_SOCKET, store.folder);
    snprintf(path, sizeof path, "%s/" PH_STORE_FILE, store.folder);
    store.connected = 0;
    if (!keep_open(&store.socket, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))) return false;
    if (connect(store.socket.number, (struct sockaddr *)&address, sizeof address) != 0) return false;
    if (!keep_open(&store.file, open(path, O_RDONLY | O_CLOEXEC))) return false;
    store.connected = getpid();
    return true;
}

static bool tell(const ph_store_ask *ask, const void *bytes, size_t nbytes) {
    struct iovec parts[] = {{(void *)(uintptr_t)ask, sizeof *ask}, {(void *)(uintptr_t)bytes, nbytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = nbytes ? 2 : 1};
    ssize_t sent;
    do sent = sendmsg(store.socket.number, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)(sizeof *ask + nbytes);
}

/* The status; PH_STORE_GONE if the process has gone. Who waits for it does not sleep until another rank continues. */
static enum ph_store_status hear(ph_store_answer *said) {
    struct pollfd waited = {.fd = store.socket.number, .events = POLLIN};
    char name[PH_THREAD_NAME_NBYTES];
    bool slow = poll(&waited, 1, QUICK_MS) == 0;
    if (slow) ph_thread_call_awake(name);
    ssize_t got;
    do got = recv(store.socket.number, said, sizeof *said, 0);
    while (got < 0 && errno == EINTR);
    if (slow) ph_thread_rename(name);
    if (got != sizeof *said) {
        *said = (ph_store_answer){.status = PH_STORE_GONE};
        store.connected = 0;
    } else {
        store.totals = said->totals;
    }
    return said->status;
}

static void note(uint32_t number, const ph_content *content) {
    if (number >= store.ntold) {
        size_t n = 2 * (size_t)number;
        store.told = ph_reallocate(store.told, n * sizeof *store.told);
        store.ntold = n;
    }
    store.told[number] = *content;
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */
static enum ph_store_status send_all(const unsigned char *bytes, size_t nbytes, ph_store_answer *said) {
    const ph_store_ask more = {.what = PH_STORE_MORE};
    char name[PH_THREAD_NAME_NBYTES];
    bool sent = true;
    ph_thread_call_awake(name);
    for (size_t n; sent && nbytes; bytes += n, nbytes -= n) {
        n = nbytes < PH_STORE_CHUNK ? nbytes : PH_STORE_CHUNK;
        sent = tell(&more, bytes, n);
    }
    ph_thread_rename(name);
    return sent ? hear(said) : PH_STORE_GONE;
}

static enum ph_store_status add_shared(const ph_content *content, bool named, const void *bytes, uint32_t *number) {
    size_t nbytes = content->nbytes;
    const ph_store_ask ask = {
        .what = PH_STORE_ADD, .named = named, .key = {content->key[0], content->key[1]}, .nbytes = nbytes};
    ph_store_answer said;
    if (!connected() || !tell(&ask, bytes, nbytes <= PH_STORE_CHUNK ? nbytes : 0)) return PH_STORE_GONE;
    enum ph_store_status status = hear(&said);
    if (status == PH_STORE_GO_ON) status = send_all(bytes, nbytes, &said);
    if (status != PH_STORE_GIVEN) return status;
    *number = said.number;
    note(said.number, &said.content);
    return status;
}

static enum ph_store_status add_own(const ph_content *content, const void *bytes, uint32_t *number) {
    if (owner != getpid()) return PH_STORE_REFUSED; /* a child has its parent's file */
    if (!store.own) {
        if (!keep_open(&store.file, memfd_create("phantora", MFD_CLOEXEC))) return PH_STORE_REFUSED;
        store.own = ph_contents_new(store.file.number, PRIVATE_BUDGET);
    }
    enum ph_added added = ph_contents_add(store.own, content->key, content->nbytes, number);
    if (added == PH_ADDED_NEW) {
        bool well = ph_contents_write(store.own, *number, 0, bytes, content->nbytes);
        ph_contents_written(store.own, *number, well);
        if (!well) return PH_STORE_REFUSED;
    }
    store.totals = ph_contents_totals(store.own);
    if (added == PH_ADDED_REFUSED) return PH_STORE_REFUSED;
    ph_content kept = ph_contents_of(store.own, *number);
    note(*number, &kept);
    return PH_STORE_GIVEN;
}

static void warn(enum ph_store_status status, uint64_t budget) {
    if (status == PH_STORE_GONE)
        ph_warn_once(
            "kept bytes' process",
            "the process that keeps what programs give to the device does not answer: it has ended, or has too "
            "many connections; what is given from here on reads as 0");
    else
        ph_warn_once("kept bytes",
                     "what programs give to the device is kept for reading back up to half of this machine's memory "
                     "and of the temporary folder's free space: %.0f MB are kept, and what has no room from here on "
                     "reads as 0",
                     (double)budget / 1e6);
}

uint32_t ph_store_add(const void *bytes, size_t nbytes) {
    ph_content content = {.nbytes = nbytes};
    uint32_t number = 0;
    char name[PH_THREAD_NAME_NBYTES];
    bool waits = false;
    if (!nbytes) return 0;
    if (!owner) owner = getpid();
    bool named = ph_host_name_key(bytes, nbytes, content.key);
    if (!named) ph_content_key(content.key, bytes, nbytes);
    for (;;) {
        ph_lock(PH_LOCK_STORE);
        enum ph_store_status status =
            *store.folder ? add_shared(&content, named, bytes, &number) : add_own(&content, bytes, &number);
        uint64_t budget = store.totals.budget;
        ph_unlock(PH_LOCK_STORE);
        if (status == PH_STORE_BUSY) {
            /* Another process writes equal bytes just now. This one waits for them, but is not asleep: it will go on
             * by itself. */
            if (!waits) ph_thread_call_awake(name);
            waits = true;
            usleep(TURN_US);
            continue;
        }
        if (waits) ph_thread_rename(name);
        if (status != PH_STORE_GIVEN) warn(status, budget);
        return status == PH_STORE_GIVEN ? number : 0;
    }
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */
bool ph_store_acquire(uint32_t number, const uint64_t key[2]) {
    const ph_store_ask ask = {.what = PH_STORE_ACQUIRE, .number = number, .key = {key[0], key[1]}};
    ph_store_answer said;
    if (!*store.folder || !number) return false;
    if (!owner) owner = getpid();
    ph_lock(PH_LOCK_STORE);
    bool given = connected() && tell(&ask, NULL, 0) && hear(&said) == PH_STORE_GIVEN;
    if (given) note(number, &said.content);
    ph_unlock(PH_LOCK_STORE);
    return given;
}

static ph_content content_of(uint32_t number) {
    ph_lock(PH_LOCK_STORE);
    ph_content content = store.told[number];
    ph_unlock(PH_LOCK_STORE);
    return content;
}

void ph_store_key(uint32_t number, uint64_t key[2]) {
    ph_content content = content_of(number);
    key[0] = content.key[0];
    key[1] = content.key[1];
}

uint64_t ph_store_nbytes(uint32_t number) { return content_of(number).nbytes; }

void ph_store_release(uint32_t number) {
    const ph_store_ask ask = {.what = PH_STORE_RELEASE, .number = number};
    if (owner != getpid()) return;
    ph_lock(PH_LOCK_STORE);
    if (store.own)
        ph_contents_release(store.own, number);
    else if (store.connected == owner && is_open(&store.socket))
        tell(&ask, NULL, 0);
    ph_unlock(PH_LOCK_STORE);
}

bool ph_store_read(uint32_t number, uint64_t offset, size_t nbytes, void *dst) {
    ph_lock(PH_LOCK_STORE);
    bool there = store.own ? is_open(&store.file) : connected();
    int file = store.file.number;
    offset += store.told[number].offset;
    ph_unlock(PH_LOCK_STORE);
    unsigned char *to = dst;
    for (ssize_t n; there && nbytes; to += n, offset += (uint64_t)n, nbytes -= (size_t)n) {
        n = pread(file, to, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            return false;
    }
    return there;
}

ph_store_totals ph_store_counts(void) {
    ph_lock(PH_LOCK_STORE);
    ph_store_totals totals = store.totals;
    ph_unlock(PH_LOCK_STORE);
    return totals;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */
PH_EXPORT void phantora_store_open(const char *folder) { ph_store_open(folder); }

/* Sends a KEPT record. */
PH_EXPORT void phantora_kept(void) {
    ph_host_pages_count();
    const ph_store_ask ask = {.what = PH_STORE_COUNTS};
    ph_store_answer said;
    ph_lock(PH_LOCK_STORE);
    if (*store.folder && connected() && tell(&ask, NULL, 0)) hear(&said);
    ph_unlock(PH_LOCK_STORE);
    ph_store_totals totals = ph_store_counts();
    struct ph_KEPT record = {.peak = totals.peak, .budget = totals.budget, .refused = totals.refused};
    if (totals.budget) ph_emit_out_of_band(PH_KIND_KEPT, &record, sizeof record, NULL, 0);
}
