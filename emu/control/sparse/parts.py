"""The dense tensors of which a sparse one consists: indices and values, and the ends of rows (CSR) or columns (CSC)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def is_sparse(tensor: Tensor) -> bool:
    """Tells whether the tensor is COO or compressed."""
    import torch

    return tensor.layout != torch.strided


def named_parts(tensor: Tensor) -> dict[str, Tensor]:
    """Returns the parts of a sparse tensor by their names."""
    import torch

    if tensor.layout == torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {"ends": tensor.crow_indices(), "indices": tensor.col_indices(), "values": tensor.values()}
    return {"ends": tensor.ccol_indices(), "indices": tensor.row_indices(), "values": tensor.values()}


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Returns the dense tensors of which a tensor consists; a dense tensor consists of itself."""
    return list(named_parts(tensor).values()) if is_sparse(tensor) else [tensor]


def made_of(parts: dict[str, Tensor], like: Tensor, device: Any) -> Tensor:
    """Returns a tensor like `like` that has these parts."""
    import torch

    made: Tensor
    if like.layout == torch.sparse_coo:
        indices, values, coalesced = parts["indices"], parts["values"], like.is_coalesced()
        made = torch.sparse_coo_tensor(
            indices, values, like.shape, device=device, check_invariants=False, is_coalesced=coalesced
        )
    else:
        ends, indices, values = parts["ends"], parts["indices"], parts["values"]
        made = torch.sparse_compressed_tensor(
            ends, indices, values, like.shape, layout=like.layout, device=device, check_invariants=False
        )
    return made


def cuda_tensors(values: Iterable[Any], tensor_type: type[Tensor]) -> list[Tensor]:
    """Returns the CUDA tensors among a call's arguments or results, dense and sparse, and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, tensor_type):
            found += [value] if value.is_cuda else []
        elif isinstance(value, (list, tuple)):
            found += cuda_tensors(value, tensor_type)
    return found
