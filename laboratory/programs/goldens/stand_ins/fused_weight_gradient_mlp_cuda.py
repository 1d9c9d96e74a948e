"""Apex's products that add to the gradient of a weight: they allocate nothing."""


def wgrad_gemm_accum_fp32(inputs, grad_output, main_grad):
    pass


def wgrad_gemm_accum_fp16(inputs, grad_output, main_grad):
    pass
