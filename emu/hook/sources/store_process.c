/*
 * The process that keeps the bytes of the store. It alone can write to the file, which ranks see on a read-only mount,
 * and to its index: a rank adds bytes, and can neither change what is there nor give back what others refer to.
 *
 * The references of a process that has ended stay: others may read what it has told them of.
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "sources/store_messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define NAMES 0x6a09e667f3bcc908ull

typedef struct process {
    int socket;
    uint32_t *held; /* references, by number */
    size_t nheld;
    uint32_t adding; /* an entry whose bytes it has begun to send, else 0 */
    uint64_t sent;
    bool named, failed; /* failed: they cannot be written, or are not those of the key */
    ph_key key;         /* of what it has sent */
} process;

static ph_contents *contents;
static struct {
    ph_store_ask ask;
    unsigned char bytes[PH_STORE_CHUNK];
} packet;

static void hold(process *it, uint32_t number) {
    if (number >= it->nheld) {
        size_t n = 2 * (size_t)number;
        it->held = ph_reallocate(it->held, n * sizeof *it->held);
        memset(it->held + it->nheld, 0, (n - it->nheld) * sizeof *it->held);
        it->nheld = n;
    }
    it->held[number]++;
}

/* Answers a process. Returns false if it has gone. */
static bool answer(const process *it, enum ph_store_status status, uint32_t number) {
    ph_store_answer said = {.status = status, .number = number, .totals = ph_contents_totals(contents)};
    if (number) said.content = ph_contents_of(contents, number);
    return send(it->socket, &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof said;
}

static bool give(process *it, uint32_t number) {
    hold(it, number);
    return answer(it, PH_STORE_GIVEN, number);
}

/* `n` more bytes of the entry that the process adds. */
static bool take(process *it, size_t n) {
    uint32_t number = it->adding;
    ph_content content = ph_contents_of(contents, number);
    bool last = n == content.nbytes - it->sent;
    size_t whole = n / PH_KEY_BLOCK * PH_KEY_BLOCK;
    if (n > content.nbytes - it->sent || (!last && n != PH_STORE_CHUNK)) return false;
    if (!it->failed) it->failed = !ph_contents_write(contents, number, it->sent, packet.bytes, n);
    if (!it->named) ph_key_blocks(&it->key, packet.bytes, whole);
    it->sent += n;
    if (!last) return true;
    if (!it->named) {
        uint64_t key[2];
        ph_key_end(&it->key, packet.bytes + whole, n - whole, key);
        it->failed = it->failed || key[0] != content.key[0] || key[1] != content.key[1];
    }
    it->adding = 0;
    ph_contents_written(contents, number, !it->failed);
    return it->failed ? answer(it, PH_STORE_REFUSED, 0) : give(it, number);
}

static bool add(process *it, size_t n) {
    const ph_store_ask *ask = &packet.ask;
    /* Bytes that a name stands for cannot be checked, so names are not found by content. */
    const uint64_t apart = ask->named ? NAMES : 0, key[2] = {ask->key[0] ^ apart, ask->key[1] ^ apart};
    uint32_t number = 0;
    if (it->adding || !ask->nbytes || (n && n != ask->nbytes)) return false;
    switch (ph_contents_add(contents, key, ask->nbytes, &number)) {
    case PH_ADDED_FOUND:
        return give(it, number);
    case PH_ADDED_BUSY:
        return answer(it, PH_STORE_BUSY, 0);
    case PH_ADDED_REFUSED:
        return answer(it, PH_STORE_REFUSED, 0);
    case PH_ADDED_NEW:
        it->adding = number;
        it->sent = 0;
        it->named = ask->named;
        it->failed = false;
        it->key = ph_key_of(ask->nbytes);
        return n ? take(it, n) : answer(it, PH_STORE_GO_ON, 0);
    }
    return false;
}

/* Serves one message. Returns false if the process has gone, or is none of ours. */
static bool serve(process *it) {
    const ph_store_ask *ask = &packet.ask;
    ssize_t got = recv(it->socket, &packet, sizeof packet, 0);
    if (got < (ssize_t)sizeof *ask) return false;
    size_t n = (size_t)got - sizeof *ask;
    switch (ask->what) {
    case PH_STORE_ADD:
        return add(it, n);
    case PH_STORE_MORE:
        return it->adding && n && take(it, n);
    case PH_STORE_ACQUIRE:
        if (!ph_contents_acquire(contents, ask->number, ask->key)) return answer(it, PH_STORE_REFUSED, 0);
        return give(it, ask->number);
    case PH_STORE_RELEASE:
        if (ask->number < it->nheld && it->held[ask->number]) {
            it->held[ask->number]--;
            ph_contents_release(contents, ask->number);
        }
        return true;
    case PH_STORE_COUNTS:
        return answer(it, PH_STORE_GIVEN, 0);
    }
    return false;
}

static void leave(process *it) {
    if (it->adding) ph_contents_written(contents, it->adding, false);
    close(it->socket);
    free(it->held);
    free(it);
}

static int spare = -1; /* a descriptor to refuse a connection with, when there is no other one */

static void open_spare(void) { spare = open("/dev/null", O_RDONLY | O_CLOEXEC); }

static void refuse(int listener) {
    close(spare);
    close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    open_spare();
}

static void enter(int listener, int events) {
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0 && (errno == EMFILE || errno == ENFILE)) refuse(listener);
    if (socket < 0) return;
    process *it = ph_allocate(sizeof *it);
    it->socket = socket;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(events, EPOLL_CTL_ADD, socket, &event) != 0) leave(it);
}

/* Returns the bytes that are kept at a time: half of what the file system has left, or half of the machine's memory
 * if that is less. */
static uint64_t budget(const char *folder) {
    struct statvfs disk;
    struct sysinfo machine;
    if (statvfs(folder, &disk) != 0 || sysinfo(&machine) != 0) return 0;
    uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize, memory = (uint64_t)machine.totalram * machine.mem_unit;
    return (left < memory ? left : memory) / 2;
}

/* Serves the store, in a process of its own. `listener`: a socket that listens in the folder. Returns if it cannot
 * keep anything. */
PH_EXPORT void phantora_store_serve(int listener, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/" PH_STORE_FILE, folder);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), events = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ready[64] = {{.events = EPOLLIN}};
    if (file < 0 || events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, listener, ready) != 0) return;
    contents = ph_contents_new(file, budget(folder));
    open_spare();
    for (;;) {
        int n = epoll_wait(events, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            process *it = ready[i].data.ptr;
            if (!it)
                enter(listener, events);
            else if (!serve(it))
                leave(it);
        }
    }
}
