/*
 * cufft/: plans, and their execution as a library call by the bytes of input and output. PyTorch allocates the
 * workspace that a plan asks for. An out-of-place transform over powers of two needs about the size of its output.
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
 * becomes a convolution of more than twice the length. As an H200 with cuFFT 12 does it (docs/data/libraries-h200.md).
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
    /* Of a real transform's complex side only half is stored. */
    uint64_t in = ph_cuda_dtype_nbytes(input, elements), out = ph_cuda_dtype_nbytes(output, elements);
    if (in != out) in > out ? (in /= 2) : (out /= 2);
    it->nbytes = passes * (in + out);
    it->made = true;
    *work_nbytes = ph_cuda_dtype_nbytes(output, elements);
    return FFT_OK;
}

PH_EXPORT int cufftXtExec(int number, void *input, void *output, int direction) {
    (void)input, (void)output, (void)direction;
    plan *it = find(number);
    if (!it || !it->made) return FFT_INVALID_PLAN;
    return ph_library_launch(it->stream, "cufftXtExec", it->nbytes) ? FFT_OK : FFT_INVALID_VALUE;
}
