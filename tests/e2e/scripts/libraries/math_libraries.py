"""Fourier transforms, sparse matrices and factorisations, too large to be computed on the CPU."""

import torch

FFT, LINALG = torch.fft, torch.linalg


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype)


signal = normal(16, 1 << 15).requires_grad_()
FFT.irfft(FFT.rfft(signal)).sum().backward()
assert signal.grad.shape == signal.shape
assert FFT.fftn(normal(64, 64, 64, dtype=torch.complex64)).shape == (64, 64, 64)
assert FFT.fft(normal(8, 100003, dtype=torch.complex64)).shape == (8, 100003)

ROWS, ENTRIES = 5000, 50000
columns = torch.randint(0, ROWS, (ENTRIES,), device="cuda").view(ROWS, -1).sort(1)[0].view(-1)
offsets = torch.arange(0, ENTRIES + 1, ENTRIES // ROWS, device="cuda")
matrix = torch.sparse_csr_tensor(offsets, columns, normal(ENTRIES), (ROWS, ROWS))
dense = normal(ROWS, 64)
assert (matrix @ dense).shape == (ROWS, 64)
assert (matrix @ dense[:, 0]).shape == (ROWS,)
assert (matrix @ matrix)._nnz() > ENTRIES
assert torch.sparse.sampled_addmm(matrix, dense, dense.t().contiguous())._nnz() == ENTRIES
indices = torch.randint(0, ROWS, (2, ENTRIES), device="cuda")
values = normal(ENTRIES).requires_grad_()
torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (ROWS, ROWS)), dense).sum().backward()
assert values.grad.shape == values.shape

square = normal(512, 512)
assert LINALG.eig(square)[0].dtype == torch.complex64
assert LINALG.svd(square)[1].shape == (512,)
assert LINALG.eigh(square @ square.T)[0].shape == (512,)
assert LINALG.cholesky(square @ square.T + 512 * torch.eye(512, device="cuda")).shape == (512, 512)
assert LINALG.solve(square, square).shape == (512, 512)
assert LINALG.qr(square)[0].shape == (512, 512)
assert LINALG.ldl_solve(*LINALG.ldl_factor(square), square).shape == (512, 512)
torch.cuda.synchronize()
print("PASSED")
