/* The data engine: what is pending, in which order deferred actions run, what is known. */
#include "data/action.h"
#include "fakes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int phantora_data_state(uint64_t, uint64_t);
int phantora_data_strided_state(uint64_t, int64_t, int, const int64_t *, const int64_t *);
void phantora_data_strided_mark(int, uint64_t, int64_t, int, const int64_t *, const int64_t *);
int phantora_data_action(const uint64_t *, int, const uint64_t *, int, void (*)(uint64_t), uint64_t);

static void fill(int *p, int n, int from) {
    for (int i = 0; i < n; i++) p[i] = from + i;
}

static void copies_and_sets_happen_at_once(void) {
    int *a = fake_device(4096), *b = fake_device(4096), host[16], back[16] = {0};
    fill(host, 16, 5);
    ph_data_copy(a, host, sizeof host);
    host[0] = 99; /* the source may be reused */
    ph_data_copy(b, a, sizeof host);
    ph_data_wait(b, sizeof host);
    ph_data_copy(back, b, sizeof host);
    CHECK(back[0] == 5 && back[15] == 20);
    CHECK(ph_data_known(b, sizeof host) && !ph_data_known(b, sizeof host + 1));
    ph_data_set(b, 0xff, 8);
    CHECK(b[0] == -1 && b[1] == -1 && b[2] == 7);
    ph_data_set(b, 0, sizeof host);
    CHECK(b[2] == 0 && ph_data_known(b, sizeof host));
}

static void zero_fills_give_pages_back(void) {
    unsigned char *a = fake_device(1 << 20);
    ph_data_set(a, 7, 1 << 20);
    CHECK(a[5000] == 7 && ph_data_known(a, 1 << 20));
    ph_data_set(a + 100, 0, (1 << 20) - 200);
    CHECK(a[99] == 7 && a[100] == 0 && a[5000] == 0 && a[(1 << 20) - 101] == 0 && a[(1 << 20) - 100] == 7);
}

static void large_copies_are_read_back(void) {
    enum { LARGE = 4 << 20 };
    char *a = fake_device(LARGE), *b = fake_device(LARGE), *host = calloc(1, LARGE), *back = malloc(LARGE);
    for (int i = 0; i < LARGE; i++) host[i] = (char)(i * 7 + i / 4096);
    ph_data_copy(a, host, LARGE);
    CHECK(a[10] == 0 && !ph_data_known_any(a, LARGE)); /* no page was touched */
    CHECK(ph_data_unknown(a, LARGE, false) == 0);
    ph_data_copy(b, a, LARGE);
    ph_data_set(a, 3, LARGE);
    ph_data_set(b + 100, 0, 50);
    ph_data_overwrite(b + 1000, 24);
    ph_data_copy(back, a, LARGE);
    for (int i = 0; i < LARGE; i++) CHECK(back[i] == 3);
    CHECK(ph_data_unknown(b, LARGE, false) == 24);
    memset(back, 1, LARGE);
    ph_data_copy(back, b, LARGE);
    for (int i = 0; i < LARGE; i++) CHECK(back[i] == ((i >= 100 && i < 150) || (i >= 1000 && i < 1024) ? 0 : host[i]));
    uint64_t at = (uint64_t)(uintptr_t)b + 5000;
    CHECK(phantora_data_state(at, 64) == 1 && memcmp(b + 5000, host + 5000, 64) == 0); /* now they lie there */
    CHECK(!ph_data_known(b + 5064, 1) && ph_data_unknown(b + 5000, 128, false) == 0);
    free(host);
    free(back);
}

