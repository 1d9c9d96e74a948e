/*
 * What the hook library writes, for test_signature_in_c.py, one item a line:
 *
 *   cuda NUMBER NAME, cudnn NUMBER NAME      dtype names of a range of numbers
 *   NAME TEXT                                a signature; the name says what it shows
 */
#include "costs/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOW(name, kind, ...)                                                                                          \
    do {                                                                                                               \
        ph_signature_##kind it = {__VA_ARGS__};                                                                        \
        char text[512], few[8];                                                                                        \
        memset(few, '#', sizeof few);                                                                                  \
        size_t n = ph_format_##kind(&it, text, sizeof text);                                                           \
        if (n > sizeof text || ph_format_##kind(&it, few, 4) != n || memcmp(few, text, 4) || few[4] != '#') exit(1);   \
        printf("%s %.*s\n", name, (int)n, text);                                                                       \
    } while (0)

int main(void) {
    for (int number = -3; number < 300; number++) {
        printf("cuda %d %s\n", number, ph_dtype_name(ph_dtype_of_cuda(number)));
        printf("cudnn %d %s\n", number, ph_dtype_name(ph_dtype_of_cudnn(number)));
    }
    static const int64_t image[] = {8, 3, 32, 30}, one[] = {1, 0}, heads[] = {2, 4, 128, 64};
    static const char *const op = "aten::op", *const sizes = "[[8, 64], [64], []]";
    SHOW("kernel", kernel, "_Z3foov", {2, 3, 1}, {128, 1, 1}, 4096, op, sizes);
    SHOW("unnamed", kernel, "", {2, 3, 1}, {128, 1, 1}, 4096, NULL, NULL);
    SHOW("odd", kernel, "a;b\tc", {1, 1, 1}, {1, 1, 1}, 0, "layer 1; forward\n", "");
    SHOW("conv", conv, PH_CONV_WGRAD, {image, 4}, {image, 3}, {image, 4}, {one, 2}, {one, 1}, {NULL, 0}, 2,
         PH_DTYPE_TF32, PH_NHWC, op, sizes);
    SHOW("sdpa", sdpa, PH_BACKWARD, {heads, 4}, {heads, 4}, {heads, 4}, PH_DTYPE_F16, true, false, op, sizes);
    SHOW("windowed", windowed, PH_BACKWARD, {heads, 4}, {heads, 4}, {heads, 4}, PH_DTYPE_F16, true, false, op, sizes,
         65, 64);
    SHOW("packed", packed, PH_FORWARD, {heads, 4}, {heads, 4}, {heads, 4}, PH_DTYPE_BF16, true, false, op, sizes, true,
         3, 1000, 990, 9, 8, 22, 5, 230000);
    SHOW("triton", triton, "add_kernel", {64, 1, 1}, {128, 1, 1}, 0, "-,-,4096", "module {|tt.return|}", op, sizes);
    SHOW("grouped", grouped, "device_kernel", {132, 1, 1}, {384, 1, 1}, 200000, 64, 60, 4096, 512, 90, 70, op, sizes);
    SHOW("sequences", sequences, "_Z3foov", {2, 3, 1}, {128, 1, 1}, 0, op, sizes, 3, 1000, 990, 9, 8, 22, 5, 230000);
    SHOW("strided", strided, "_Z3foov", {2, 3, 1}, {128, 1, 1}, 0, op, sizes, {image, 2}, "2x16384,16384x2");
    SHOW("scaled", scaled, "_Z3foov", {2, 3, 1}, {128, 1, 1}, 0, op, sizes, {image, 2}, {image, 2});
    SHOW("sized", sized, "_Z3foov", {2, 3, 1}, {128, 1, 1}, 0, op, sizes, "8192,4096", "67108864,~1048576");
    SHOW("rnn", rnn, PH_CONV_DGRAD, PH_RNN_LSTM, PH_RNN_STANDARD, 35, 20, 1500, 1500, 1500, 2, true, PH_DTYPE_F16, op,
         sizes);
    SHOW("library", library, "cudnnRNN", UINT64_MAX >> 1, op, sizes);
    SHOW("memset", memset, 4096);
    for (unsigned i = 0; i < 20; i++) {
        SHOW("gemm_call", gemm, .call = i, .op = op, .sizes = sizes);
        SHOW("transpose", gemm, .transa = i, .op = op, .sizes = sizes);
        SHOW("norm_mode", norm, .mode = i, .x = {image, 4}, .op = op, .sizes = sizes);
    }
    for (unsigned bit = 0; bit < 12; bit++) SHOW("epilogue", gemm, .epilogue = 1u << bit, .op = op, .sizes = sizes);
    SHOW("epilogues", gemm, .epilogue = PH_EPILOGUE_GELU | PH_EPILOGUE_AUX | PH_EPILOGUE_BIAS | 1 << 20, .op = op);
    for (unsigned i = 0; i < 5; i++) SHOW("copy_direction", copy, i, 7, i % 2 ? PH_PINNED : PH_PAGEABLE);
    return 0;
}
