/*
 * The socket to the coordinator: records gather in a batch, a reader thread takes what comes back.
 *
 * Two locks. The record lock orders records and guards everything that decides their instants (segments, recordings);
 * it is never held over a system call that may block. The send lock is held while bytes leave, which may block when the
 * coordinator is behind: that is the back-pressure. The reader needs neither for long: it sends late batches only as
 * far as the socket takes them.
 *
 * Before the rank's start, after its end and in children of a rank there is no socket: records are dropped.
 */
#define _GNU_SOURCE
#include "channel/channel.h"
#include "channel/waiters.h"
#include "core/host.h"
#include "core/warn.h"
#include "process/process.h"
#include "process/python.h"
#include "process/sites.h"
#include "process/thread.h"
#include "streams/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BATCH_NBYTES = 32 << 10, BACKLOG_NBYTES = 1 << 20 };

typedef struct buffer {
    unsigned char *bytes;
    size_t n, capacity;
} buffer;

static struct {
    pthread_mutex_t records, send;
    int fd, wake;
    atomic_bool open;
    buffer gathering; /* record lock */
    uint64_t last_instant;
    bool armed;     /* the reader will look within 2 ms */
    buffer leaving; /* send lock */
    size_t left;    /* of `leaving`, gone already */
} channel = {.records = PTHREAD_MUTEX_INITIALIZER, .send = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .wake = -1};

static __thread bool on_reader __attribute__((tls_model("initial-exec")));

void ph_record_lock(void) { pthread_mutex_lock(&channel.records); }

static void wake_reader(void) {
    channel.armed = true;
    uint64_t one = 1;
    while (write(channel.wake, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* Under the record lock: an open segment must leave some time even if nothing follows it. */
void ph_channel_wake_for_segments(void) {
    if (channel.open && !channel.armed) wake_reader();
}

static unsigned char *room(buffer *b, size_t nbytes) {
    if (b->n + nbytes > b->capacity) {
        size_t capacity = b->capacity ? b->capacity : 2 * BATCH_NBYTES;
        while (capacity < b->n + nbytes) capacity *= 2;
        b->bytes = realloc(b->bytes, capacity);
        if (!b->bytes) ph_die("out of host memory for %zu bytes of records", capacity);
        b->capacity = capacity;
    }
    return b->bytes + b->n;
}

/* Under the record lock. */
static void append(uint16_t kind, uint16_t site, uint64_t host_ns, const void *fields, size_t fields_nbytes,
                   const void *payload, size_t payload_nbytes) {
    if (!channel.open) return;
    size_t exact = sizeof(struct ph_header) + fields_nbytes + payload_nbytes, padded = (exact + 7) & ~(size_t)7;
    struct ph_header header = {.kind = kind, .site = site, .nbytes = (uint32_t)exact, .last = host_ns};
    unsigned char *at = room(&channel.gathering, padded);
    memcpy(at, &header, sizeof header);
    if (fields_nbytes) memcpy(at + sizeof header, fields, fields_nbytes);
    if (payload_nbytes) memcpy(at + sizeof header + fields_nbytes, payload, payload_nbytes);
    memset(at + exact, 0, padded - exact);
    channel.gathering.n += padded;
    if (!channel.armed) wake_reader();
}

static void append_at(uint16_t kind, uint16_t site, uint64_t at_ns, const void *fields, size_t fields_nbytes,
                      const void *payload, size_t payload_nbytes) {
    if (at_ns < channel.last_instant)
        ph_die("record %u would go back in time by %llu ns", kind, (unsigned long long)(channel.last_instant - at_ns));
    append(kind, site, at_ns - channel.last_instant, fields, fields_nbytes, payload, payload_nbytes);
    channel.last_instant = at_ns;
}

void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes) {
    append_at(kind, 0, at_ns, fields, fields_nbytes, payload, payload_nbytes);
}

/* The coordinator has gone, and with it the run. */
static _Noreturn void vanish(void) { _exit(74); }

/* Under the send lock: whatever has gathered leaves; all of it, or (without blocking) what the socket takes. */
static void send_gathered(bool may_block) {
    while (channel.open) {
        if (channel.left == channel.leaving.n) {
            pthread_mutex_lock(&channel.records);
            buffer empty = channel.leaving;
            channel.leaving = channel.gathering;
            channel.gathering = empty;
            channel.gathering.n = 0;
            pthread_mutex_unlock(&channel.records);
            channel.left = 0;
            if (channel.leaving.n == 0) return;
        }
        ssize_t sent = send(channel.fd, channel.leaving.bytes + channel.left, channel.leaving.n - channel.left,
                            MSG_NOSIGNAL | (may_block ? 0 : MSG_DONTWAIT));
        if (sent >= 0)
            channel.left += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR && !ph_run.finished)
            vanish();
        else if (errno != EINTR)
            return;
    }
}

static void send_now(void) {
    if (on_reader) {
        if (pthread_mutex_trylock(&channel.send) != 0) return;
        send_gathered(false);
    } else {
        pthread_mutex_lock(&channel.send);
        send_gathered(true);
    }
    pthread_mutex_unlock(&channel.send);
}

/* Another thread may be blocked in send: gather on, up to a limit. */
static void send_if_much(size_t gathered) {
    if (gathered < BATCH_NBYTES) return;
    if (gathered >= BACKLOG_NBYTES || on_reader) {
        send_now();
        return;
    }
    if (pthread_mutex_trylock(&channel.send) != 0) return;
    send_gathered(true);
    pthread_mutex_unlock(&channel.send);
}

void ph_record_unlock(void) {
    size_t gathered = channel.gathering.n;
    pthread_mutex_unlock(&channel.records);
    if (UNLIKELY(gathered >= BATCH_NBYTES)) send_if_much(gathered);
}

static void emit(uint16_t kind, uint16_t site, const void *fields, size_t fields_nbytes, const void *payload,
                 size_t payload_nbytes) {
    ph_record_lock();
    ph_close_segments();
    append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}

void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, 0, fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, ph_site(), fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes) {
    ph_record_lock();
    append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}

