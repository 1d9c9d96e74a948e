/*
 * How simulated time is taken back, rank by rank.
 *
 * While the simulation runs ahead of global virtual time, every rank keeps checkpoints: one for each instant at which
 * something happened to it, with the saved fields of its host, streams and devices as they were before. To go back to
 * an instant, the rank restores its oldest checkpoint from that instant on. What several ranks share, or is too much to
 * copy, is undone through the checkpoints' undo entries, the latest first. An entry can demand that other ranks go
 * back, too: undoing the begin of a collective sends all its members back. Times are never computed back, and ranks
 * that the entries do not name keep their history. Without speculation nothing is written.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* ---- checkpoints ---- */

static checkpoint *save(const engine *e, const host *it) {
    int64_t ndevices = 0, nrunning = 0;
    for (const device *one = it->devices; one; one = one->next) ndevices++, nrunning += one->nrunning;
    size_t streams_nbytes = (size_t)it->nstreams * sizeof(struct saved_stream);
    size_t devices_nbytes = (size_t)ndevices * sizeof(struct saved_device);
    checkpoint *made = take(sizeof *made + streams_nbytes + devices_nbytes + (size_t)nrunning * sizeof(stream *));
    made->at_ns = e->now_ns;
    made->facts = facts_done(it);
    made->host = it->saved;
    made->due = save_event(&it->due);
    made->nstreams = it->nstreams;
    made->ndevices = ndevices;
    made->streams = (struct saved_stream *)(made + 1);
    made->devices = (struct saved_device *)((char *)made->streams + streams_nbytes);
    stream **running = (stream **)((char *)made->devices + devices_nbytes);
    for (int64_t i = 0; i < it->nstreams; i++) {
        stream *one = it->streams[i];
        made->streams[i] = (struct saved_stream){one, save_event(&one->due), one->saved};
    }
    int64_t i = 0;
    for (device *one = it->devices; one; one = one->next, i++) {
        made->devices[i] = (struct saved_device){one, one->saved, running};
        if (one->nrunning) memcpy(running, one->running, (size_t)one->nrunning * sizeof *running);
        running += one->nrunning;
    }
    return made;
}

void free_checkpoint(checkpoint *it) {
    free(it->undo);
    free(it->answers);
    free(it->told);
    free(it);
}

static void restore(engine *e, host *it, const checkpoint *from) {
    for (int64_t i = 0; i < it->nstreams; i++) drop(e, &it->streams[i]->due);
    for (device *one = it->devices; one; one = one->next) { /* for those that were not seen then */
        one->saved = (device_saved){.since_ns = -1};
    }
    it->saved = from->host;
    it->cursor = from->facts - it->forgotten;
    for (int64_t i = 0; i < from->nstreams; i++) {
        const struct saved_stream *one = &from->streams[i];
        one->stream->saved = one->saved;
        put_back(e, &one->stream->due, &one->due);
    }
    for (int64_t i = 0; i < from->ndevices; i++) {
        const struct saved_device *one = &from->devices[i];
        one->device->saved = one->saved;
        if (one->saved.nrunning)
            memcpy(one->device->running, one->running, (size_t)one->saved.nrunning * sizeof *one->running);
    }
    for (device *one = it->devices; one; one = one->next)
        if (!one->there) reset_samples(one);
    put_back(e, &it->due, &from->due);
}

/* The host's checkpoint of the present instant, opened before anything of the host changes. */
checkpoint *checkpoint_of(engine *e, host *it) {
    if (it->ncheckpoints) {
        checkpoint *last = it->checkpoints[it->ncheckpoints - 1];
        if (last->at_ns == e->now_ns) return last;
        assert(last->at_ns < e->now_ns);
    }
    it->checkpoints = grown(it->checkpoints, it->ncheckpoints, &it->checkpoints_room, sizeof *it->checkpoints);
    e->kept++;
    return it->checkpoints[it->ncheckpoints++] = save(e, it);
}

/* For an event of the host's own: the undo entries of what follows go there. */
checkpoint *act(engine *e, host *it) {
    e->acting = checkpoint_of(e, it);
    e->acting->events++;
    return e->acting;
}

