/*
 * cuSOLVER: how large workspaces are, as an H200 needs them for real matrices (CUDA 13.0,
 * laboratory/notes/workspaces.md). Numbers of elements; complex matrices, which were not measured, are taken to need as
 * many.
 */
#include "cusolver/cusolver.h"

enum { TILE = 32, F32_NBYTES = 4, F64_NBYTES = 8 };

typedef struct point {
    int64_t n, value;
} point;

/* Between the points that were measured, and beyond the last by its slope. */
static int64_t between(const point *points, int count, int64_t n) {
    int i = 1;
    while (i < count - 1 && points[i].n < n) i++;
    const point *a = &points[i - 1], *b = &points[i];
    if (n <= a->n) return a->value;
    return a->value + (b->value - a->value) * (n - a->n) / (b->n - a->n);
}
#define BETWEEN(points, n) between(points, sizeof points / sizeof *points, n)

static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t solver_potrf_nbytes(int64_t n) {
    int64_t tiles = (n + TILE - 1) / TILE;
    return (4 * tiles * tiles + 128 + TILE - 1) / TILE * TILE;
}

int64_t solver_getrf_elements(int64_t m, int dtype) {
    static const point NBYTES[] = {{32, 768},     {33, 1280},    {64, 1280},   {128, 2304},  {200, 4096},
                                   {256, 4352},   {400, 7680},   {512, 8448},  {768, 10496}, {1024, 12544},
                                   {1500, 21152}, {2048, 52480}, {3072, 63744}};
    int64_t element = (int64_t)ph_cuda_dtype_nbytes(dtype, 1);
    return (BETWEEN(NBYTES, m) + element - 1) / element;
}

int64_t solver_geqrf_elements(int64_t n, int dtype) {
    enum { LEAST = 768 << 10, FIXED = 512 << 10, COLUMN = 1024, MORE_NBYTES = 128 };
    return greater(LEAST, FIXED + COLUMN * n) + MORE_NBYTES / (int64_t)ph_cuda_dtype_nbytes(dtype, 1);
}

int64_t solver_orgqr_elements(int64_t m, int64_t n) {
    if (n <= TILE) return 32768 + 20 * greater(m, 2 * n);
    return n < 128 ? 30976 + 32 * m + 64 * n : 16640 + 128 * m + 256 * n;
}

/* Exact for k = m; of 2000 x 300, 5 % less than measured. */
int64_t solver_ormqr_elements(int64_t m, int64_t k) { return 2 * m * k + 256 * k + 74016; }

int64_t solver_syevd_elements(int64_t n, int dtype) {
    int64_t more = ph_cuda_dtype_nbytes(dtype, 1) == F32_NBYTES ? 16 : 0;
    return greater(3 * n * n + 768 * n + 65619, 4 * n * n + 127 * n + 32979) + more;
}

int64_t solver_syev_batched_elements(int64_t n, int64_t batch) { return batch * (3 * n * n + 768 * n + 65507) + 96; }

int64_t solver_syevj_elements(int64_t n) {
    static const point BEYOND[] = {{32, 2085},  {33, 3123},  {64, 3154},   {128, 5316},
                                   {200, 8595}, {256, 9736}, {400, 15425}, {512, 18960}};
    return n * n + BETWEEN(BEYOND, n);
}

/* A matrix that is not square is made so by QR, a wide one after a copy. */
int64_t solver_gesvdj_elements(int64_t m, int64_t n) {
    static const point BEYOND[] = {{33, 5214},   {64, 5216},   {128, 9440},  {200, 15776}, {256, 17952},
                                   {400, 28768}, {512, 35360}, {768, 53280}, {1024, 71712}};
    if (m == n) return 2 * n * n + BETWEEN(BEYOND, n);
    int64_t tall = greater(m, n), short_side = m + n - tall;
    int64_t qr = greater(solver_geqrf_elements(short_side, CUDA_DTYPE_F64), solver_ormqr_elements(tall, short_side));
    return qr + short_side + TILE + (m < n ? m * n : 0);
}

int64_t solver_geev_elements(int64_t n) { return solver_orgqr_elements(n, n) + 4 * n; }
