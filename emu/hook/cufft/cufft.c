/*
 * cufft/: plans, and their execution as a library call by the bytes of input and output. PyTorch allocates the
 * workspace that a plan asks for.
 * Comes in: calls. Goes out: library calls by name and bytes to costs/.
 */
#include "threads/host.h"
#include "core/lock.h"
#include "kernels/library.h"

#include <string.h>

enum { FFT_OK = 0, FFT_INVALID_PLAN = 1, FFT_INVALID_VALUE = 4, FFT_INVALID_SIZE = 8, PLANS = 4096, MAX_RANK = 3 };

typedef struct plan {
    bool used, made;
    void *stream;
    uint64_t nbytes;
} plan;

static plan plans[PLANS];

static plan *find(int number) { return number > 0 && number < PLANS && plans[number].used ? &plans[number] : NULL; }

PH_EXPORT int cufftCreate(int *out) {
    ph_host_call(PH_CALL_QUERY);
    if (!out) return FFT_INVALID_VALUE;
    ph_lock(PH_LOCK_CUFFT);
    int number = 1;
    while (number < PLANS && plans[number].used) number++;
    if (number < PLANS) plans[number] = (plan){.used = true};
    ph_unlock(PH_LOCK_CUFFT);
    *out = number < PLANS ? number : 0;
    return number < PLANS ? FFT_OK : FFT_INVALID_PLAN;
}

PH_EXPORT int cufftDestroy(int number) {
    ph_host_call(PH_CALL_QUERY);
    plan *it = find(number);
    if (!it) return FFT_INVALID_PLAN;
    ph_lock(PH_LOCK_CUFFT);
    memset(it, 0, sizeof *it);
    ph_unlock(PH_LOCK_CUFFT);
    return FFT_OK;
}

PH_EXPORT int cufftSetStream(int number, void *stream) {
    ph_host_call(PH_CALL_QUERY);
    plan *it = find(number);
    if (!it) return FFT_INVALID_PLAN;
    it->stream = stream;
    return FFT_OK;
}

/* No bytes of a workspace are used, whoever allocates it. */
PH_EXPORT int cufftSetAutoAllocation(int number, int automatic) {
    (void)automatic;
    ph_host_call(PH_CALL_QUERY);
    return find(number) ? FFT_OK : FFT_INVALID_PLAN;
}

PH_EXPORT int cufftSetWorkArea(int number, void *work) {
    (void)work;
    ph_host_call(PH_CALL_QUERY);
    return find(number) ? FFT_OK : FFT_INVALID_PLAN;
}

/*
 * How often a transform of n points goes through memory: a kernel does up to 16,384 points at once, longer transforms
 * are divided in two, and real ones then need as much again for their halves. A length with a prime factor over 127
 * becomes a convolution of more than twice the length. As an H200 with cuFFT 12 does it
 * (laboratory/notes/libraries-h200.md).
 */
static uint64_t passes_of(uint64_t n, bool real) {
    enum { AT_ONCE = 16384, REAL_AT_ONCE = 65536, LARGEST_FACTOR = 127, CONVOLVED = 19 };
    uint64_t rest = n;
    for (uint64_t factor = 2; factor <= LARGEST_FACTOR && rest > 1; factor++)
        while (rest % factor == 0) rest /= factor;
    if (rest > 1) return CONVOLVED;
    if (n <= AT_ONCE) return 1;
    return real && n > REAL_AT_ONCE ? 4 : 2;
}

static bool has_factors_up_to(uint64_t n, uint64_t most) {
    for (uint64_t factor = 2; factor <= most && n > 1; factor++)
        while (n % factor == 0) n /= factor;
    return n == 1;
}

/* The shortest transform of factors up to 5 that a convolution over n points fits in. */
static uint64_t convolved(uint64_t n) {
    uint64_t least = 2 * n - 1;
    while (!has_factors_up_to(least, 5)) least++;
    return least;
}

/*
 * Points of the workspace, as an H200 with cuFFT 12 asks for it (laboratory/notes/workspaces.md). Kernels work in the
 * output, where that has room. Long lengths with a prime factor over 127 are convolved. `element`: bytes of a complex
 * one.
 */
static uint64_t work_points(int rank, const long long *n, uint64_t batch, bool real_in, bool real_out,
                            uint64_t element) {
    enum { LARGEST_FACTOR = 127, SMALL_FACTOR = 11, AT_ONCE = 4096, COMPLEX_AT_ONCE = 16384, COLUMN_NBYTES = 8192 };
    uint64_t last = (uint64_t)n[rank - 1], others = batch, half = last / 2 + 1, longest = 0;
    bool plain = true;
    for (int i = 0; i < rank; i++) {
        if (i < rank - 1) others *= (uint64_t)n[i];
        if ((uint64_t)n[i] > longest) longest = (uint64_t)n[i];
        plain = plain && has_factors_up_to((uint64_t)n[i], LARGEST_FACTOR);
    }
    bool convolves = rank == 1 && !plain && last > AT_ONCE;
    if (!real_in && !real_out) {
        if (convolves) return others * 2 * convolved(last);
        return (rank == 1 ? last > COMPLEX_AT_ONCE : longest * element > COLUMN_NBYTES) ? others * last : 0;
    }
    if (convolves) return others * (convolved(last) + half);
    if (real_in && plain) return last > AT_ONCE ? others * half : 0;
    if (real_in) return others * last;
    return has_factors_up_to(last, SMALL_FACTOR) ? 0 : others * half;
}

PH_EXPORT int cufftXtMakePlanMany(int number, int rank, long long *n, long long *inembed, long long istride,
                                  long long idist, int input, long long *onembed, long long ostride, long long odist,
                                  int output, long long batch, size_t *work_nbytes, int execution) {
    (void)inembed, (void)istride, (void)idist, (void)onembed, (void)ostride, (void)odist, (void)execution;
    ph_host_call(PH_CALL_LIBRARY);
    plan *it = find(number);
    if (!it || it->made) return FFT_INVALID_PLAN;
    if (!n || !work_nbytes || rank < 1 || rank > MAX_RANK || batch < 1) return FFT_INVALID_SIZE;
    uint64_t elements = (uint64_t)batch;
    uint64_t passes = 0;
    for (int i = 0; i < rank; i++) {
        if (n[i] < 1) return FFT_INVALID_SIZE;
        elements *= (uint64_t)n[i];
        passes += passes_of((uint64_t)n[i], i == rank - 1 && input != output);
    }
    /* The complex side of a real transform is stored only by half. */
    uint64_t in = ph_cuda_dtype_nbytes(input, elements), out = ph_cuda_dtype_nbytes(output, elements);
    bool real_in = in < out, real_out = out < in;
    if (in != out) in > out ? (in /= 2) : (out /= 2);
    it->nbytes = passes * (in + out);
    it->made = true;
    int complex = real_in ? output : input;
    uint64_t points = work_points(rank, n, (uint64_t)batch, real_in, real_out, ph_cuda_dtype_nbytes(complex, 1));
    *work_nbytes = ph_cuda_dtype_nbytes(complex, points);
    return FFT_OK;
}

PH_EXPORT int cufftXtExec(int number, void *input, void *output, int direction) {
    (void)input, (void)output, (void)direction;
    plan *it = find(number);
    if (!it || !it->made) return FFT_INVALID_PLAN;
    return ph_library_launch(it->stream, "cufftXtExec", it->nbytes) ? FFT_OK : FFT_INVALID_VALUE;
}