void ph_flush(void) {
    if (!channel.open) return;
    ph_record_lock();
    ph_close_segments();
    pthread_mutex_unlock(&channel.records);
    send_now();
}

static atomic_int asking_out_of_band; /* threads asleep for an answer that has nothing to do with time */

static void ask(bool aside, uint16_t kind, void *fields, size_t fields_nbytes, const void *payload,
                size_t payload_nbytes, void *reply, size_t reply_nbytes) {
    memset(reply, 0, reply_nbytes);
    if (!channel.open) return;
    ph_waiter waiter = {.reply = reply, .nbytes = reply_nbytes};
    uint64_t qid = ph_waiter_add(&waiter);
    memcpy(fields, &qid, sizeof qid);
    uint16_t site = aside ? 0 : ph_site();
    ph_record_lock();
    if (!aside) ph_close_segments();
    if (aside)
        append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
    else
        append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    pthread_mutex_unlock(&channel.records);
    send_now();
    void *interpreter = ph_python_release();
    if (aside) atomic_fetch_add(&asking_out_of_band, 1);
    ph_waiter_wait(&waiter);
    if (aside) atomic_fetch_sub(&asking_out_of_band, 1);
    ph_python_restore(interpreter);
}

void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes) {
    ask(false, kind, fields, fields_nbytes, payload, payload_nbytes, reply, reply_nbytes);
}

