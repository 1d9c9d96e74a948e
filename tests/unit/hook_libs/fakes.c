#define _GNU_SOURCE
#include "fakes.h"
#include "core/run.h"
#include "data/action.h"
#include "graphs/capture.h"
#include "holders/holders.h"
#include "memory/memory.h"
#include "memory/pinned.h"
#include "nvtx/nvtx.h"
#include "op_stream/emit.h"
#include "op_stream/trace.h"
#include "op_stream/warn.h"
#include "sources/source_map.h"
#include "streams/event.h"
#include "streams/launch.h"
#include "streams/wait.h"
#include "streams/watch.h"
#include "threads/host.h"
#include "threads/sites.h"
#include "threads/thread.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>

ph_config ph_cfg = {
    .device_count = 8, .sm_count = 132, .cc_major = 9, .data_limit_nbytes = 1 << 20, .float_limit_count = 4096};

/* None is given. */
bool ph_device_attribute(int attribute, int *value) {
    (void)attribute;
    *value = 0;
    return false;
}
fake_record fake_records[256], fake_connects[64];
int fake_nconnects, fake_nrecords, fake_nsignatures, fake_nlaunches;
char fake_signatures[64][512];
char fake_refused[64], fake_warned[64];
enum ph_thread_kind fake_kind;
bool fake_capturing;
uint32_t fake_nranks = 2, fake_rank;
int fake_unmodelled_reads;
struct ph_COMM fake_memory;
uint64_t fake_taken, fake_capacity = UINT64_MAX;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_comm = 1, known_keys[64];
static unsigned char *device;
static size_t device_used;
enum { DEVICE_NBYTES = 64 << 20 };

static ph_stream streams[8];

/* Nothing of these tests has a watchdog. */
ph_run_state ph_run;
ph_watch *ph_watch_make(void) { return NULL; }
void ph_watch_free(ph_watch *watch) { (void)watch; }
void ph_watch_launch(ph_watch *watch) { (void)watch; }
void ph_watch_launched(ph_watch *watch, const ph_stream *stream, bool first_on_blocks) {
    (void)watch;
    (void)stream;
    (void)first_on_blocks;
}
void ph_watch_end(ph_watch *watch) { (void)watch; }

/* ... or an allocator. */
void ph_holders_launch(void) {}
void ph_holders_missing_outside(int device, uint64_t nbytes) {
    (void)device;
    (void)nbytes;
}
bool ph_holders_collective(int device, const void *input, const void *output) {
    (void)device;
    (void)input;
    (void)output;
    return false;
}

void ph_count_unmodelled_read(void) { fake_unmodelled_reads++; }
int64_t ph_count_read(void) { return -1; }

/* Copies to the host are made at once. */
bool ph_host_pages_give(unsigned char *dst, size_t nbytes, const ph_piece *pieces, size_t n) {
    (void)dst;
    (void)nbytes;
    (void)pieces;
    (void)n;
    return false;
}
size_t ph_host_pages_list(const void *start, size_t nbytes, ph_piece **out) {
    (void)start;
    (void)nbytes;
    *out = NULL;
    return 0;
}
void ph_host_pages_count(void) {}

void fake_reset(void) {
    fake_nconnects = fake_nrecords = fake_nsignatures = fake_nlaunches = 0;
    *fake_refused = *fake_warned = 0;
    fake_kind = PH_THREAD_PROGRAM;
}

