/*
 * Batches leave. Whoever sends takes the whole batch that has gathered and leaves an empty one in its place.
 */
#include "channel/internal.h"
#include "core/lock.h"
#include "core/run.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

_Noreturn void ph_coordinator_is_gone(void) {
    fprintf(stderr, "phantora-async: rank %u: the coordinator has closed the connection: this rank ends\n",
            ph_run.rank);
    _exit(PH_EXIT_DISCONNECTED);
}

/* Under the send lock. */
static void take_batch(void) {
    ph_lock(PH_LOCK_RECORDS);
    ph_buffer empty = ph_channel.leaving;
    ph_channel.leaving = ph_channel.gathering;
    ph_channel.gathering = empty;
    ph_channel.gathering.n = 0;
    ph_unlock(PH_LOCK_RECORDS);
    ph_channel.left = 0;
}

/* Under the send lock: sends until nothing is left or, without blocking, as much as the socket takes. Returns whether
 * something is left of a batch. */
static bool send_gathered(bool may_block) {
    while (ph_channel.open) {
        if (ph_channel.left == ph_channel.leaving.n) take_batch();
        if (ph_channel.leaving.n == 0) return false;
        ssize_t sent = send(ph_channel.fd, ph_channel.leaving.bytes + ph_channel.left,
                            ph_channel.leaving.n - ph_channel.left, MSG_NOSIGNAL | (may_block ? 0 : MSG_DONTWAIT));
        if (sent >= 0)
            ph_channel.left += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return true;
        else if (errno != EINTR && !ph_run.finished)
            ph_coordinator_is_gone();
        else if (errno != EINTR)
            return false;
    }
    return false;
}

bool ph_send_now(void) {
    if (!ph_on_reader)
        ph_lock(PH_LOCK_SEND);
    else if (!ph_trylock(PH_LOCK_SEND))
        return false; /* who has the lock sends all */
    bool left = send_gathered(!ph_on_reader);
    ph_unlock(PH_LOCK_SEND);
    return left;
}

void ph_send_if_full(size_t gathered_nbytes) {
    if (gathered_nbytes < PH_BATCH_NBYTES) return;
    if (gathered_nbytes >= PH_BACKLOG_NBYTES || ph_on_reader) {
        ph_send_now();
        return;
    }
    if (!ph_trylock(PH_LOCK_SEND)) return;
    send_gathered(true);
    ph_unlock(PH_LOCK_SEND);
}
