/*
 * stub/: stands in for the Python interpreter inside an emulated server. Programs that start `python ...` start this:
 * it has the server fork its warm interpreter, which has torch and the emulated GPUs, and hands it what a process
 * inherits: arguments, environment, working directory, descriptors. Then it waits, passes signals on, and ends as that
 * process.
 *
 * Comes in: the command line; PHANTORA_SERVER, the server's socket; PHANTORA_PYTHON, the real interpreter, which runs
 * what the server does not take. Goes out: one request; a byte for each signal.
 *
 * The request: its length, then the numbers of the descriptors, arguments, environment, working directory, each list
 * with its length first, all numbers as 32 bits, texts with a terminating 0. An answer: kind and value, 32 bits each.
 * The first tells the process id if the server has forked; the last tells how the process ended.
 */
#define _GNU_SOURCE
#include "../contract/definitions/thread_names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { MAX_DESCRIPTORS = 250, CANNOT = 127, BROKEN = 70 };
enum answer { NOT_TAKEN, EXITED, KILLED, FORKED, NO_FILES };
static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGALRM};

static int server = -1;

static struct {
    char *bytes;
    size_t n, capacity;
} request;

static void add(const void *bytes, size_t n) {
    if (request.n + n > request.capacity) {
        request.capacity = 2 * (request.n + n);
        request.bytes = realloc(request.bytes, request.capacity);
        if (!request.bytes) _exit(BROKEN);
    }
    memcpy(request.bytes + request.n, bytes, n);
    request.n += n;
}

static void add_number(uint32_t number) { add(&number, sizeof number); }

static void add_texts(char **texts) {
    uint32_t n = 0;
    while (texts[n]) n++;
    add_number(n);
    for (uint32_t i = 0; i < n; i++) add(texts[i], strlen(texts[i]) + 1);
}

static int real_interpreter(char **argv) {
    const char *python = getenv("PHANTORA_PYTHON");
    if (python) {
        const char *name = strrchr(argv[0], '/');
        name = name ? name + 1 : argv[0];
        if (strncmp(name, "python", 6) == 0) {
            argv[0] = (char *)python;
            execv(python, argv);
        } else { /* a program installed beside the interpreter */
            char path[PATH_MAX];
            const char *slash = strrchr(python, '/');
            snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - python) : 0, python, name);
            execv(path, argv);
        }
    }
    fprintf(stderr, "phantora-async: cannot start %s: %s\n", python ? python : argv[0], strerror(errno));
    return CANNOT;
}

static int connect_to_server(void) {
    const char *path = getenv("PHANTORA_SERVER");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Descriptors that a program executed in place of this one would inherit. */
static int open_descriptors(int32_t numbers[MAX_DESCRIPTORS]) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) && n < MAX_DESCRIPTORS;) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && number != dirfd(folder) && number != server) numbers[n++] = number;
    }
    closedir(folder);
    return n;
}

static bool send_all(const char *bytes, size_t n) {
    while (n) {
        ssize_t sent = send(server, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_request(char **argv) {
    int32_t numbers[MAX_DESCRIPTORS];
    uint32_t n = (uint32_t)open_descriptors(numbers);
    char folder[PATH_MAX];
    if (!getcwd(folder, sizeof folder)) strcpy(folder, "/");
    add_number(n);
    add(numbers, n * sizeof *numbers);
    add_texts(argv);
    add_texts(environ);
    add_texts((char *[]){folder, NULL});
    uint32_t length = (uint32_t)request.n;
    union {
        char bytes[CMSG_SPACE(sizeof numbers)];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {&length, sizeof length};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (n) {
        /* Descriptors travel beside bytes: here beside the request's length. */
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof *numbers);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n * sizeof *numbers);
        memcpy(CMSG_DATA(header), numbers, n * sizeof *numbers);
    }
    return sendmsg(server, &message, MSG_NOSIGNAL) == sizeof length && send_all(request.bytes, request.n);
}

static void pass_on(int number) {
    int before = errno;
    unsigned char byte = (unsigned char)number;
    (void)!send(server, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    errno = before;
}

static bool receive(uint32_t answer[2]) {
    size_t n = 0;
    while (n < 2 * sizeof *answer) {
        ssize_t got = recv(server, (char *)answer + n, 2 * sizeof *answer - n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        n += (size_t)got;
    }
    return true;
}

/* Name this process so that it counts as working (liveness/sleep_detector.py) as long as the server does its work,
 * and so that the process that works in its place is found then. */
static void name_awake(void) { prctl(PR_SET_NAME, ph_name_AWAKE); }
static void name_after(uint32_t pid) {
    char name[16];
    snprintf(name, sizeof name, "%s %u", ph_name_STANDS_FOR, pid);
    prctl(PR_SET_NAME, name);
}

static int end_by(int number) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); /* the process has written its own, if any */
    signal(number, SIG_DFL);
    sigset_t unblocked;
    sigemptyset(&unblocked);
    sigaddset(&unblocked, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &unblocked, NULL);
    return 128 + number;
}

int main(int argc, char **argv) {
    (void)argc;
    server = connect_to_server();
    if (server < 0) return real_interpreter(argv);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, before;
        if (sigaction(passed_on[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(passed_on[i], &action, NULL);
    }
    uint32_t answer[2];
    name_awake();
    if (!send_request(argv)) shutdown(server, SHUT_WR); /* a server that has refused does not read on */
    if (!receive(answer)) return BROKEN;
    if (answer[0] == FORKED) {
        name_after(answer[1]);
        if (!receive(answer)) return BROKEN;
    }
    if (answer[0] == NOT_TAKEN) {
        close(server);
        return real_interpreter(argv); /* execv resets the handlers */
    }
    if (answer[0] == NO_FILES) {
        fprintf(stderr,
                "phantora-async: no further process: the emulated server may not open more files (ulimit -n)\n");
        return BROKEN;
    }
    return answer[0] == KILLED ? end_by((int)answer[1]) : (int)answer[1];
}