static void strips_written_to_a_large_copy_leave_the_rest(void) {
    enum { STRIPS = 1000, STRIP = 4096, WRITTEN = 64 };
    size_t large = (size_t)STRIPS * STRIP;
    char *a = fake_device(large), *b = fake_device(large), *host = malloc(large), *back = malloc(large);
    for (size_t i = 0; i < large; i++) host[i] = (char)(i * 3 + i / STRIP);
    ph_data_copy(a, host, large);
    for (size_t i = 0; i < STRIPS; i++) ph_data_set(a + (i * 7 % STRIPS) * STRIP + 8, 0, WRITTEN); /* in no order */
    ph_data_copy(b, a, large);
    ph_data_copy(back, b, large);
    for (size_t i = 0; i < large; i++) {
        size_t at = i % STRIP;
        CHECK(back[i] == (at >= 8 && at < 8 + WRITTEN ? 0 : host[i]));
    }
    CHECK(ph_data_unknown(b, large, false) == 0);
    ph_data_copy(a, host, large); /* all pieces become one */
    ph_data_copy(back, a, large);
    CHECK(memcmp(back, host, large) == 0);
    free(host);
    free(back);
}

static void large_copies_wait_for_what_is_pending(void) {
    enum { LARGE = 2 << 20 };
    char *a = fake_device(LARGE), *b = fake_device(LARGE), *host = malloc(LARGE), *back = malloc(LARGE),
         four[4] = "abcd";
    for (int i = 0; i < LARGE; i++) host[i] = (char)(i * 5 + i / 512);
    ph_data_copy(a, host, LARGE);
    ph_data_expect(77, a + 8, 4);
    ph_data_copy(b, a, LARGE); /* after the bytes have arrived */
    ph_data_copy(a, host + 1, LARGE - 1);
    CHECK(ph_data_pending(b, LARGE));
    ph_data_arrived(77, four, 4, false);
    ph_data_copy(back, b, LARGE);
    CHECK(memcmp(back, host, 8) == 0 && memcmp(back + 8, four, 4) == 0 &&
          memcmp(back + 12, host + 12, LARGE - 12) == 0);
    ph_data_copy(back, a, LARGE - 1);
    CHECK(memcmp(back, host + 1, LARGE - 1) == 0);
    free(host);
    free(back);
}

static void unknown_stays_unknown(void) {
    char *a = fake_device(65536), *b = fake_device(65536);
    ph_data_set(b, 1, 65536);
    ph_data_copy(b, a, 65536);
    CHECK(!ph_data_known_any(b, 65536));
}

static void chain_runs_when_bytes_arrive(void) {
    int *a = fake_device(4096), *b = fake_device(4096), *c = fake_device(4096), sent[4] = {1, 2, 3, 4}, seven = 7,
        out = 0;
    ph_data_expect(11, a, sizeof sent);
    CHECK(ph_data_pending(a, 4) && !ph_data_pending(b, 4));
    ph_data_copy(b, a, sizeof sent); /* waits for a */
    CHECK(ph_data_pending(b, 4));
    ph_data_copy(a, &seven, 4); /* must not be overtaken by what arrives, nor overtake the copy */
    seven = 8;
    ph_data_copy(c, b + 1, 4);
    ph_data_copy(&out, c, 4); /* an asynchronous copy to the host */
    CHECK(out == 0);
    ph_data_arrived(11, sent, sizeof sent, false);
    ph_data_wait_host();
    CHECK(a[0] == 7 && a[1] == 2 && b[0] == 1 && b[3] == 4 && c[0] == 2 && out == 2);
    CHECK(!ph_data_pending(a, 4096) && ph_data_known(b, sizeof sent));
}

static void reads_of_what_nobody_wrote_are_counted_when_they_happen(void) {
    int *a = fake_device(64), *never = fake_device(64), out = 5, before = fake_unmodelled_reads;
    ph_data_copy(&out, never, 4);
    CHECK(fake_unmodelled_reads == before + 1);
    ph_data_expect(13, a, 4);
    ph_data_copy(&out, a, 4);
    CHECK(fake_unmodelled_reads == before + 1);
    ph_data_arrived(13, NULL, 0, false); /* nothing modelled wrote any member's input */
    CHECK(fake_unmodelled_reads == before + 2);
}

static void early_bytes_are_kept(void) {
    int *a = fake_device(64), sent = 42;
    ph_data_arrived(12, &sent, 4, false);
    ph_data_expect(12, a, 4);
    CHECK(a[0] == 42 && !ph_data_pending(a, 4));
}

