/* cuDNN: CTC loss. Its time is that of the bytes of its probabilities and gradients; its values are not computed. */
#include "kernels/library.h"
#include "cudnn/cudnn.h"

#include <stdlib.h>

typedef struct ctc {
    int dtype, normalization, gradient, max_label;
} ctc;

PH_EXPORT int cudnnCreateCTCLossDescriptor(ctc **out) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!out) return CUDNN_BAD_POINTER;
    return (*out = calloc(1, sizeof **out)) ? CUDNN_OK : CUDNN_NO_MEMORY;
}

PH_EXPORT int cudnnDestroyCTCLossDescriptor(ctc *it) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    free(it);
    return CUDNN_OK;
}

static int set(ctc *it, ctc value) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!it) return CUDNN_BAD_POINTER;
    *it = value;
    return CUDNN_OK;
}

PH_EXPORT int cudnnSetCTCLossDescriptorEx(ctc *it, int dtype, int normalization, int gradient) {
    return set(it, (ctc){dtype, normalization, gradient, 0});
}

PH_EXPORT int cudnnSetCTCLossDescriptor_v9(ctc *it, int dtype, int normalization, int gradient, int max_label) {
    return set(it, (ctc){dtype, normalization, gradient, max_label});
}

/* Alpha and beta of every step, for the longest labels that the steps allow, with blanks between them. */
static int space(const cudnn_tensor *probabilities, size_t *nbytes) {
    ph_host_call(PH_CALL_LIBRARY_QUERY);
    if (!probabilities || !nbytes || probabilities->ndims != 3) return CUDNN_BAD_PARAM;
    *nbytes = 2 * (size_t)cudnn_tensor_nbytes(probabilities);
    return CUDNN_OK;
}

PH_EXPORT int cudnnGetCTCLossWorkspaceSize(cudnn_handle *handle, const cudnn_tensor *probabilities,
                                           const cudnn_tensor *gradients, const int *labels, const int *label_lengths,
                                           const int *input_lengths, int algo, ctc *it, size_t *nbytes) {
    (void)handle, (void)gradients, (void)labels, (void)label_lengths, (void)input_lengths, (void)algo, (void)it;
    return space(probabilities, nbytes);
}

PH_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(cudnn_handle *handle, int algo, ctc *it,
                                              const cudnn_tensor *probabilities, const cudnn_tensor *gradients,
                                              size_t *nbytes) {
    (void)handle, (void)algo, (void)it, (void)gradients;
    return space(probabilities, nbytes);
}

static int run(cudnn_handle *handle, const char *name, const cudnn_tensor *probabilities) {
    if (!handle || !probabilities) return CUDNN_BAD_POINTER;
    return ph_library_launch(handle->stream, name, 4 * cudnn_tensor_nbytes(probabilities)) ? CUDNN_OK : CUDNN_BAD_PARAM;
}

PH_EXPORT int cudnnCTCLoss(cudnn_handle *handle, const cudnn_tensor *probabilities) {
    return run(handle, "cudnnCTCLoss", probabilities); /* the other parameters are buffers */
}

PH_EXPORT int cudnnCTCLoss_v8(cudnn_handle *handle, int algo, ctc *it, const cudnn_tensor *probabilities) {
    (void)algo, (void)it;
    return run(handle, "cudnnCTCLoss_v8", probabilities);
}
