/* Where a GPU's time goes, and samples of it; see entities/device.py and over_time/samples.py. */
#include "engine.h"

#include <string.h>

static void book(device *it, int64_t now_ns) {
    int64_t since = it->since_ns;
    if (now_ns <= since) return;
    if (it->resident) it->communication_ns += now_ns - since;
    if (it->busy_until_ns > since) {
        int64_t until = it->busy_until_ns < now_ns ? it->busy_until_ns : now_ns;
        it->compute_ns += until - since;
        since = until;
    }
    int64_t rest = now_ns - since;
    if (it->transferring)
        it->transfer_ns += rest;
    else if (it->resident)
        it->peers_ns += rest;
    else if (it->host->state)
        it->idle_ns += rest;
    else
        it->host_bound_ns += rest;
    it->since_ns = now_ns;
}

static void sample(device *it, int64_t now_ns, int64_t parts) {
    int64_t at_ns = it->sample_ns;
    while (now_ns > 2 * parts * it->width_ns) {
        it->width_ns *= 2;
        int64_t kept = (it->nsamples + 1) / 2;
        for (int64_t i = 1; i < kept; i++)
            memmove(it->samples + i * ACCOUNTS, it->samples + 2 * i * ACCOUNTS, ACCOUNTS * sizeof *it->samples);
        it->nsamples = kept;
    }
    int64_t place = at_ns / it->width_ns + (at_ns % it->width_ns != 0);
    for (; place * it->width_ns <= now_ns; place++) {
        book(it, place * it->width_ns);
        while ((it->nsamples + 1) * ACCOUNTS > it->samples_room)
            it->samples = grown(it->samples, it->samples_room, &it->samples_room, sizeof *it->samples);
        int64_t *to = it->samples + place * ACCOUNTS;
        to[0] = it->compute_ns, to[1] = it->transfer_ns, to[2] = it->peers_ns;
        to[3] = it->host_bound_ns, to[4] = it->idle_ns;
        if (place == it->nsamples) it->nsamples++;
    }
    it->sample_ns = place * it->width_ns;
}

void account(device *it, int64_t now_ns) {
    if (now_ns >= it->sample_ns) sample(it, now_ns, it->room_parts);
    book(it, now_ns);
}

void shares_of(const host *it, int64_t now_ns, int64_t shares[6]) {
    memset(shares, 0, 6 * sizeof *shares);
    for (const device *one = it->devices; one; one = one->next) {
        if (!one->used || one->number >= APART) continue;
        device copy = *one;
        book(&copy, now_ns);
        shares[0] += copy.compute_ns, shares[1] += copy.transfer_ns, shares[2] += copy.peers_ns;
        shares[3] += copy.host_bound_ns, shares[4] += copy.idle_ns, shares[5] += copy.communication_ns;
    }
}