static void empty_bytes_mean_unknown(void) {
    int *a = fake_device(64), one = 1;
    ph_data_copy(a, &one, 4);
    ph_data_expect(13, a, 4);
    ph_data_arrived(13, NULL, 0, false);
    CHECK(!ph_data_known(a, 4) && !ph_data_pending(a, 4));
}

static void set_null(void *arg) { *(int *)arg += 1; }

static void write_waits_for_earlier_reader(void) {
    int *a = fake_device(64), *b = fake_device(64), runs = 0, five = 5, six = 6;
    ph_range reads[2] = {{a, 4}, {b, 4}};
    ph_data_copy(a, &five, 4);
    ph_data_expect(14, b, 4);
    ph_data_action(reads, 2, NULL, 0, set_null, &runs);
    ph_data_set(a, 0, 4); /* not before the action has read it */
    CHECK(runs == 0 && a[0] == 5);
    ph_data_arrived(14, &six, 4, false);
    CHECK(runs == 1 && a[0] == 0 && b[0] == 6);
}

static void *arrive_later(void *arg) {
    int value = 77;
    usleep(20000);
    ph_data_arrived((uint64_t)(uintptr_t)arg, &value, 4, false);
    return NULL;
}

static void waiting_thread_is_woken(void) {
    int *a = fake_device(64);
    pthread_t thread;
    ph_data_expect(15, a, 4);
    pthread_create(&thread, NULL, arrive_later, (void *)15);
    ph_data_wait(a, 4);
    CHECK(a[0] == 77);
    pthread_join(thread, NULL);
}

static int *computed_from, *computed_to, *then_to;
static void compute(uint64_t factor) {
    ph_data_wait(computed_from, 4); /* inside an action: does not wait for itself */
    *computed_to = *computed_from * (int)factor;
    ph_data_mark_known(computed_to, 4);
}

static void python_actions_run_on_their_own_thread(void) {
    computed_from = fake_device(64), computed_to = fake_device(64), then_to = fake_device(64);
    uint64_t reads[] = {(uintptr_t)computed_from, 4}, writes[] = {(uintptr_t)computed_to, 4};
    int two = 2;
    ph_data_copy(computed_from, &two, 4);
    CHECK(phantora_data_action(reads, 1, writes, 1, compute, 10) == 1 && *computed_to == 20);
    ph_data_expect(16, computed_from, 4);
    CHECK(phantora_data_action(reads, 1, writes, 1, compute, 3) == 0);
    ph_data_copy(then_to, computed_to, 4);
    pthread_t thread;
    pthread_create(&thread, NULL, arrive_later, (void *)16);
    ph_data_wait(then_to, 4);
    CHECK(*then_to == 231 && ph_data_known(then_to, 4));
    pthread_join(thread, NULL);
}

static void what_a_launch_overwrites_is_unknown(void) {
    char *a = fake_device(4096), *b = fake_device(4096);
    char host[100] = {1};
    ph_data_copy(a, host, 100);
    ph_data_overwrite(a + 40, 20);
    CHECK(ph_data_known(a, 40) && !ph_data_known_any(a + 40, 20) && ph_data_known(a + 60, 40));
    /* Pieces that are not known read as 0. */
    memset(a, 9, 100);
    memset(host, 1, 100);
    ph_data_copy(host, a, 100);
    CHECK(host[39] == 9 && host[40] == 0 && host[59] == 0 && host[60] == 9);
    /* After writes that are pending: what arrives later is overwritten, too. */
    pthread_t thread;
    ph_data_expect(17, b, 4);
    ph_data_overwrite(b, 64);
    pthread_create(&thread, NULL, arrive_later, (void *)17);
    ph_data_wait(b, 64);
    CHECK(!ph_data_known_any(b, 64));
    pthread_join(thread, NULL);
}

