/* Capture, graphs and their objects; kernels, modules, symbols. */
#include "check.h"

#include <elf.h>

static const dim3 one = {1, 1, 1}, block = {128, 1, 1};
static char kernel_address, variable;

static void *stream(void) {
    void *out;
    EQUAL(cudaStreamCreateWithFlags(&out, STREAM_NONBLOCKING), 0);
    return out;
}

static void *event(void) {
    void *out;
    EQUAL(cudaEventCreateWithFlags(&out, EVENT_DISABLE_TIMING), 0);
    return out;
}

static void launch(void *on) { EQUAL(cudaLaunchKernel(&kernel_address, one, block, NULL, 0, on), 0); }

static int calls;
static void count(void *by) { calls += *(int *)by; }

static void captured_work_happens_at_launch(void) {
    void *origin = stream(), *side = stream(), *fork = event(), *join = event(), *graph, *exec;
    int step = 5, status;
    char *device, pinned_out[8] = {0};
    EQUAL(cudaMalloc((void **)&device, 4096), 0);
    EQUAL(cudaStreamBeginCapture(origin, 0), 0);
    EQUAL(cudaStreamIsCapturing(origin, &status), 0);
    EQUAL(status, CAPTURE_ACTIVE);
    launch(origin);
    EQUAL(cudaEventRecord(fork, origin), 0);
    EQUAL(cudaStreamWaitEvent(side, fork, 0), 0);
    EQUAL(cudaStreamIsCapturing(side, &status), 0);
    EQUAL(status, CAPTURE_ACTIVE);
    EQUAL(cudaMemsetAsync(device, 3, 8, side), 0);
    launch(origin);
    EQUAL(cudaEventRecord(join, side), 0);
    EQUAL(cudaStreamWaitEvent(origin, join, 0), 0);
    EQUAL(cudaMemcpyAsync(pinned_out, device, 8, COPY_D2H, origin), 0);
    EQUAL(cudaLaunchHostFunc(origin, count, &step), 0);
    EQUAL(cudaStreamEndCapture(origin, &graph), 0);
    EQUAL(cudaStreamIsCapturing(side, &status), 0);
    EQUAL(status, CAPTURE_NONE);
    CHECK(device[0] == 0 && calls == 0);

    size_t n = 0, ndependencies;
    EQUAL(cudaGraphGetNodes(graph, NULL, &n), 0);
    EQUAL(n, 5);
    void *nodes[5], *before[4];
    EQUAL(cudaGraphGetNodes(graph, nodes, &n), 0);
    int types[5], expected[5] = {0, 2, 0, 1, 3}; /* kernel, set, kernel, copy, host function */
    for (int i = 0; i < 5; i++) {
        EQUAL(cudaGraphNodeGetType(nodes[i], &types[i]), 0);
        EQUAL(types[i], expected[i]);
    }
    ndependencies = 4;
    EQUAL(cudaGraphNodeGetDependencies(nodes[3], before, NULL, &ndependencies), 0);
    EQUAL(ndependencies, 2);
    CHECK((before[0] == nodes[2] && before[1] == nodes[1]) || (before[0] == nodes[1] && before[1] == nodes[2]));

    EQUAL(cudaGraphInstantiateWithFlags(&exec, graph, 1), 0);
    EQUAL(cudaGraphDestroy(graph), 0);
    for (int i = 0; i < 3; i++) EQUAL(cudaGraphLaunch(exec, side), 0);
    EQUAL(cudaStreamSynchronize(side), 0);
    CHECK(device[7] == 3 && pinned_out[7] == 3);
    EQUAL(calls, 15);
    EQUAL(cudaGraphExecDestroy(exec), 0);
    EQUAL(cudaStreamDestroy(origin) | cudaStreamDestroy(side) | cudaEventDestroy(fork) | cudaEventDestroy(join), 0);
    EQUAL(cudaFree(device), 0);
}

