/*
 * Copies, fills and arriving bytes really happen, in program order. Up to ph_cfg.data_limit_nbytes bytes are moved,
 * beyond that references to sources.
 */
#include "data/data.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/run.h"
#include "data/action.h"
#include "memory/pinned.h"
#include "memory/memory.h"

#include <string.h>

size_t ph_data_mask_nbytes(size_t nbytes) { return (nbytes + 63) / 64 * 8; }

static bool has_bit(const unsigned char *mask, size_t i) { return mask[i / 8] >> i % 8 & 1; }

/* `mask`: a bit for each byte of the range. */
static void mark_known_bytes(const ph_range *to, const unsigned char *mask) {
    unsigned char *start = to->start;
    ph_data_forget(start, to->nbytes);
    for (size_t i = 0; i < to->nbytes; i++) {
        size_t from = i;
        while (i < to->nbytes && has_bit(mask, i)) i++;
        if (i > from) ph_data_mark_known(start + from, i - from);
    }
}

static void arrive_now(const ph_action *action) {
    const ph_range *to = &action->ranges[action->nreads];
    if (action->staged_nbytes == 0) {
        ph_data_forget(to->start, to->nbytes);
        return;
    }
    size_t before = action->assumed == PH_SOME_KNOWN ? ph_data_mask_nbytes(to->nbytes) : 0;
    const unsigned char *bytes = action->staged + before;
    if (action->staged_nbytes < before + to->nbytes ||
        action->staged_nbytes - before - to->nbytes >= 8) /* up to 7 bytes of a record's padding may be counted */
        ph_die("the coordinator sent %zu bytes under token %llu, but %zu were expected", action->staged_nbytes,
               (unsigned long long)action->token, before + to->nbytes);
    if (memcmp(to->start, bytes, to->nbytes) != 0) memcpy(to->start, bytes, to->nbytes);
    if (before) {
        mark_known_bytes(to, action->staged);
        return;
    }
    (action->assumed ? ph_data_mark_assumed : ph_data_mark_known)(to->start, to->nbytes);
    if (action->assumed == PH_ALL_CHECKS) ph_data_mark_chosen(to->start, to->nbytes);
}

/* Runs the action at once. What it writes is known if all that it reads is known. */
static void call_now(const ph_action *action) {
    bool known = true;
    for (int i = 0; i < action->nreads && known; i++) {
        ph_data_settle(action->ranges[i].start, action->ranges[i].nbytes);
        known = ph_data_known(action->ranges[i].start, action->ranges[i].nbytes);
    }
    action->run(action->arg);
    for (int i = action->nreads; i < action->nreads + action->nwrites; i++)
        (known ? ph_data_mark_known : ph_data_forget)(action->ranges[i].start, action->ranges[i].nbytes);
}

void ph_action_perform(ph_action *action) {
    const ph_range *to = &action->ranges[action->nreads];
    switch (action->kind) {
    case PH_ACTION_COPY:
        ph_move_copy(to->start, action->staged ? action->staged : action->source, to->nbytes, action->large);
        break;
    case PH_ACTION_SET:
        ph_move_set(to->start, action->value, to->nbytes);
        break;
    case PH_ACTION_REFER:
        ph_move_refer(to->start, action->content, action->offset, to->nbytes);
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
    bool large = to_device && nbytes > limit();
    /* The program may use host memory again once the call returns, so its bytes are taken now. Only if bytes of pinned
     * memory are pending themselves (from a copy or a host function) they are read later. */
    bool later = from_device || (ph_host_pinned(src) && ph_data_pending(src, nbytes));
    if (large && !later) {
        ph_move_from_host(dst, src, nbytes, ph_data_refer);
        return;
    }
    ph_range read = {(void *)(uintptr_t)src, nbytes}, write = {dst, nbytes};
    if (!ph_action_conflicts(&read, 1, &write, 1)) {
        ph_move_copy(dst, src, nbytes, large);
        return;
    }
    ph_action *action = ph_action_new(PH_ACTION_COPY, &read, later, &write, 1);
    action->source = src;
    action->large = large;
    if (!later) {
        action->staged = ph_allocate(nbytes);
        memcpy(action->staged, src, nbytes);
    }
    ph_action_submit(action);
}

void ph_data_refer(void *dst, ph_source *source, uint64_t offset, size_t nbytes) {
    ph_range write = {dst, nbytes};
    if (ph_action_running() || !ph_action_conflicts(NULL, 0, &write, 1)) {
        ph_move_refer(dst, source, offset, nbytes);
        return;
    }
    ph_action *action = ph_action_new(PH_ACTION_REFER, NULL, 0, &write, 1);
    action->content = source;
    action->offset = offset;
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
        ph_move_set(dst, value, nbytes);
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

static void arrived(const unsigned char *body, size_t nbytes) {
    struct ph_DATA data;
    memcpy(&data, body, sizeof data);
    ph_data_arrived(data.token, body + sizeof data, nbytes - sizeof data, (int)data.assumed);
}

void ph_data_connect(void) {
    PH_CONNECT(ph_pages_dropped, ph_data_forget);
    ph_on_record(PH_KIND_DATA, arrived);
}
