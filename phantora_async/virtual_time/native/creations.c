/*
 * Creations of communicators, and of connections within them: all members' hosts go on when the last of them has asked.
 * Who the members are, and the answers, are found when the questions arrive in real time; here is how long the hosts
 * wait. A host asks for two connections at once at most, and goes on when both are made, or at once if it only takes
 * part.
 */
#include <stdlib.h>

#include "engine.h"

static void lose(creation *from, const host *who) {
    int32_t left = 0;
    for (int32_t i = 0; i < from->narrived; i++)
        if (from->arrived[i].host != who) from->arrived[left++] = from->arrived[i];
    from->narrived = left;
}

static undo *note(checkpoint *to, undo_kind kind, creation *of, host *who, int64_t at_ns) {
    undo *entry = write_undo(to, kind);
    entry->creation = of;
    entry->host = who;
    entry->x = at_ns;
    return entry;
}

/* A creation is complete. Has the host waited for it, and for no other? */
static bool has_all(host *who, const creation *made) {
    bool waited = false;
    for (int i = 0; i < 2; i++)
        if (who->awaited[i] == made) waited = true, who->awaited[i] = NULL;
    if (!waited) return false;
    who->waits_for = who->awaited[0] ? who->awaited[0] : who->awaited[1];
    return !who->waits_for;
}

/* The host asks for the communicator. False: it has to wait for others; else those that waited go on now. */
bool join_creation(engine *e, host *who, creation *of) {
    int64_t now_ns = e->now_ns;
    of->waiting = true;
    of->arrived[of->narrived++] = (arrival){.host = who, .at_ns = now_ns};
    if (e->log) {
        note(checkpoint_of(e, who), UNDO_CREATION_ASKED, of, who, now_ns);
        int64_t last_ns = -1;
        for (int32_t i = 0; i < of->narrived; i++)
            if (of->arrived[i].at_ns > last_ns) last_ns = of->arrived[i].at_ns;
        if (of->narrived == of->size && last_ns > now_ns) {
            /* The host that asked last in virtual time asks again, and ends the creation then. */
            list back = {0};
            for (int32_t i = 0; i < of->narrived; i++)
                if (of->arrived[i].at_ns == last_ns) put(&back, of->arrived[i].host);
            for (int64_t i = 0; i < back.n; i++) go_back(e, back.all[i], last_ns);
            free(back.all);
        }
    }
    if (of->narrived < of->size) return false;
    of->waiting = false;
    for (int32_t i = 0; e->log && i < of->narrived; i++)
        note(reach(e, of->arrived[i].host), UNDO_CREATION_ENDED, of, NULL, now_ns);
    for (int32_t i = 0; i < of->narrived; i++)
        if (of->arrived[i].host != who && has_all(of->arrived[i].host, of)) put(&e->woken, of->arrived[i].host);
    return true;
}

void undo_creation_asked(creation *of, host *who) { lose(of, who); }

/* Called when a member goes back. The first call makes all wait again and sends the other members back. */
void undo_creation_ended(engine *e, creation *of, int64_t at_ns) {
    if (of->waiting) return;
    of->waiting = true;
    for (int32_t i = 0; i < of->narrived; i++) demand(e, of->arrived[i].host, at_ns);
}
