/*
 * The reader: a thread that takes what the coordinator sends, and sends what nobody else sends. It never blocks for
 * long: it sends late batches only as far as the socket takes them.
 */
#define _GNU_SOURCE
#include "channel/channel.h"
#include "core/lock.h"
#include "channel/internal.h"
#include "core/run.h"
#include "../../contract/definitions/thread_names.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LATE_AFTER_MS = 2, FOREVER = -1 };

struct ph_reader_functions ph_reader_functions;

__thread bool ph_on_reader __attribute__((tls_model("initial-exec")));

void ph_reader_wake(void) {
    ph_channel.armed = true;
    uint64_t one = 1;
    while (write(ph_channel.wake, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* ---- from the coordinator ---------------------------------------------------------------------------------------- */

/* Hands on every record that has arrived as a whole. */
static void receive(ph_buffer *in) {
    ssize_t n = recv(ph_channel.fd, ph_buffer_room(in, PH_BATCH_NBYTES), PH_BATCH_NBYTES, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        if (ph_run.finished) pthread_exit(NULL);
        ph_coordinator_is_gone();
    }
    if (n < 0) return;
    in->n += (size_t)n;
    size_t at = 0;
    while (in->n - at >= sizeof(struct ph_header)) {
        struct ph_header header;
        memcpy(&header, in->bytes + at, sizeof header);
        if (header.nbytes < sizeof header || !ph_record_fits(header.kind, header.nbytes - sizeof header))
            ph_die("the coordinator sent a malformed record (kind %u, %u bytes)", header.kind, header.nbytes);
        size_t padded = ((size_t)header.nbytes + 7) & ~(size_t)7;
        if (in->n - at < padded) break;
        ph_reply_arrived(&header, in->bytes + at + sizeof header, header.nbytes - sizeof header);
        at += padded;
    }
    memmove(in->bytes, in->bytes + at, in->n - at);
    in->n -= at;
}

/* ---- to the coordinator ------------------------------------------------------------------------------------------ */

/* Returns for how many milliseconds to sleep then. */
static int late_work(void) {
    bool left = ph_send_now();
    ph_record_lock();
    bool unsent = left || ph_channel.gathering.n > 0;
    ph_channel.armed = unsent; /* if not, the next record that is appended wakes the reader again */
    ph_unlock(PH_LOCK_RECORDS);
    return unsent ? LATE_AFTER_MS : FOREVER;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void *reader(void *unused) {
    (void)unused;
    ph_on_reader = true;
    ph_reader_functions.begins();
    pthread_setname_np(pthread_self(), ph_name_READER);
    ph_buffer in = {0};
    int timeout_ms = FOREVER;
    for (;;) {
        struct pollfd files[2] = {{.fd = ph_channel.fd, .events = POLLIN}, {.fd = ph_channel.wake, .events = POLLIN}};
        int n = poll(files, 2, timeout_ms);
        if (n < 0 && errno != EINTR) ph_die("poll: %s", strerror(errno));
        if (n > 0 && (files[0].revents & (POLLIN | POLLHUP | POLLERR))) receive(&in);
        if (n > 0 && (files[1].revents & POLLIN)) {
            uint64_t wakes;
            if (read(ph_channel.wake, &wakes, sizeof wakes) == sizeof wakes) timeout_ms = LATE_AFTER_MS;
        } else if (n == 0)
            timeout_ms = late_work();
    }
    return NULL;
}

static pthread_t thread; /* once it has been started */

uint64_t ph_reader_cpu_ns(void) {
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

int ph_reader_start(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&thread, &attributes, reader, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -status;
}