void *fake_device(size_t nbytes) {
    if (!device)
        device = mmap(NULL, DEVICE_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *p = device + device_used;
    device_used += (nbytes + 511) & ~(size_t)511;
    CHECK(device_used <= DEVICE_NBYTES);
    return p;
}

bool ph_is_device_pointer(const void *p) {
    return device && (const unsigned char *)p >= device && (const unsigned char *)p < device + DEVICE_NBYTES;
}

bool ph_host_pinned(const void *p) { return !ph_is_device_pointer(p); }

/* Nothing comes from a coordinator, and no pages are dropped. */
void ph_on_record(uint16_t kind, void (*take)(const unsigned char *body, size_t nbytes)) { (void)kind, (void)take; }
void (*ph_pages_dropped)(const void *start, size_t nbytes);

int ph_memory_take(int number, size_t nbytes) {
    (void)number;
    if (nbytes > fake_capacity - fake_taken) return CUDA_OUT_OF_MEMORY;
    fake_taken += nbytes;
    return CUDA_OK;
}

void ph_memory_give(int number, size_t nbytes) {
    (void)number;
    fake_taken -= nbytes;
}

int ph_device_alloc(int number, size_t nbytes, void **out) {
    (void)number;
    *out = fake_device(nbytes);
    return 0;
}

int ph_device_free(void *p) {
    (void)p;
    return 0;
}

static void record(uint16_t kind, const void *fields, size_t nfields, const void *payload, size_t npayload,
                   bool out_of_band) {
    pthread_mutex_lock(&lock);
    CHECK(fake_nrecords < 256 && nfields <= 128 && npayload <= 4096);
    CHECK(fake_nconnects < 64);
    fake_record *it = kind == PH_KIND_CONNECT ? &fake_connects[fake_nconnects++] : &fake_records[fake_nrecords++];
    *it = (fake_record){.kind = kind, .fields_nbytes = nfields, .payload_nbytes = npayload, .out_of_band = out_of_band};
    memcpy(it->fields, fields, nfields);
    if (npayload) memcpy(it->payload, payload, npayload);
    pthread_mutex_unlock(&lock);
}

static uint64_t last_recording;

void ph_record_lock(void) {}
void ph_record_unlock(void) {}

uint64_t ph_record_on(ph_stream *stream, uint64_t drop) {
    struct ph_EVENT_RECORD fields = {.stream = ph_stream_id(stream), .recording = ++last_recording, .drop = drop};
    record(PH_KIND_EVENT_RECORD, &fields, sizeof fields, NULL, 0, false);
    return last_recording;
}

void ph_recording_wait(ph_stream *stream, uint64_t recording) {
    struct ph_STREAM_WAIT fields = {.stream = ph_stream_id(stream), .recording = recording};
    record(PH_KIND_STREAM_WAIT, &fields, sizeof fields, NULL, 0, false);
}

void ph_recording_drop(uint64_t recording) {
    struct ph_RECORDING_DROP fields = {.recording = recording};
    record(PH_KIND_RECORDING_DROP, &fields, sizeof fields, NULL, 0, false);
}

void ph_emit(uint16_t kind, const void *fields, size_t nfields, const void *payload, size_t npayload) {
    record(kind, fields, nfields, payload, npayload, false);
}

void ph_emit_here(uint16_t kind, const void *fields, size_t nfields, const void *payload, size_t npayload) {
    record(kind, fields, nfields, payload, npayload, false);
}

uint16_t ph_site(void) { return 0; }

uint16_t ph_site_with_caller(void) { return 0; }

void ph_site_inherit(uint16_t site) { (void)site; }

void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t nfields, const void *payload, size_t npayload) {
    record(kind, fields, nfields, payload, npayload, true);
}

void ph_ask_out_of_band(uint16_t kind, void *fields, size_t nfields, const void *payload, size_t npayload, void *reply,
                        size_t nreply) {
    ph_ask(kind, fields, nfields, payload, npayload, reply, nreply);
}

void ph_ask(uint16_t kind, void *fields, size_t nfields, const void *payload, size_t npayload, void *reply,
            size_t nreply) {
    record(kind, fields, nfields, payload, npayload, false);
    struct ph_COMM answer = fake_memory;
    answer.rank = fake_rank;
    answer.nranks = fake_nranks;
    pthread_mutex_lock(&lock);
    if (kind == PH_KIND_COMM_INIT) {
        const struct ph_COMM_INIT *init = fields;
        answer.comm = next_comm++;
        answer.rank = init->rank;
        answer.nranks = init->nranks;
    } else if (((const struct ph_COMM_SPLIT *)fields)->color >= 0) {
        answer.comm = next_comm++;
    }
    pthread_mutex_unlock(&lock);
    memcpy(reply, &answer, nreply);
}

