/*
 * From and to which size PyTorch's gradients of upsamplings scale images. Their ops get the sizes as lists of integers,
 * which NVTX ranges do not tell. The kernels get them as four `int` in a row, height and width before and after
 * (ATen/native/cuda/UpSampleBilinear2d.cu), behind parameters of one letter each in the mangled name: `Evmiiii`.
 */
#include "kernels/kernel.h"

#include <string.h>

enum { NONE = -1 };

static const char NAME[] = "upsample_bilinear2d_backward_";
static const char PARAMETERS[] = "EEv"; /* ends the template's arguments; then the type that it returns */
static const char SIZES[] = "iiii";

int ph_images_at(const char *mangled) {
    const char *name = strstr(mangled, NAME), *first = name ? strstr(name, PARAMETERS) : NULL;
    if (!first) return NONE;
    first += strlen(PARAMETERS);
    size_t letters = strspn(first, "abcdefhijlmstxy"); /* types of one letter */
    const char *sizes = strstr(first, SIZES);
    return sizes && (size_t)(sizes - first) + strlen(SIZES) <= letters ? (int)(sizes - first) : NONE;
}

bool ph_images_of(const ph_kernel *kernel, void *const *params, ph_images *out) {
    if (!params) return false;
    int32_t *sizes[] = {&out->before[0], &out->before[1], &out->after[0], &out->after[1]};
    for (int i = 0; i < 4; i++) {
        memcpy(sizes[i], params[kernel->images + i], sizeof **sizes);
        if (*sizes[i] < 1) return false;
    }
    return true;
}
