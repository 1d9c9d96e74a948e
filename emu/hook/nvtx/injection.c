/*
 * NVTX's injection: NVTX loads the library that NVTX_INJECTION64_PATH names, which is this one, and calls the function
 * at the end of this file. It enters callbacks into NVTX's tables, whose layout is public (nvtxTypes.h).
 */
#include "nvtx/nvtx.h"
#include "threads/thread.h"

enum { TABLE_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5, MESSAGE_ASCII = 1 };
enum { MARK_EX = 1, MARK_A = 2, PUSH_EX = 8, PUSH_A = 9, PUSH_W = 10, POP = 11 };
enum { DOMAIN_MARK_EX = 1, DOMAIN_PUSH_EX = 4, DOMAIN_POP = 5 };

typedef void (*any_function)(void);

typedef struct export_table {
    size_t nbytes;
    int (*function_table)(int module, any_function ***table, unsigned *n);
} export_table;

typedef struct attributes {
    uint16_t version, nbytes;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} attributes;

static const char *text_of(const attributes *a) {
    return a && a->message_type == MESSAGE_ASCII && a->message ? a->message : "";
}

static int push(const char *message) {
    ph_range_push(message ? message : "");
    return ph_self()->nranges - 1;
}

static int pop(void) {
    ph_range_pop();
    return ph_self()->nranges;
}

static void mark_a(const char *message) { ph_range_mark(message ? message : ""); }
static void mark_ex(const attributes *a) { ph_range_mark(text_of(a)); }
static int push_ex(const attributes *a) { return push(text_of(a)); }
static int push_w(const wchar_t *message) {
    (void)message;
    return push("");
}
static void domain_mark_ex(void *domain, const attributes *a) {
    (void)domain;
    mark_ex(a);
}
static int domain_push_ex(void *domain, const attributes *a) {
    (void)domain;
    return push_ex(a);
}
static int domain_pop(void *domain) {
    (void)domain;
    return pop();
}

static void put(any_function **table, unsigned n, unsigned at, any_function function) {
    if (at < n && table[at]) *table[at] = function;
}

PH_EXPORT int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t)) {
    const export_table *exports = get_table(TABLE_CALLBACKS);
    if (!exports || exports->nbytes < sizeof *exports) return 0;
    any_function **table;
    unsigned n;
    if (exports->function_table(MODULE_CORE, &table, &n)) {
        put(table, n, MARK_EX, (any_function)mark_ex);
        put(table, n, MARK_A, (any_function)mark_a);
        put(table, n, PUSH_EX, (any_function)push_ex);
        put(table, n, PUSH_A, (any_function)push);
        put(table, n, PUSH_W, (any_function)push_w);
        put(table, n, POP, (any_function)pop);
    }
    if (exports->function_table(MODULE_CORE2, &table, &n)) {
        put(table, n, DOMAIN_MARK_EX, (any_function)domain_mark_ex);
        put(table, n, DOMAIN_PUSH_EX, (any_function)domain_push_ex);
        put(table, n, DOMAIN_POP, (any_function)domain_pop);
    }
    return 1;
}