static void wrong_captures_fail_as_documented(void) {
    void *origin = stream(), *side = stream(), *fork = event(), *graph;
    EQUAL(cudaStreamBeginCapture(NULL, 0), CUDA_CAPTURE_UNSUPPORTED); /* the legacy default stream */
    EQUAL(cudaStreamEndCapture(origin, &graph), 401);
    EQUAL(cudaStreamBeginCapture(origin, 0), 0);
    EQUAL(cudaStreamSynchronize(origin), CUDA_CAPTURE_UNSUPPORTED);
    EQUAL(cudaStreamEndCapture(origin, &graph), CUDA_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    /* a branch that is never joined */
    EQUAL(cudaStreamBeginCapture(origin, 0), 0);
    EQUAL(cudaEventRecord(fork, origin), 0);
    EQUAL(cudaStreamWaitEvent(side, fork, 0), 0);
    launch(side);
    EQUAL(cudaStreamEndCapture(origin, &graph), CUDA_CAPTURE_UNJOINED);
    /* the event of a capture that has ended means nothing */
    EQUAL(cudaStreamWaitEvent(side, fork, 0), CUDA_INVALID_VALUE);
    launch(side);
    EQUAL(cudaStreamDestroy(origin) | cudaStreamDestroy(side) | cudaEventDestroy(fork), 0);
    (void)cudaGetLastError();
}

static void capture_info(void) {
    void *origin = stream(), *graph, **before, *ended;
    int status;
    unsigned long long id;
    size_t n;
    EQUAL(cudaStreamGetCaptureInfo(origin, &status, &id, &graph, &before, NULL, &n), 0);
    CHECK(status == CAPTURE_NONE && id == 0 && graph == NULL && n == 0);
    EQUAL(cudaStreamBeginCapture(origin, 2), 0);
    launch(origin);
    EQUAL(cudaStreamGetCaptureInfo(origin, &status, &id, &graph, &before, NULL, &n), 0);
    CHECK(status == CAPTURE_ACTIVE && id > 0 && graph != NULL && n == 1 && before[0] != NULL);
    EQUAL(cudaStreamEndCapture(origin, &ended), 0);
    CHECK(ended == graph);
    EQUAL(cudaGraphDestroy(ended) | cudaStreamDestroy(origin), 0);
}

static void objects_live_as_long_as_their_graphs(void) {
    void *origin = stream(), *graph, *exec, *object;
    int step = 100;
    calls = 0;
    EQUAL(cudaStreamBeginCapture(origin, 0), 0);
    EQUAL(cudaStreamEndCapture(origin, &graph), 0);
    EQUAL(cudaUserObjectCreate(&object, &step, count, 1, 0), 1);
    EQUAL(cudaUserObjectCreate(&object, &step, count, 1, 1), 0);
    EQUAL(cudaGraphRetainUserObject(graph, object, 1, 1), 0);
    EQUAL(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    EQUAL(cudaGraphDestroy(graph), 0);
    EQUAL(calls, 0);
    EQUAL(cudaGraphExecDestroy(exec), 0);
    EQUAL(calls, 100);
    EQUAL(cudaStreamDestroy(origin), 0);
    (void)cudaGetLastError();
}

static void launches_are_checked(void) {
    EQUAL(cudaLaunchKernel(&kernel_address, one, (dim3){1025, 1, 1}, NULL, 0, NULL), CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(&kernel_address, (dim3){1, 0, 1}, block, NULL, 0, NULL), CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(&kernel_address, one, block, NULL, 100 << 10, NULL), CUDA_INVALID_VALUE);
    EQUAL(cudaFuncSetAttribute(&kernel_address, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), 0);
    EQUAL(cudaLaunchKernel(&kernel_address, one, block, NULL, 100 << 10, NULL), 0);
    EQUAL(cudaFuncSetAttribute(&kernel_address, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10),
          CUDA_INVALID_VALUE);
    static uint64_t unknown[8];
    EQUAL(cudaLaunchKernel(unknown, one, block, NULL, 0, NULL), CUDA_INVALID_DEVICE_FUNCTION);
    EQUAL(cudaGetLastError(), CUDA_INVALID_DEVICE_FUNCTION);
    struct cudaFuncAttributes attributes;
    EQUAL(cudaFuncGetAttributes(&attributes, &kernel_address), 0);
    CHECK(attributes.binaryVersion == 90 && attributes.ptxVersion == 90 && attributes.maxThreadsPerBlock == 1024);
    int blocks;
    EQUAL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &kernel_address, 1024, 0), 0);
    EQUAL(blocks, 2);
    EQUAL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &kernel_address, 64, 100 << 10), 0);
    EQUAL(blocks, 2); /* 228 KiB of shared memory */
}

