/*
 * Copies, fills and arriving bytes really happen, in program order, up to ph_cfg.data_limit_nbytes. Larger ones move no
 * bytes, and their destination becomes unknown.
 *
 * Two rules keep a rank's private memory small. A zero fill gives whole pages back to the kernel instead of writing
 * them. Nothing is written over bytes that are equal already: reading a page that was never written maps the kernel's
 * shared page of zeros, writing it would take a page.
 */
#include "data/data.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/counters.h"
#include "core/warn.h"
#include "data/action.h"
#include "memory/host_memory.h"
#include "memory/memory.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)
#define DROPPED_PAGES ((size_t)256 << 10) /* from this size on, host memory is zeroed by giving its pages back */

static bool is_filled(const unsigned char *bytes, unsigned char value, size_t nbytes) {
    return nbytes == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

static void fill(void *dst, int value, size_t nbytes) {
    if (!is_filled(dst, (unsigned char)value, nbytes)) memset(dst, value, nbytes);
}

static void zero_device(unsigned char *dst, size_t nbytes) {
    unsigned char *from = (unsigned char *)(((uintptr_t)dst + PAGE - 1) & ~(PAGE - 1));
    unsigned char *to = (unsigned char *)(((uintptr_t)dst + nbytes) & ~(PAGE - 1));
    if (from >= to || madvise(from, (size_t)(to - from), MADV_DONTNEED) != 0) {
        fill(dst, 0, nbytes);
        return;
    }
    fill(dst, 0, (size_t)(from - dst));
    fill(to, 0, (size_t)(dst + nbytes - to));
}

static void set_now(void *dst, int value, size_t nbytes) {
    bool device = ph_is_device_pointer(dst);
    if (!device)
        memset(dst, value, nbytes);
    else if ((value & 0xff) == 0)
        zero_device(dst, nbytes);
    else if (nbytes <= ph_cfg.data_limit_nbytes)
        fill(dst, value, nbytes);
    else {
        ph_data_forget(dst, nbytes);
        return;
    }
    ph_data_mark_known(dst, nbytes);
}

/* MADV_FREE is an error for memory that is shared or belongs to a file; there, dropped pages would not read as 0. */
static void zero_host(unsigned char *dst, size_t nbytes) {
    unsigned char *from = (unsigned char *)(((uintptr_t)dst + PAGE - 1) & ~(PAGE - 1));
    unsigned char *to = (unsigned char *)(((uintptr_t)dst + nbytes) & ~(PAGE - 1));
    if (nbytes < DROPPED_PAGES || madvise(from, (size_t)(to - from), MADV_FREE) != 0 ||
        madvise(from, (size_t)(to - from), MADV_DONTNEED) != 0) {
        memset(dst, 0, nbytes);
        return;
    }
    memset(dst, 0, (size_t)(from - dst));
    memset(to, 0, (size_t)(dst + nbytes - to));
}

/* Bytes that are neither known nor assumed read as 0. */
static void read_out(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    if (ph_data_known(src, nbytes)) {
        memmove(dst, src, nbytes);
        return;
    }
    ph_count_unmodelled_read();
    ph_range piece;
    zero_host(dst, nbytes);
    for (size_t at = 0; ph_data_next_readable(src + at, nbytes - at, &piece);) {
        at = (size_t)((unsigned char *)piece.start - src);
        memcpy(dst + at, piece.start, piece.nbytes);
        at += piece.nbytes;
    }
}

/* What is known, assumed or unknown stays so at its new place. */
static void copy_states(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    ph_range piece;
    ph_data_forget(dst, nbytes);
    for (size_t at = 0; ph_data_next_readable(src + at, nbytes - at, &piece);) {
        at = (size_t)((unsigned char *)piece.start - src);
        if (ph_data_known(piece.start, piece.nbytes))
            ph_data_mark_known(dst + at, piece.nbytes);
        else
            ph_data_mark_assumed(dst + at, piece.nbytes);
        at += piece.nbytes;
    }
}

static void copy_now(void *dst, const void *src, size_t nbytes) {
    if (!ph_is_device_pointer(dst)) {
        if (ph_is_device_pointer(src))
            read_out(dst, src, nbytes);
        else
            memmove(dst, src, nbytes);
        return;
    }
    ph_range piece;
    bool known = ph_data_known(src, nbytes);
    if (!known && !ph_data_next_readable(src, nbytes, &piece)) {
        ph_data_forget(dst, nbytes); /* no byte of the source is worth moving */
        return;
    }
    if (memcmp(dst, src, nbytes) != 0) memmove(dst, src, nbytes);
    if (known)
        ph_data_mark_known(dst, nbytes);
    else
        copy_states(dst, src, nbytes);
}

static void arrive_now(const ph_action *action) {
    const ph_range *to = &action->ranges[action->nreads];
    if (action->staged_nbytes == 0) {
        ph_data_forget(to->start, to->nbytes);
        return;
    }
    if (action->staged_nbytes < to->nbytes ||
        action->staged_nbytes - to->nbytes >= 8) /* up to 7 bytes of a record's padding may be counted */
        ph_die("the coordinator sent %zu bytes under token %llu, but %zu were expected", action->staged_nbytes,
               (unsigned long long)action->token, to->nbytes);
    if (memcmp(to->start, action->staged, to->nbytes) != 0) memcpy(to->start, action->staged, to->nbytes);
    ph_data_mark_known(to->start, to->nbytes);
}

/* What an action writes is known if all that it reads is known. */
static void call_now(const ph_action *action) {
    bool known = true;
    for (int i = 0; i < action->nreads && known; i++)
        known = ph_data_known(action->ranges[i].start, action->ranges[i].nbytes);
    action->run(action->arg);
    for (int i = action->nreads; i < action->nreads + action->nwrites; i++)
        (known ? ph_data_mark_known : ph_data_forget)(action->ranges[i].start, action->ranges[i].nbytes);
}

void ph_action_perform(ph_action *action) {
    const ph_range *to = &action->ranges[action->nreads];
    switch (action->kind) {
    case PH_ACTION_COPY:
        copy_now(to->start, action->staged ? action->staged : action->source, to->nbytes);
        break;
    case PH_ACTION_SET:
        set_now(to->start, action->value, to->nbytes);
        break;
    case PH_ACTION_FORGET:
        ph_data_forget(to->start, to->nbytes);
        break;
    case PH_ACTION_EXPECT:
        arrive_now(action);
        break;
    case PH_ACTION_CALL:
        call_now(action);
        break;
    case PH_ACTION_PYTHON: /* it says itself what is known of its results */
    case PH_ACTION_HOST:
        action->run(action->arg);
        break;
    }
}

/* Copies that this thread makes may be larger than others (the control tensors of emu/control). */
static _Thread_local size_t allowed;

PH_EXPORT void phantora_data_allow(uint64_t nbytes) { allowed = nbytes; }

static size_t limit(void) { return allowed > ph_cfg.data_limit_nbytes ? allowed : ph_cfg.data_limit_nbytes; }

void ph_data_copy(void *dst, const void *src, size_t nbytes) {
    bool from_device = ph_is_device_pointer(src), to_device = ph_is_device_pointer(dst);
    if (!nbytes || dst == src) return;
    if (to_device && nbytes > limit()) {
        ph_data_overwrite(dst, nbytes);
        return;
    }
    ph_range read = {(void *)(uintptr_t)src, nbytes}, write = {dst, nbytes};
    if (!ph_action_conflicts(&read, 1, &write, 1)) {
        copy_now(dst, src, nbytes);
        return;
    }
    /* The program may use host memory again once the call returns, so its bytes are taken now. Only if bytes of pinned
     * memory are pending themselves (from a copy or a host function) they are read later. */
    bool stage = !from_device && !(ph_host_pinned(src) && ph_data_pending(src, nbytes));
    ph_action *action = ph_action_new(PH_ACTION_COPY, &read, stage ? 0 : 1, &write, 1);
    action->source = src;
    if (stage) {
        action->staged = ph_allocate(nbytes);
        memcpy(action->staged, src, nbytes);
    }
    ph_action_submit(action);
}

void ph_data_overwrite(const void *start, size_t nbytes) {
    ph_range write = {(void *)(uintptr_t)start, nbytes};
    if (!nbytes || !ph_is_device_pointer(start)) return;
    ph_data_note_writer(start);
    if (ph_action_conflicts(NULL, 0, &write, 1))
        ph_action_submit(ph_action_new(PH_ACTION_FORGET, NULL, 0, &write, 1));
    else
        ph_data_forget(start, nbytes);
}

void ph_data_set(void *dst, int value, size_t nbytes) {
    ph_range write = {dst, nbytes};
    if (!nbytes) return;
    if (!ph_action_conflicts(NULL, 0, &write, 1)) {
        set_now(dst, value, nbytes);
        return;
    }
    ph_action *action = ph_action_new(PH_ACTION_SET, NULL, 0, &write, 1);
    action->value = value;
    ph_action_submit(action);
}

void ph_data_expect(uint64_t token, void *dst, size_t nbytes) {
    ph_range write = {dst, nbytes};
    ph_action *action = ph_action_new(PH_ACTION_EXPECT, NULL, 0, &write, 1);
    action->token = token;
    ph_action_submit(action);
}

void ph_data_action(const ph_range *reads, int nreads, const ph_range *writes, int nwrites, void (*run)(void *),
                    void *arg) {
    ph_action *action = ph_action_new(PH_ACTION_CALL, reads, nreads, writes, nwrites);
    action->run = run;
    action->arg = arg;
    ph_action_submit(action);
}