void ph_flush(void) {}
void ph_thread_blocked(int change) { (void)change; }

void ph_thread_call_awake(char name[PH_THREAD_NAME_NBYTES]) { name[0] = 0; }

void ph_thread_rename(const char *name) { (void)name; }
void ph_host_call_of(ph_call_kind kind, const char *caller) { (void)kind, (void)caller; }
void ph_host_work(ph_host_kind kind, uint64_t n) { (void)kind, (void)n; }

/* Nothing is traced. */
uint32_t ph_tracing;
void ph_trace_nccl(uint32_t stream) { (void)stream; }

int ph_refuse(const char *name, int status) {
    snprintf(fake_refused, sizeof fake_refused, "%s", name);
    return status;
}

void ph_warn_once(const char *name, const char *format, ...) {
    (void)format;
    snprintf(fake_warned, sizeof fake_warned, "%s", name);
}

enum ph_thread_kind ph_thread_kind(void) { return fake_kind; }

void ph_die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    exit(70);
}

ph_stream *ph_stream_of(void *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (number >= 8) return NULL;
    streams[number].magic = PH_STREAM_MAGIC;
    return &streams[number];
}

uint32_t ph_stream_id(const ph_stream *stream) { return (uint32_t)(stream - streams) + 1; }
bool ph_stream_capturing(const ph_stream *stream) {
    (void)stream;
    return fake_capturing;
}
void ph_stream_touch(ph_stream *stream) { (void)stream; }

static struct {
    void (*run)(ph_stream *, void *);
    void (*release)(void *);
    void *arg;
} captured[16];
static int ncaptured;

void ph_join(int device) { (void)device; }

void ph_overwrite_on(ph_stream *stream, const void *start, size_t nbytes) {
    (void)stream;
    ph_data_overwrite(start, nbytes);
}

bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *, void *), void (*release)(void *), void *arg) {
    (void)stream;
    captured[ncaptured].run = run;
    captured[ncaptured].release = release;
    captured[ncaptured++].arg = arg;
    return fake_capturing;
}

void fake_replay(void *stream, int times) {
    for (int t = 0; t < times; t++)
        for (int i = 0; i < ncaptured; i++) captured[i].run(ph_stream_of(stream), captured[i].arg);
    for (int i = 0; i < ncaptured; i++)
        if (captured[i].release) captured[i].release(captured[i].arg);
    ncaptured = 0;
}

const ph_op ph_no_op = {"aten::op", "[[8, 64]]", 7}; /* no range is pushed here */

const ph_cost *ph_cost_of(uint64_t key, ph_describe describe, const void *what) {
    static ph_cost cost = {.solo_ns = 1000, .contended_ns = 1500};
    for (int i = 0; i < fake_nsignatures; i++)
        if (known_keys[i] == key) return &cost;
    CHECK(fake_nsignatures < 64);
    known_keys[fake_nsignatures] = key;
    size_t n = describe(what, fake_signatures[fake_nsignatures], sizeof fake_signatures[0]);
    CHECK(n < sizeof fake_signatures[0]);
    fake_signatures[fake_nsignatures++][n] = 0;
    return &cost;
}

void ph_launch(ph_stream *stream, const ph_cost *cost) {
    CHECK(stream && cost);
    fake_nlaunches++;
}

void ph_launch_work(ph_stream *stream, uint64_t key, ph_describe describe, const void *what) {
    ph_launch(stream, ph_cost_of(key, describe, what));
}

__thread ph_thread *ph_this_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

ph_thread *ph_thread_make(void) {
    static __thread ph_thread thread = {.device = 3};
    return ph_this_thread = &thread;
}

int ph_stream_synchronize(ph_stream *stream) {
    (void)stream;
    return 0;
}

void ph_data_note_writer(const void *start) { (void)start; }

int ph_visible_gpu(int device) { return device; }