/* For what another rank's event does to the host: if the host is ahead, it goes back to now. */
checkpoint *reach(engine *e, host *it) {
    go_back(e, it, e->now_ns + 1);
    return checkpoint_of(e, it);
}

undo *write_undo(checkpoint *to, undo_kind kind) {
    to->undo = grown(to->undo, to->nundo, &to->undo_room, sizeof *to->undo);
    to->undo[to->nundo] = (undo){.kind = kind};
    return &to->undo[to->nundo++];
}

/* ---- going back ---- */

static void lose_stream(engine *e, host *of, stream *it) {
    int64_t left = 0;
    for (int64_t i = 0; i < of->nstreams; i++)
        if (of->streams[i] != it) of->streams[left++] = of->streams[i];
    of->nstreams = left;
    drop(e, &it->due); /* nobody restores a stream that is gone */
}

static void take_back(engine *e, const undo *it) {
    recording *of = (recording *)it->one;
    kernel *who;
    switch (it->kind) {
    case UNDO_STREAM_CREATED:
        lose_stream(e, it->host, (stream *)it->one);
        return;
    case UNDO_RECORDED:
        lose_recording(it->host, of->number);
        return;
    case UNDO_DROPPED:
        keep_recording(it->host, of);
        return;
    case UNDO_WAITER:
        of->nwaiters--;
        return;
    case UNDO_UNWAITED:
        of->waiters[it->x].nobody = false;
        return;
    case UNDO_COMPLETED:
        of->done_ns = -1;
        of->nwaiters = (int32_t)it->x;
        return;
    case UNDO_STEP:
        ((step_end *)it->one)->pending = it->x;
        return;
    case UNDO_ITEM:
        ITEM((stream *)it->one, it->x) = it->old;
        return;
    case UNDO_ARRIVED:
        undo_arrived(e, (collective *)it->one, (kernel *)it->two);
        return;
    case UNDO_KERNEL:
        who = (kernel *)it->one;
        who->active = (int32_t)it->x;
        who->remaining = (int32_t)it->y;
        return;
    case UNDO_BEGUN:
        undo_begun(e, (collective *)it->one, it->x);
        return;
    case UNDO_DELIVERED:
        undo_delivered(e, (collective *)it->one, (kernel *)it->two);
        return;
    case UNDO_WITHDRAWN:
        undo_withdrawn((collective *)it->one, (kernel *)it->two);
        return;
    case UNDO_CREATION_ASKED:
        undo_creation_asked(it->creation, it->host);
        return;
    case UNDO_CREATION_ENDED:
        undo_creation_ended(e, it->creation, it->x);
        return;
    }
}

/* The host has to go back, too; `settle` does it. */
void demand(engine *e, host *it, int64_t at_ns) {
    e->demands = grown(e->demands, e->ndemands, &e->demands_room, sizeof *e->demands);
    e->demands[e->ndemands].host = it;
    e->demands[e->ndemands++].at_ns = at_ns;
}

/* The host, and all that must go back with it, are as they were before this instant. False: nothing changed. */
bool go_back(engine *e, host *it, int64_t at_ns) {
    if (!it->ncheckpoints || it->checkpoints[it->ncheckpoints - 1]->at_ns < at_ns) return false;
    demand(e, it, at_ns);
    settle(e);
    return true;
}

/* Meets all demands, and those that their undo entries make. */
void settle(engine *e) {
    while (e->ndemands) {
        host *it = e->demands[--e->ndemands].host;
        int64_t at_ns = e->demands[e->ndemands].at_ns;
        checkpoint *oldest = NULL;
        while (it->ncheckpoints && it->checkpoints[it->ncheckpoints - 1]->at_ns >= at_ns) {
            if (oldest) free_checkpoint(oldest);
            oldest = it->checkpoints[--it->ncheckpoints];
            if (e->acting == oldest) e->acting = NULL;
            e->kept--;
            e->events_back += oldest->events;
            for (int64_t i = oldest->nundo; i-- > 0;) take_back(e, &oldest->undo[i]);
        }
        if (!oldest) continue;
        e->rollbacks++;
        e->facts_back += facts_done(it) - oldest->facts;
        restore(e, it, oldest);
        free_checkpoint(oldest);
        put(&e->restored, it);
    }
}
