/*
 * The forker loads this library before all others, so that all ranks have it. A thread that asks a socket or a pipe
 * over and over, without blocking, whether something has come waits for another process, but runs: nobody could tell
 * that from work, and virtual time would wait for it. Transformer Engine's user buffers exchange descriptors in this
 * way. Here such a thread sleeps between its questions, until something comes, and is then seen to sleep
 * (liveness/sleep_detector.py).
 *
 * Comes in: calls that receive or send, which the real functions execute. Goes out: their results, later if nothing
 * came. A thread that works between its questions, or gets anything from any call here, does not wait: the hook library
 * sends its records by send(2), so asking for the time counts as well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* QUESTIONS in a row are answered at once; WORK_NS of processor time between two of them end the row. */
enum { QUESTIONS = 1000, WORK_NS = 200000, LONGEST_MS = 100, SLOWER_EVERY = 4, ASKED = 16 };

/* The questions that this thread has asked since it last got anything. */
static _Thread_local struct {
    struct pollfd asked[ASKED];
    nfds_t n_asked;
    uint64_t worked_ns;
    unsigned questions;
} row;

static uint64_t thread_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void note(int fd, short events) {
    for (nfds_t i = 0; i < row.n_asked; i++)
        if (row.asked[i].fd == fd && row.asked[i].events == events) return;
    nfds_t at = row.n_asked < ASKED ? row.n_asked++ : row.questions % ASKED;
    row.asked[at] = (struct pollfd){.fd = fd, .events = events};
}

/* Others that are ready now are no longer asked for, or this would not sleep. */
static void keep_unready(void) {
    nfds_t kept = 0;
    for (nfds_t i = 0; i < row.n_asked; i++)
        if (!row.asked[i].revents) row.asked[kept++] = row.asked[i];
    row.n_asked = kept;
}

/* The descriptor had nothing. Sleeps if it is only asked over and over; true: it may have something now. */
static bool sleeps(int fd, short events) {
    uint64_t now_ns = thread_ns();
    if (now_ns - row.worked_ns > WORK_NS) row.n_asked = row.questions = 0;
    row.worked_ns = now_ns;
    note(fd, events);
    if (++row.questions <= QUESTIONS) return false;
    unsigned for_ms = 1 + (row.questions - QUESTIONS) / SLOWER_EVERY;
    bool ready = false;
    if (poll(row.asked, row.n_asked, for_ms < LONGEST_MS ? (int)for_ms : LONGEST_MS) > 0) {
        for (nfds_t i = 0; i < row.n_asked; i++)
            ready = ready || (row.asked[i].fd == fd && row.asked[i].revents && row.asked[i].events == events);
        keep_unready();
    }
    row.worked_ns = thread_ns();
    return ready;
}

static bool again(int fd, short events, ssize_t result) {
    if (result >= 0) {
        row.n_asked = row.questions = 0;
        return false;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    bool ready = sleeps(fd, events);
    errno = EAGAIN;
    return ready;
}

/* The function of the C library, then one more call if something has come meanwhile. */
#define CALL(TYPE, NAME, EVENTS, PARAMETERS, ...)                                                                      \
    __attribute__((visibility("default"))) TYPE NAME PARAMETERS {                                                      \
        static TYPE(*real) PARAMETERS;                                                                                 \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #NAME);                                                          \
        TYPE result = real(__VA_ARGS__);                                                                               \
        if (again(fd, EVENTS, result)) result = real(__VA_ARGS__);                                                     \
        return result;                                                                                                 \
    }

CALL(ssize_t, recv, POLLIN, (int fd, void *to, size_t n, int flags), fd, to, n, flags)
CALL(ssize_t, __recv_chk, POLLIN, (int fd, void *to, size_t n, size_t room, int flags), fd, to, n, room, flags)
CALL(ssize_t, recvfrom, POLLIN, (int fd, void *to, size_t n, int flags, __SOCKADDR_ARG from, socklen_t *length), fd, to,
     n, flags, from, length)
CALL(ssize_t, __recvfrom_chk, POLLIN,
     (int fd, void *to, size_t n, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *length), fd, to, n, room,
     flags, from, length)
CALL(ssize_t, recvmsg, POLLIN, (int fd, struct msghdr *message, int flags), fd, message, flags)
CALL(ssize_t, read, POLLIN, (int fd, void *to, size_t n), fd, to, n)
CALL(ssize_t, __read_chk, POLLIN, (int fd, void *to, size_t n, size_t room), fd, to, n, room)
CALL(int, accept, POLLIN, (int fd, __SOCKADDR_ARG from, socklen_t *length), fd, from, length)
CALL(int, accept4, POLLIN, (int fd, __SOCKADDR_ARG from, socklen_t *length, int flags), fd, from, length, flags)
CALL(ssize_t, send, POLLOUT, (int fd, const void *from, size_t n, int flags), fd, from, n, flags)
CALL(ssize_t, sendto, POLLOUT,
     (int fd, const void *from, size_t n, int flags, __CONST_SOCKADDR_ARG to, socklen_t length), fd, from, n, flags, to,
     length)
CALL(ssize_t, sendmsg, POLLOUT, (int fd, const struct msghdr *message, int flags), fd, message, flags)
CALL(ssize_t, write, POLLOUT, (int fd, const void *from, size_t n), fd, from, n)