static void assumed_bytes_are_not_known(void) {
    char *a = fake_device(4096);
    ph_range piece;
    ph_data_mark_known(a, 100);
    ph_data_mark_assumed(a + 50, 10);
    CHECK(!ph_data_known(a, 100) && ph_data_assumed(a + 50, 10) && !ph_data_assumed(a + 45, 10));
    CHECK(ph_data_next_readable(a + 50, 50, &piece) && piece.start == a + 50 && piece.nbytes == 10);
    CHECK(phantora_data_state((uintptr_t)a, 100) == 3 && phantora_data_state((uintptr_t)a, 101) == 0 &&
          phantora_data_state((uintptr_t)a, 50) == 1);
    const int64_t sizes[] = {4, 2}, strides[] = {8, 1}; /* bytes 0 1, 8 9, 16 17, 24 25 */
    phantora_data_strided_mark(0, (uintptr_t)a, 1, 2, sizes, strides);
    CHECK(!ph_data_known_any(a, 2) && ph_data_known(a + 2, 6) && !ph_data_known_any(a + 24, 2));
    CHECK(phantora_data_strided_state((uintptr_t)a, 1, 2, sizes, strides) == 0);
    phantora_data_strided_mark(1, (uintptr_t)a, 1, 2, sizes, strides);
    CHECK(phantora_data_strided_state((uintptr_t)a, 1, 2, sizes, strides) == 1);
}

static void known_set_is_bounded(void) {
    char *a = fake_device(8 << 20);
    ph_data_mark_known(a, 4096);
    for (int i = 0; i < 60000; i++) ph_data_mark_known(a + 8192 + 16 * i, 8);
    CHECK(ph_data_known(a, 4096)); /* the long ones survive */
    for (int i = 0; i < 60000; i++) ph_data_mark_known(a + 8192 + 16 * i + 8, 8);
    ph_data_forget(a, 8 << 20);
    CHECK(!ph_data_known_any(a, 8 << 20));
}

static void known_set_merges_and_splits(void) {
    char *a = fake_device(4096);
    ph_data_mark_known(a + 100, 100);
    ph_data_mark_known(a + 300, 100);
    ph_data_mark_known(a + 200, 100);
    CHECK(ph_data_known(a + 100, 300) && !ph_data_known(a + 99, 2) && !ph_data_known(a + 399, 2));
    ph_data_forget(a + 150, 10);
    CHECK(ph_data_known(a + 100, 50) && !ph_data_known(a + 149, 2) && ph_data_known(a + 160, 240) &&
          ph_data_known_any(a, 101));
    CHECK(!ph_data_known_any(a, 100));
}

/* Many chained actions, arrivals from another thread in reverse order, a reader that waits: all must end. */
static void *arrive_all(void *arg) {
    (void)arg;
    for (uint64_t token = 1999; token >= 1000; token--) {
        int value = (int)token;
        ph_data_arrived(token, &value, 4, false);
    }
    return NULL;
}

static void long_chains_end(void) {
    int *a = fake_device(1000 * 64), *sum = fake_device(64);
    pthread_t thread;
    for (int i = 0; i < 1000; i++) ph_data_expect(1000 + (uint64_t)i, a + 16 * i, 4);
    for (int i = 0; i < 1000; i++) ph_data_copy(sum, a + 16 * i, 4); /* each waits for the one before */
    pthread_create(&thread, NULL, arrive_all, NULL);
    ph_data_wait(sum, 4);
    CHECK(*sum == 1999);
    pthread_join(thread, NULL);
}

int main(void) {
    copies_and_sets_happen_at_once();
    zero_fills_give_pages_back();
    large_copies_are_read_back();
    strips_written_to_a_large_copy_leave_the_rest();
    large_copies_wait_for_what_is_pending();
    unknown_stays_unknown();
    chain_runs_when_bytes_arrive();
    reads_of_what_nobody_wrote_are_counted_when_they_happen();
    early_bytes_are_kept();
    empty_bytes_mean_unknown();
    write_waits_for_earlier_reader();
    waiting_thread_is_woken();
    python_actions_run_on_their_own_thread();
    known_set_merges_and_splits();
    what_a_launch_overwrites_is_unknown();
    assumed_bytes_are_not_known();
    known_set_is_bounded();
    long_chains_end();
    return 0;
}
