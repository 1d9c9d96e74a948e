/* Memory of the engine, which ends the process where there is none. */
#include "engine.h"

#include <stdlib.h>

void *take(engine *e, size_t nbytes) {
    void *made = calloc(1, nbytes ? nbytes : 1);
    if (!made) abort();
    e->owned = grown(e->owned, e->nowned, &e->owned_room, sizeof *e->owned);
    return e->owned[e->nowned++] = made;
}

/* Room for one more than n of them. */
void *grown(void *at, int64_t n, int64_t *room, size_t each) {
    if (n < *room) return at;
    *room = *room ? 2 * *room : 16;
    void *more = realloc(at, (size_t)*room * each);
    if (!more) abort();
    return more;
}

void put(list *to, void *what) {
    to->all = grown(to->all, to->n, &to->room, sizeof *to->all);
    to->all[to->n++] = what;
}

void *take_first(list *from) {
    void *first = from->all[from->first++];
    if (from->first == from->n) from->first = from->n = 0;
    return first;
}
