/*
 * A large copy to the host is bytes that nobody has read yet. Its whole pages are given back to the kernel, and
 * userfaultfd(2) tells a process of the run (emu/unread) when anyone touches one: a thread of the program, or the
 * kernel itself in a system call. That process makes the values and fills the page. It knows which pages are missing;
 * copies back to the device ask it, and refer to what these would be filled with.
 *
 * Where the kernel does not let this process serve its own faults and the kernel's, copies are made at once.
 */
#define _GNU_SOURCE
#include "sources/source_map.h"
#include "core/alloc.h"
#include "core/lock.h"
#include "core/run.h"
#include "sources/table.h"
#include "threads/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)
#define EVENTS (UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP)
enum {
    LEAST_NBYTES = 1 << 20,       /* smaller copies are made at once */
    MOST_TABLE_NBYTES = 96 << 10, /* of one message */
    MOST_LISTED = 4096,
    DESCRIPTORS_FROM = 700,
    QUICK_MS = 3,
};

/* The messages of this process, one a packet; see emu/unread/server.py. */
enum what { OPEN, GIVE, LIST, FORK, CLAIM, COUNT };
typedef struct ask {
    uint32_t what, number; /* of what is given, or of a fork */
    uint64_t start, nbytes;
} ask;
typedef struct answer {
    uint32_t number, n; /* number: of a fork; 0: refused */
    uint64_t failed;    /* reads, since the last answer */
} answer;
typedef struct missing { /* `n` of them follow a LIST's answer */
    uint64_t start, end, offset;
    uint64_t number;
} missing;

typedef struct given {
    uint32_t number;
    ph_piece *pieces; /* from the first page on */
    size_t n;
} given;

/* All under the lock. */
static struct {
    char folder[100]; /* "": no process serves */
    int device; /* /dev/userfaultfd, opened before this process lost the right to, for reading: a script that finds it
                 * can have faults of its own memory told, and change nothing; -1 */
    pid_t connected, refused;
    int socket, faults;
    given *all; /* by number; a child has its parent's */
    size_t n, capacity;
    uint32_t last, fork;
    bool whole; /* when it was forked: no page was missing */
} pages = {.device = -1, .socket = -1, .faults = -1};

static int above(int descriptor) {
    int moved = descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, DESCRIPTORS_FROM);
    if (moved < 0) return descriptor;
    close(descriptor);
    return moved;
}

PH_EXPORT void phantora_host_pages_open(const char *folder) {
    if (strlen(folder) >= sizeof pages.folder) return;
    pages.device = above(open("/dev/userfaultfd", O_RDONLY | O_CLOEXEC));
    strcpy(pages.folder, folder);
}

static int new_faults(void) {
    int flags = O_CLOEXEC | O_NONBLOCK, made = -1;
    struct uffdio_api api = {.api = UFFD_API, .features = EVENTS};
    if (pages.device >= 0) made = ioctl(pages.device, USERFAULTFD_IOC_NEW, flags);
    if (made < 0) made = (int)syscall(SYS_userfaultfd, flags);
    if (made < 0 || ioctl(made, UFFDIO_API, &api) == 0) return above(made);
    close(made);
    return -1;
}

/* ---- messages, under the lock ------------------------------------------------------------------------------------ */
static bool tell(const ask *said, const void *rest, size_t nbytes, int descriptor) {
    struct iovec parts[] = {{(void *)(uintptr_t)said, sizeof *said}, {(void *)(uintptr_t)rest, nbytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = nbytes ? 2 : 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof descriptor)];
    } passed = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof descriptor)}};
    if (descriptor >= 0) {
        memcpy(CMSG_DATA(&passed.header), &descriptor, sizeof descriptor);
        message.msg_control = passed.bytes;
        message.msg_controllen = sizeof passed.bytes;
    }
    ssize_t sent;
    do sent = sendmsg(pages.socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)(sizeof *said + nbytes);
}

/* `rest`: room for what follows the answer. False if it was refused. Who waits for it does not sleep until another rank
 * continues. */