static void variables(void) {
    int value = 42, *address, back = 0;
    EQUAL(cudaGetSymbolAddress((void **)&address, &kernel_address), CUDA_INVALID_SYMBOL);
    EQUAL(cudaMemcpyToSymbol(&variable, &value, sizeof value, 4, COPY_H2D), 0);
    EQUAL(cudaGetSymbolAddress((void **)&address, &variable), 0);
    EQUAL(cudaMemcpy(&back, address + 1, sizeof back, COPY_D2H), 0);
    EQUAL(back, 42);
    EQUAL(cudaMemcpyToSymbol(&variable, &value, sizeof value, 14, COPY_H2D), 1);
    (void)cudaGetLastError();
}

/* A cubin as small as can be: section headers, and names of a kernel with 40 registers and 1 KiB of shared memory. */
static void modules_read_cubins(void) {
    static struct {
        Elf64_Ehdr head;
        Elf64_Shdr sections[4];
        char names[64];
    } cubin;
    const char names[] = "\0.text.add\0.nv.shared.add\0.names";
    memcpy(cubin.head.e_ident, ELFMAG, SELFMAG);
    cubin.head.e_ident[EI_CLASS] = ELFCLASS64;
    cubin.head.e_machine = 190;
    cubin.head.e_shoff = sizeof cubin.head;
    cubin.head.e_shentsize = sizeof cubin.sections[0];
    cubin.head.e_shnum = 4;
    cubin.head.e_shstrndx = 3;
    memcpy(cubin.names, names, sizeof names);
    cubin.sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_info = 40u << 24 | 5};
    cubin.sections[2] = (Elf64_Shdr){.sh_name = 11, .sh_size = 1024};
    cubin.sections[3] = (Elf64_Shdr){.sh_name = 26, .sh_offset = sizeof cubin.head + sizeof cubin.sections};
    void *module, *function, *none;
    int value;
    EQUAL(cuModuleLoadData(&module, &cubin), 0);
    EQUAL(cuModuleGetFunction(&none, module, "sub"), CUDA_NOT_FOUND);
    EQUAL(cuModuleGetFunction(&function, module, "add"), 0);
    EQUAL(cuFuncGetAttribute(&value, 4, function), 0);
    EQUAL(value, 40);
    EQUAL(cuFuncGetAttribute(&value, 1, function), 0);
    EQUAL(value, 1024);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL), 0);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL), 1);
    EQUAL(cuModuleUnload(module), 0);
}

static void functions_are_found_by_name(void) {
    void *address;
    int found;
    EQUAL(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &address, 13000, 0, &found), 0);
    CHECK(address == (void *)cuMemGetAddressRange_v2 && found == 0);
    EQUAL(cudaGetDriverEntryPointByVersion("cuNoSuchCall", &address, 13000, 0, &found), 0);
    CHECK(address == NULL && found == 1);
}

static void attributes(void) {
    int value;
    struct cudaDeviceProp13 p;
    EQUAL(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), 0);
    EQUAL(value, 132);
    EQUAL(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 1), 0);
    EQUAL(value, 12345678); /* the device file's own line */
    EQUAL(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 2), CUDA_INVALID_DEVICE);
    EQUAL(cudaDeviceGetAttribute(&value, 9999, 0), CUDA_INVALID_VALUE);
    EQUAL(cudaDeviceGetAttribute(&value, cudaDevAttrGpuPciDeviceId, 0), CUDA_INVALID_VALUE); /* not given */
    EQUAL(cudaGetDeviceProperties(&p, 1), 0);
    CHECK(strcmp(p.name, "NVIDIA Test") == 0 && p.major == 9 && p.multiProcessorCount == 132 &&
          p.l2CacheSize == 12345678);
    CHECK(p.maxThreadsPerMultiProcessor == 2048 && p.sharedMemPerBlockOptin == 227 << 10 && p.warpSize == 32);
    EQUAL(p.totalGlobalMem, 1 << 30);
    (void)cudaGetLastError();
}

int main(int argc, char **argv) {
    EQUAL(argc, 2);
    EQUAL(phantora_load(argv[1]), 0);
    __cudaRegisterFunction(NULL, &kernel_address, NULL, "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(NULL, &variable, NULL, "variable", 0, 16, 0, 0);
    captured_work_happens_at_launch();
    wrong_captures_fail_as_documented();
    capture_info();
    objects_live_as_long_as_their_graphs();
    launches_are_checked();
    variables();
    modules_read_cubins();
    functions_are_found_by_name();
    attributes();
    return 0;
}
