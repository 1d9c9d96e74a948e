/*
 * The socket to the coordinator: opened at the rank's start, closed at its end, dropped in children that a rank forks.
 */
#include "channel/channel.h"
#include "core/lock.h"
#include "channel/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
    ph_channel.fd = fd;
    ph_channel.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ph_channel.wake < 0) return -errno;
    ph_channel.ended = false;
    ph_channel.open = true;
    return ph_reader_start();
}

bool ph_channel_is_open(void) { return ph_channel.open; }

void ph_channel_end(void) {
    ph_record_lock();
    ph_channel.ended = true;
    ph_record_unlock();
}

void ph_channel_close(void) {
    if (!ph_channel.open) return;
    ph_send_now();
    ph_channel.open = false;
    shutdown(ph_channel.fd, SHUT_WR); /* the reader still takes what comes, and ends with the process */
}

/* Under all locks. */
void ph_channel_drop_in_child(void) {
    if (ph_channel.fd < 0) return;
    ph_channel.open = false;
    close(ph_channel.fd); /* the coordinator must see the rank's end even if its children live on */
    close(ph_channel.wake);
    ph_channel.fd = ph_channel.wake = -1;
    ph_channel.gathering.n = 0;
    ph_waiters_forget();
}
