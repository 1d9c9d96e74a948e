"""Expressions over known tensors, large and small, have the CPU's values. `python large_values.py [TEXT]`

Tensors of more than 4,096 floating-point elements, or 1,048,576 integers, are computed when their values are read.
"""

from __future__ import annotations

import ctypes
import math
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64


def tensors(device: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def r(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    def integers(high: int, n: int) -> Tensor:
        return torch.randint(0, high, (n,), generator=generator)

    made = {"x": r(20000), "y": r(20000), "m": r(200, 300), "n": r(200, 300), "w": r(500, 64), "t3": r(16, 40, 50)}
    made["xn"], made["xi"] = r(20000), r(20000)
    made["xn"][77], made["xi"][78], made["xi"][79] = math.nan, math.inf, -math.inf
    made |= {"h": r(20000).half(), "bf": r(20000).bfloat16(), "d": r(20000).double()}
    made |= {"i": integers(100, 20000), "j": integers(500, 3000), "big": integers(1000, 1500000)}
    made |= {"i32": made["i"].int(), "big2": made["big"] + (torch.arange(1500000) % 7 == 0).long()}
    made |= {"mask": r(20000) > 0, "mm": r(200, 300) > 0, "u8": integers(255, 5000000).byte()}
    made |= {"lab": integers(300, 200), "img": r(4, 3, 64, 64), "few": torch.tensor([3, 1, 7])}
    made |= {"c": torch.complex(r(6000), r(6000)), "pos": r(20000).abs() + 0.1, "prob": r(200, 300).softmax(-1)}
    made |= {"s": r(50), "s2": r(50), "si": torch.arange(50) % 7, "sm": r(6, 7)}
    return {name: tensor.to(device) for name, tensor in made.items()}


EXPRESSIONS = (Path(__file__).parent / "large_values.txt").read_text().splitlines()
PRODUCTS = """
(m @ n.T)[0, 0]
(m @ n.T).argmax(-1)
torch.einsum('ij,ij->i', m, n)
torch.addmm(m[:, :200], m, n.T)[0, 0]
torch.bmm(t3, t3.mT)[0, 0, 0]
F.linear(m, n)[0, 0]
F.conv2d(img, img[:1])[0, 0, 0, 0]
torch.cdist(m, n)[0, 0]
torch.corrcoef(m)[0, 0]
torch.cov(m)[0, 0]
""".strip().splitlines()


def plain(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def same(got: object, expected: object) -> bool:
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor) or got.shape != expected.shape or got.dtype != expected.dtype:
            return False
        if not expected.is_floating_point() and not expected.is_complex():
            return torch.equal(got, expected)
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 3e-2}.get(expected.dtype, 1e-4)
        largest = expected.abs().double().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0
        return torch.allclose(got, expected, rtol=tolerance, atol=tolerance * max(1, largest), equal_nan=True)
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(same(got[key], expected[key]) for key in expected)
    if isinstance(expected, float) and isinstance(got, float):
        return got == expected or (got != got and expected != expected) or math.isclose(got, expected, rel_tol=1e-3)
    if isinstance(expected, str):
        return str(got).replace(", device='cuda:0'", "") == expected
    return type(got) is type(expected) and got == expected


def main() -> None:
    warnings.simplefilter("ignore")
    names = {"torch": torch, "math": math, "F": F, "nn": nn}
    on_cpu, on_gpu = names | tensors("cpu"), names | tensors("cuda")
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    wrong = []
    for text in EXPRESSIONS:
        if wanted in text:
            before = HOOK.phantora_unmodelled_reads()
            expected, got = (plain(eval(text, space)) for space in (on_cpu, on_gpu))
            if not same(got, expected) or HOOK.phantora_unmodelled_reads() != before:
                wrong.append(f"{text}: {got}, expected {expected}")
    for text in PRODUCTS:
        before = HOOK.phantora_unmodelled_reads()
        plain(eval(text, on_gpu))
        if HOOK.phantora_unmodelled_reads() == before:
            wrong.append(f"{text}: not computed and not counted")
    print("\n".join(wrong) if wrong else f"PASSED {len(EXPRESSIONS)}")


if __name__ == "__main__":
    main()