static bool hear(answer *out, void *rest, size_t nbytes) {
    struct pollfd waited = {.fd = pages.socket, .events = POLLIN};
    struct iovec parts[] = {{out, sizeof *out}, {rest, nbytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    char name[PH_THREAD_NAME_NBYTES];
    bool slow = poll(&waited, 1, QUICK_MS) == 0;
    if (slow) ph_thread_call_awake(name);
    ssize_t got;
    do got = recvmsg(pages.socket, &message, 0);
    while (got < 0 && errno == EINTR);
    if (slow) ph_thread_rename(name);
    if (got < (ssize_t)sizeof *out) {
        *out = (answer){0};
        pages.connected = 0;
        pages.refused = getpid();
    }
    for (uint64_t i = 0; i < out->failed; i++) ph_count_unmodelled_read();
    return out->number != 0;
}

static bool connect_as(enum what what, uint32_t number) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const ask said = {.what = what, .number = number};
    answer heard;
    size_t length = strlen(pages.folder);
    memcpy(address.sun_path, pages.folder, length);
    strcpy(address.sun_path + length, "/pages");
    pages.refused = getpid(); /* unless all goes well */
    pages.connected = 0;
    pages.faults = new_faults();
    if (pages.faults < 0) return false;
    pages.socket = above(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (pages.socket < 0 || connect(pages.socket, (struct sockaddr *)&address, sizeof address) != 0 ||
        !tell(&said, NULL, 0, pages.faults) || !hear(&heard, NULL, 0))
        return false;
    pages.connected = getpid();
    pages.refused = 0;
    return true;
}

static bool connected(void) {
    if (!*pages.folder || pages.refused == getpid()) return false;
    return pages.connected == getpid() || connect_as(OPEN, 0);
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */
/* The part of the pieces within a range, counted from its start; each holds its source. */
static ph_piece *part_of(const ph_piece *pieces, size_t n, uintptr_t from, uintptr_t to, size_t *count) {
    ph_piece *part = ph_allocate(n * sizeof *part);
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        uintptr_t start = pieces[i].start > from ? pieces[i].start : from;
        uintptr_t end = pieces[i].end < to ? pieces[i].end : to;
        if (start >= end) continue;
        part[(*count)++] = (ph_piece){start - from, end - from, ph_source_hold(pieces[i].source),
                                      pieces[i].offset + (start - pieces[i].start)};
    }
    return part;
}

/* MADV_FREE is an error for memory that is shared or belongs to a file. */
static bool make_missing(void *start, size_t nbytes) {
    struct uffdio_register all = {{(uintptr_t)start, nbytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
    return madvise(start, nbytes, MADV_FREE) == 0 && madvise(start, nbytes, MADV_DONTNEED) == 0 &&
           ioctl(pages.faults, UFFDIO_REGISTER, &all) == 0;
}

/* Under the lock. */
static const given *numbered(uint64_t number) {
    size_t low = 0, high = pages.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pages.all[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pages.n && pages.all[low].number == number ? &pages.all[low] : NULL;
}

/* Under the lock: no page of it is missing any more. Returns what is to be freed without the lock. */
static given forget(uint64_t number) {
    const given *found = numbered(number);
    given it = {0};
    if (!found) return it;
    size_t at = (size_t)(found - pages.all);
    it = *found;
    memmove(pages.all + at, pages.all + at + 1, (--pages.n - at) * sizeof it);
    return it;
}

/* Under the lock. What the other process does not take is unregistered. `gone`: numbers, heard->n of them. */
static bool hand_over(uintptr_t first, size_t nbytes, const unsigned char *table, size_t table_nbytes, answer *heard,
                      uint64_t *gone) {
    const ask said = {.what = GIVE, .number = pages.last + 1, .start = first, .nbytes = nbytes};
    struct uffdio_range range = {first, nbytes};
    if (!connected() || !make_missing((void *)first, nbytes)) return false;
    if (tell(&said, table, table_nbytes, -1) && hear(heard, gone, MOST_LISTED * sizeof *gone)) return true;
    ioctl(pages.faults, UFFDIO_UNREGISTER, &range);
    return false;
}

static void read_edge(unsigned char *dst, const ph_piece *pieces, size_t n, uintptr_t from, uintptr_t to) {
    size_t count;
    ph_piece *part = part_of(pieces, n, from, to, &count);
    for (size_t i = 0; i < count; i++)
        if (!ph_source_read(part[i].source, part[i].offset, part[i].end - part[i].start, dst + part[i].start))
            ph_count_unmodelled_read();
    ph_pieces_free(part, count);
}

bool ph_host_pages_give(unsigned char *dst, size_t nbytes, const ph_piece *pieces, size_t n) {
    uintptr_t first = ((uintptr_t)dst + PAGE - 1) & ~(PAGE - 1), last = ((uintptr_t)dst + nbytes) & ~(PAGE - 1);
    if (nbytes < LEAST_NBYTES || !*pages.folder) return false;
    size_t before = first - (uintptr_t)dst, count, table_nbytes;
    ph_piece *part = part_of(pieces, n, before, last - (uintptr_t)dst, &count);
    unsigned char *table = ph_table_write(part, count, &table_nbytes);
    bool possible = table && table_nbytes <= MOST_TABLE_NBYTES;
    if (possible) {
        answer heard = {0};
        uint64_t *gone = ph_allocate(MOST_LISTED * sizeof *gone);
        given *old = ph_allocate(MOST_LISTED * sizeof *old);
        ph_lock(PH_LOCK_HOST_PAGES);
        possible = hand_over(first, last - first, table, table_nbytes, &heard, gone);
        for (uint32_t i = 0; i < heard.n; i++) old[i] = forget(gone[i]);
        if (possible) {
            pages.all = ph_room_for_one(pages.all, pages.n, &pages.capacity, sizeof *pages.all);
            pages.all[pages.n++] = (given){++pages.last, part, count};
        }
        ph_unlock(PH_LOCK_HOST_PAGES);
        for (uint32_t i = 0; i < heard.n; i++) ph_pieces_free(old[i].pieces, old[i].n);
        free(old);
        free(gone);
    }
    free(table);
    if (!possible) {
        ph_pieces_free(part, count);
        return false;
    }
    /* Only whole pages can be missing: the first and the last bytes share pages with other data, so they are made
     * now. */
    read_edge(dst, pieces, n, 0, before);
    read_edge((unsigned char *)last, pieces, n, last - (uintptr_t)dst, nbytes);
    return true;
}

/* ---- what is missing --------------------------------------------------------------------------------------------- */
size_t ph_host_pages_list(const void *start, size_t nbytes, ph_piece **out) {
    const ask said = {.what = LIST, .start = (uintptr_t)start, .nbytes = nbytes};
    answer heard;
    size_t n = 0, capacity = 0;
    *out = NULL;
    if (nbytes < LEAST_NBYTES || !pages.n) return 0;
    missing *found = ph_allocate(MOST_LISTED * sizeof *found);
    ph_lock(PH_LOCK_HOST_PAGES);
    if (connected() && tell(&said, NULL, 0, -1) && hear(&heard, found, MOST_LISTED * sizeof *found))
        for (uint32_t i = 0; i < heard.n && i < MOST_LISTED; i++) {
            const given *it = numbered(found[i].number);
            if (!it) continue;
            size_t count;
            ph_piece *part =
                part_of(it->pieces, it->n, found[i].offset, found[i].offset + (found[i].end - found[i].start), &count);
            for (size_t j = 0; j < count; j++) {
                *out = ph_room_for_one(*out, n, &capacity, sizeof **out);
                part[j].start += found[i].start;
                part[j].end += found[i].start;
                (*out)[n++] = part[j];
            }
            free(part);
        }
    ph_unlock(PH_LOCK_HOST_PAGES);
    free(found);
    return n;
}

void ph_host_pages_count(void) {
    const ask said = {.what = COUNT};
    answer heard;
    ph_lock(PH_LOCK_HOST_PAGES);
    if (pages.connected == getpid() && tell(&said, NULL, 0, -1)) hear(&heard, NULL, 0);
    ph_unlock(PH_LOCK_HOST_PAGES);
}

/* ---- forks: a child does not inherit who serves its faults ------------------------------------------------------- */
void ph_host_pages_before_fork(void) {
    const ask said = {.what = FORK};
    answer heard;
    pages.fork = 0;
    pages.whole = false;
    if (!pages.n || !connected() || !tell(&said, NULL, 0, -1) || !hear(&heard, NULL, 0)) return;
    pages.fork = heard.number;
    pages.whole = !heard.n;
}

void ph_host_pages_in_child(void) {
    if (!pages.n) return;
    close(pages.faults);
    close(pages.socket);
    if (pages.whole) {
        pages.n = 0; /* what these refer to stays the parent's */
        return;
    }
    if (!pages.fork || !connect_as(CLAIM, pages.fork))
        ph_die("a child process cannot have the values of memory that nobody has read yet");
}
