/*
 * Host time of operators on tensors of the CPU. The operators run here, too, but how long that takes says nothing of
 * the described host. An operator takes the longer one of two times, which overlap: that of its bytes, and that of the
 * processor's work on its elements. New pages come in addition, since the operator waits for each.
 *
 * Bytes are those of the memory bus: what is read, and what is written twice, since a line is fetched before it is
 * written to. The threads that share an operator are as many as the script has asked for, and no more than there are
 * pieces; those of all ranks of a server share its memory and its cores (profiles/host.py).
 */
#include "nvtx/tensor_work.h"
#include "nvtx/nvtx.h"
#include "nvtx/tensors.h"
#include "threads/host.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { NEW = 1 << 30, NOTHING = 0 };
enum work { MEMORY, FUNCTION, RANDOM, SCATTERED, SORTED, PRODUCT, ATTENTION, CONVOLVED };

struct ph_tensor_op {
    const char *name;
    uint32_t writes;
    enum work work;
    int weight;
};

static const ph_tensor_op ops[] = {
#define OP(name, writes, work, weight) {#name, writes, work, weight},
#include "nvtx/tensor_ops.def"
#undef OP
};

/* Properties of PyTorch and of the C library: elements of a piece of work (at::internal::GRAIN_SIZE), and the size from
 * which freed memory is given back (the most that glibc's M_MMAP_THRESHOLD becomes; what is asked for has the alignment
 * added, so a tensor of just this size is given back). */
enum { GRAIN = 32768, GIVEN_BACK_NBYTES = 32 << 20, STRIDES = 4, KIB = 1024 };

/* Work on so few elements is a part of the operator's own time, which is measured on small tensors. A mesh or a list of
 * ranks takes the same time in jobs of all widths. */
enum { FEW_ELEMENTS = 1024 };

static _Atomic uint32_t threads_wanted = 1;

/* The operators of this process share their work among so many threads on the described host. */
PH_EXPORT void phantora_tensor_threads(uint32_t count) { atomic_store(&threads_wanted, count ? count : 1); }

const ph_tensor_op *ph_tensor_op_of(const char *name) {
    if (strncmp(name, "aten::", 6) != 0) return NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].name, name + 6) == 0) return &ops[i];
    return NULL;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

typedef struct amount {
    ph_host_kind kind;
    double units;
} amount;

static double ps_of(amount what) { return what.units * ph_cfg.host_ns[what.kind]; }

/* N threads at once do not work N times as fast: they share memory, caches and the two halves of a core. Measured with
 * 1 to 16 threads in one process and one thread in each of 1 to 16 processes: laboratory/notes/cpu-tensors.md. New
 * pages are made under a lock of the process. */
static const double OF_CORES = 0.9, OF_PAGES = 0.5;

/* How many times as fast as one thread alone a rank is with `threads` of them, while the other ranks of its server do
 * the same. A thread waits for its own misses, and for the memory, which serves all: the second wait grows with their
 * number. So a thread of N takes (most - 1 + N) / most of its time alone, and all together are `most` times as fast as
 * one at the end. */
static double through_memory(double threads) {
    double n = threads * ph_cfg.server_ranks, most = ph_cfg.memory_threads;
    return n * most / (most - 1 + n) / ph_cfg.server_ranks;
}

static double through_cores(double threads) {
    double own = (double)ph_cfg.server_cores / ph_cfg.server_ranks;
    return fmin(pow(threads, OF_CORES), own);
}

static double through_pages(double threads) { return pow(threads, OF_PAGES) * through_memory(1); }

/* The threads that work on so many elements. */
static double threads_for(uint64_t elements) {
    double pieces = (double)elements / GRAIN;
    return fmax(1, fmin(atomic_load_explicit(&threads_wanted, memory_order_relaxed), ceil(pieces)));
}

/* Multiplications and additions. */
static double multiplied(const ph_tensor_op *op, const void *range, const ph_tensor_argument *given, int n) {
    int first = op->weight;
    if (first + 1 >= n || !given[first].sizes || !given[first + 1].sizes) return 0;
    const ph_tensor_argument *one = &given[first], *other = &given[first + 1];
    switch (op->work) {
    case PRODUCT: /* the operator has yet to refuse a number */
        return other->ndim < 1 ? 0 : (double)one->count * (double)other->sizes[other->ndim - 1];
    case ATTENTION: /* forward two products; backward five, whose first argument is the result's gradient */
        return other->ndim < 2 ? 0 : (first ? 5.0 : 2.0) * (double)one->count * (double)other->sizes[other->ndim - 2];
    case CONVOLVED: { /* forward one; backward two */
        double strides = (double)ph_tensors_integers(range, STRIDES);
        if (one->ndim < 2 || strides == 0) return 0;
        return (first ? 2.0 : 1.0) * (double)one->count / (double)one->sizes[1] * (double)other->count / strides;
    }
    default:
        return 0;
    }
}

