/*
 * cuSOLVER: how many kernels a call launches, as counted on an H200 for matrices of 8 to 2,048 columns in f32
 * (CUDA 13.0, laboratory/notes/libraries-h200.md). Small matrices take one pass, larger ones a pass for each block of
 * columns. Those of ormqr are taken to be as many as orgqr's. Eigenvalues and singular values wait for the GPU again
 * and again: their time is the GPU's.
 */
#include "cusolver/cusolver.h"
#include "threads/host.h"

enum { OF_ONE_CALL = 3 }; /* launches in the price of a library's call */

int64_t solver_geqrf_launches(int64_t n) { return n <= 256 ? 3 : 3 + (n - 256) / 9; }

int64_t solver_orgqr_launches(int64_t n) { return n <= 64 ? 10 : 10 + (n - 64) / 9; }

int64_t solver_getrf_launches(int64_t n) { return n <= 512 ? 5 : 5 + (n - 512) / 32; }

int64_t solver_getrs_launches(int64_t n) { return 6 + n / 44; }

int64_t solver_potrs_launches(int64_t n) { return n <= 256 ? 3 : 3 + (n - 256) / 45; }

void solver_launches(int64_t launches) {
    for (int64_t i = OF_ONE_CALL; i < launches; i++) ph_host_call(PH_CALL_LAUNCH);
}
