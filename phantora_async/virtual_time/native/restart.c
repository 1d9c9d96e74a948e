/*
 * All ranks start again at one instant, because a rank failed and its launcher restarts the job; or one rank goes on
 * with another process, because its former one has ended well. Streams, events, communicators and waits end with the
 * processes; bytes that collectives have given to the network still arrive.
 */
#include "engine.h"

/* Nothing is left of the rank's process but what has been counted. */
void end_process(engine *e, host *it) {
    for (int64_t i = 0; i < it->nstreams; i++) drop(e, &it->streams[i]->due);
    drop(e, &it->due);
    for (device *one = it->devices; one; one = one->next) {
        if (!one->used) {
            one->there = false;
            continue;
        }
        account(one, e->now_ns);
        one->resident = one->transferring = one->busy_streams = 0;
        one->nrunning = 0;
        one->host_waits = false;
        if (one->busy_until_ns > e->now_ns) one->busy_until_ns = e->now_ns;
        if (one->computing_until_ns > e->now_ns) one->computing_until_ns = e->now_ns;
    }
    free_rows(it, it->cursor, it->nrows);
    it->nrows = it->cursor;
    it->answered = facts_done(it);
    it->nstreams = 0;
    it->recordings.n = 0;
    for (int64_t i = 0; i < it->recordings.room; i++) it->recordings.keys[i] = 0;
    it->wait = FOR_NOTHING;
    it->waits_for = NULL;
    it->state = ENDED;
    it->asking = (turns){0};
    it->known = 0;
    it->silent = it->may_pass = it->retry = it->poll_delayed = false;
    it->polls = 0;
    it->batch = generated_until(it->batch, e->now_ns);
    if (it->batch.responses) note_generation(it, e->now_ns, BATCH, NULL);
    it->batch.responses = it->batch.most = 0;
}