static uint64_t elements_of(const ph_tensor_argument *given, int n) {
    uint64_t most = 0;
    for (int i = 0; i < n; i++)
        if (given[i].count > most) most = given[i].count;
    return most;
}

/* The processor's own work. */
static amount worked(const ph_tensor_op *op, const void *range, const ph_tensor_argument *given, int n) {
    uint64_t elements = elements_of(given, n);
    double weighted = (double)elements * op->weight / 10, threads = through_cores(threads_for(elements));
    switch (op->work) {
    case FUNCTION:
        return (amount){PH_WORK_FUNCTION_VALUE, weighted / threads};
    case RANDOM:
        return (amount){PH_WORK_RANDOM_VALUE, weighted / through_cores(1)};
    case SCATTERED:
        return (amount){PH_WORK_SCATTERED_VALUE, weighted / threads};
    case SORTED: {
        const ph_tensor_argument *of = &given[0];
        double row = of->ndim ? (double)of->sizes[of->ndim - 1] : 1, rows = row ? (double)elements / row : 0;
        double rounds = row > 1 ? log2(row) : 1;
        return (amount){PH_WORK_SORTED_VALUE, weighted * rounds / fmin(fmax(1, rows), threads)};
    }
    case PRODUCT:
    case ATTENTION:
    case CONVOLVED: {
        double made = multiplied(op, range, given, n) / KIB;
        int32_t dtype = op->weight < n ? given[op->weight].dtype : 0;
        bool half = dtype == PH_DTYPE_HALF || dtype == PH_DTYPE_BFLOAT16;
        made *= dtype == PH_DTYPE_DOUBLE ? 2 : 1; /* a vector register holds half as many */
        threads = through_cores(fmax(1, fmin(atomic_load(&threads_wanted), ceil(made / KIB))));
        return (amount){half ? PH_WORK_HALF_KILO_PRODUCT : PH_WORK_KILO_PRODUCT, made / threads};
    }
    case MEMORY:
        break;
    }
    return (amount){PH_WORK_TENSOR, 0};
}

static bool makes_tensor(const char *name) { return strncmp(name, "aten::", 6) == 0 && name[strlen(name) - 1] != '_'; }

/* The tensor to which an operator writes is new: an operator that makes one has called it. */
static bool in_new_tensor(const ph_thread *thread) {
    int outer = thread->nranges - 2;
    return outer >= 0 && outer < PH_MAX_RANGES && makes_tensor(thread->ranges[outer]->op.name);
}

static void charge(amount what) {
    if (what.units >= 0.5) ph_host_fine_work(what.kind, (uint64_t)llround(what.units));
}

/* An operator that hands its work to another form of itself has been charged, if it took tensors. */
static bool within_itself(const ph_thread *thread, const ph_known_op *op) {
    int outer = thread->nranges - 2;
    return outer >= 0 && outer < PH_MAX_RANGES && thread->ranges[outer]->tensors == op->tensors &&
           strpbrk(thread->ranges[outer]->op.sizes, "123456789");
}

void ph_tensor_work(ph_thread *thread, const ph_known_op *op, const void *range) {
    ph_tensor_argument given[PH_MAX_TENSOR_ARGUMENTS];
    int n = within_itself(thread, op) ? 0 : ph_tensors_of(range, given);
    if (n == 0 || elements_of(given, n) <= FEW_ELEMENTS) return;
    const ph_tensor_op *by = op->tensors;
    bool given_result = given[n - 1].count > 0 && ph_tensors_out(range);
    uint32_t writes = given_result ? 1u << (n - 1) : by->writes;
    double nbytes = 0, made = 0;
    for (int i = 0; i < n; i++) {
        nbytes += (double)given[i].nbytes;
        if (writes & (1u << i)) nbytes += (double)given[i].nbytes;
        if (writes == NEW && (double)given[i].nbytes > made) made = (double)given[i].nbytes;
    }
    if (writes & 1 && in_new_tensor(thread)) made = (double)given[0].nbytes;
    if (writes == NEW) nbytes += 2 * made;
    bool cached = nbytes <= (double)ph_cfg.tensor_cache_nbytes && thread->optimizer_depth == 0;
    double threads = threads_for(elements_of(given, n));
    amount moved = {cached ? PH_WORK_CACHED_TENSOR : PH_WORK_TENSOR,
                    nbytes / KIB / (cached ? through_cores(threads) : through_memory(threads))};
    amount own = worked(by, range, given, n);
    charge(ps_of(own) > ps_of(moved) ? own : moved);
    if (made >= GIVEN_BACK_NBYTES) charge((amount){PH_WORK_FRESH_TENSOR, made / KIB / through_pages(threads)});
}