void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes) {
    ask(true, kind, fields, fields_nbytes, payload, payload_nbytes, reply, reply_nbytes);
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

/* Everything the coordinator says, record by record. */
static void receive(buffer *in) {
    ssize_t n = recv(channel.fd, room(in, BATCH_NBYTES), BATCH_NBYTES, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        if (ph_run.finished) pthread_exit(NULL);
        vanish();
    }
    if (n < 0) return;
    in->n += (size_t)n;
    size_t at = 0;
    while (in->n - at >= sizeof(struct ph_header)) {
        struct ph_header header;
        memcpy(&header, in->bytes + at, sizeof header);
        if (header.nbytes < sizeof header)
            ph_die("the coordinator sent a malformed record (kind %u, %u bytes)", header.kind, header.nbytes);
        size_t padded = ((size_t)header.nbytes + 7) & ~(size_t)7;
        if (in->n - at < padded) break;
        ph_reply_arrived(&header, in->bytes + at + sizeof header, header.nbytes - sizeof header);
        at += padded;
    }
    memmove(in->bytes, in->bytes + at, in->n - at);
    in->n -= at;
}

/* What nobody sent in time. An open segment is closed only if the whole process is asleep: a rank that merely waits for
 * a processor will go on launching, and where its segments end should not depend on the machine's load. Returns how
 * long to sleep for, -1: until somebody wakes us. */
static int late_work(int waited_ms) {
    static uint64_t launches_seen;
    static int patience_ms = 20;
    ph_record_lock();
    bool gathered = channel.gathering.n > 0, segments = ph_segments_open();
    uint64_t launches = ph_launch_count();
    pthread_mutex_unlock(&channel.records);
    if (gathered) send_now();
    if (segments) {
        bool quiet = launches == launches_seen;
        launches_seen = launches;
        if (!quiet)
            patience_ms = 20;
        else if (waited_ms >= patience_ms && !atomic_load(&asking_out_of_band) && ph_other_threads_sleep()) {
            ph_flush();
            segments = false;
            patience_ms = 20;
        } else if (waited_ms >= patience_ms && patience_ms < 320)
            patience_ms *= 2;
    }
    ph_record_lock();
    bool unsent = channel.gathering.n > 0;
    channel.armed = unsent; /* what is appended from now on wakes us again */
    segments = ph_segments_open();
    pthread_mutex_unlock(&channel.records);
    return unsent ? 2 : segments ? patience_ms : -1;
}

static void *reader(void *unused) {
    (void)unused;
    on_reader = true;
    ph_self()->kind = PH_THREAD_WATCHES;
    pthread_setname_np(pthread_self(), "ph_reader");
    buffer in = {0};
    int timeout_ms = -1;
    for (;;) {
        struct pollfd files[2] = {{.fd = channel.fd, .events = POLLIN}, {.fd = channel.wake, .events = POLLIN}};
        int n = poll(files, 2, timeout_ms);
        if (n < 0 && errno != EINTR) ph_die("poll: %s", strerror(errno));
        if (n > 0 && (files[0].revents & (POLLIN | POLLHUP | POLLERR))) receive(&in);
        if (n > 0 && (files[1].revents & POLLIN)) {
            uint64_t wakes;
            if (read(channel.wake, &wakes, sizeof wakes) == sizeof wakes) timeout_ms = 2;
        } else if (n == 0)
            timeout_ms = late_work(timeout_ms);
    }
    return NULL;
}

static int start_reader(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int status = pthread_create(&thread, &attributes, reader, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -status;
}

int ph_channel_open(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int status = -errno;
        close(fd);
        return status;
    }
    channel.fd = fd;
    channel.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (channel.wake < 0) return -errno;
    channel.last_instant = 0;
    channel.open = true;
    return start_reader();
}

void ph_channel_close(void) {
    if (!channel.open) return;
    ph_flush();
    channel.open = false;
    shutdown(channel.fd, SHUT_WR); /* the reader still takes what comes, and ends with the process */
}

/* fork: no lock may be held by a thread that the child does not have. */
void ph_channel_fork_lock(void) {
    pthread_mutex_lock(&channel.send);
    pthread_mutex_lock(&channel.records);
}

void ph_channel_fork_unlock(void) {
    pthread_mutex_unlock(&channel.records);
    pthread_mutex_unlock(&channel.send);
}

void ph_channel_drop_in_child(void) {
    if (channel.fd < 0) return;
    channel.open = false;
    close(channel.fd); /* the coordinator must see the rank's end even if its children live on */
    close(channel.wake);
    channel.fd = channel.wake = -1;
    channel.gathering.n = 0;
    ph_waiters_forget();
}
