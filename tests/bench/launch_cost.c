/*
 * What a launch costs: nanoseconds of CPU per __cudaLaunchKernel, beside the same call of a function that does nothing.
 * launch_cost.py runs it as a rank.
 */
#define _GNU_SOURCE
#include "cuda/types.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KERNELS = 64, LAUNCHES = 2000000 };

typedef int (*launch_function)(void *kernel, dim3 grid, dim3 block, void **args, size_t shared, void *stream);

static int __attribute__((noinline)) nothing(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                             void *stream) {
    __asm__ volatile("" ::"r"(kernel), "r"(args), "r"(shared), "r"(stream), "r"(grid.x), "r"(block.x));
    return 0;
}

static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(launch_function launch, void **kernels) {
    double start = cpu_ns();
    int failures = 0;
    for (int i = 0; i < LAUNCHES; i++)
        failures +=
            launch(kernels[i % KERNELS], (dim3){(unsigned)(i & 7) + 1, 1, 1}, (dim3){128, 1, 1}, NULL, 0, NULL) != 0;
    if (failures) {
        fprintf(stderr, "%d launches failed\n", failures);
        exit(1);
    }
    return (cpu_ns() - start) / LAUNCHES;
}

static double measure_device(int (*get_device)(int *)) {
    int device;
    double start = cpu_ns();
    for (int i = 0; i < LAUNCHES; i++) get_device(&device);
    return (cpu_ns() - start) / LAUNCHES;
}

static void *find(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return address;
}

int main(int argc, char **argv) {
    if (argc != 5) /* library, device file, socket, cost table */
        return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*load)(const char *) = find(library, "phantora_load");
    int (*start)(const char *, const char *, uint32_t, uint32_t, uint32_t, uint32_t) = find(library, "phantora_start");
    void (*finish)(int, const char *) = find(library, "phantora_finish");
    void (*add)(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *) =
        find(library, "__cudaRegisterFunction");
    int (*get)(void **, const void *) = find(library, "__cudaGetKernel");
    static char addresses[KERNELS], names[KERNELS][16];
    void *kernels[KERNELS];
    if (load(argv[2]) != 0 || start(argv[3], argv[4], 0, 1, 0, 0) != 0) return 1;
    for (int i = 0; i < KERNELS; i++) {
        snprintf(names[i], sizeof names[i], "kernel%d", i);
        add(NULL, &addresses[i], NULL, names[i], -1, NULL, NULL, NULL, NULL, NULL);
        get(&kernels[i], &addresses[i]);
    }
    launch_function launch = (launch_function)find(library, "__cudaLaunchKernel");
    measure(launch, kernels); /* every signature asked for */
    double idle = measure(nothing, kernels), ours = measure(launch, kernels);
    printf("{\"nothing_ns\": %.1f, \"launch_ns\": %.1f, \"get_device_ns\": %.1f}\n", idle, ours,
           measure_device((int (*)(int *))find(library, "cudaGetDevice")));
    finish(0, "");
    return 0;
}
