/*
 * Where a GPU's time goes, and samples of it. At any instant it computes (a segment of kernels has work left), else an
 * NCCL kernel moves data, else it copies from or to others, else waits for peers, else waits for its host, else is
 * idle: empty while the host waits for something else.
 */
#include <string.h>

#include "engine.h"

enum { COMPUTE, COPIES, TRANSFER, PEERS, HOST_BOUND, IDLE_TIME, COMMUNICATION };
#define NO_SAMPLES NEVER

/* Returns from when on time is still to be booked. */
static int64_t book_until(device *it, int account, int64_t since_ns, int64_t until_ns, int64_t now_ns) {
    if (until_ns > now_ns) until_ns = now_ns;
    if (until_ns <= since_ns) return since_ns;
    it->shares[account] += until_ns - since_ns;
    return until_ns;
}

static void book(device *it, int64_t now_ns) {
    int64_t since = it->since_ns;
    if (now_ns <= since) return;
    if (it->resident) it->shares[COMMUNICATION] += now_ns - since;
    since = book_until(it, COMPUTE, since, it->computing_until_ns, now_ns);
    if (!it->transferring) since = book_until(it, COPIES, since, it->busy_until_ns, now_ns);
    int which = it->transferring ? TRANSFER : it->resident ? PEERS : it->host->state ? IDLE_TIME : HOST_BOUND;
    it->shares[which] += now_ns - since;
    it->since_ns = now_ns;
}

/* Notes the accounts at every instant for them that has been reached. */
static void sample(device *it, int64_t now_ns) {
    int64_t at_ns = it->sample_ns;
    /* twice as many parts as are shown: what is taken back must not decide their width */
    while (now_ns > 2 * it->parts * it->width_ns) {
        it->width_ns *= 2;
        int64_t left = (it->nsamples + 1) / 2;
        for (int64_t i = 1; i < left; i++)
            memmove(it->samples + i * ACCOUNTS, it->samples + 2 * i * ACCOUNTS, ACCOUNTS * sizeof *it->samples);
        it->nsamples = left;
    }
    int64_t place = at_ns / it->width_ns + (at_ns % it->width_ns != 0);
    for (; place * it->width_ns <= now_ns; place++) {
        book(it, place * it->width_ns);
        while ((place + 1) * ACCOUNTS > it->samples_room)
            it->samples = grown(it->samples, it->samples_room, &it->samples_room, sizeof *it->samples);
        memcpy(it->samples + place * ACCOUNTS, it->shares, ACCOUNTS * sizeof *it->samples);
        if (place == it->nsamples) it->nsamples++;
    }
    it->sample_ns = place * it->width_ns;
}

void account(device *it, int64_t now_ns) {
    if (now_ns >= it->sample_ns) sample(it, now_ns);
    book(it, now_ns);
}

void reset_samples(device *it) {
    it->width_ns = ((int64_t)1 << 27) / it->parts;
    it->nsamples = 0;
}

/* Until this instant. Books nothing. */
void device_shares(const device *it, int64_t now_ns, int64_t shares[SHARES]) {
    device copy = *it;
    copy.sample_ns = NO_SAMPLES;
    book(&copy, now_ns);
    memcpy(shares, copy.shares, SHARES * sizeof *shares);
}

/* Of all the host's devices whose time counts. */
void shares_of(const host *it, int64_t now_ns, int64_t shares[SHARES]) {
    memset(shares, 0, SHARES * sizeof *shares);
    for (const device *one = it->devices; one; one = one->next) {
        if (!one->used || one->number >= DEVICE_APART) continue;
        int64_t its[SHARES];
        device_shares(one, now_ns, its);
        for (int i = 0; i < SHARES; i++) shares[i] += its[i];
    }
}
