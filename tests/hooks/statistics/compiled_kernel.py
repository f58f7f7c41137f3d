"""Compiles the accelerator's kernel for cards that are not here, and fails to launch it.

python compiled_kernel.py RESULTS
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from tests.hooks.statistics.kernel_cases import BLOCK, STRETCH, drawn

from runwatch_hooks.faults import Faults
from runwatch_hooks.statistics import kernels
from runwatch_hooks.statistics.gpu_reading import GradientsOnDevice, open_kernel

# Without types that a checker could follow.
TRITON: Any = importlib.import_module("triton")
COMPILER: Any = importlib.import_module("triton.compiler")
BACKENDS: Any = importlib.import_module("triton.backends.compiler")
KERNELS: Any = kernels

CPU = torch.device("cpu")
TARGETS: dict[str, Any] = {
    "ptx": BACKENDS.GPUTarget("cuda", 80, 32),
    "amdgcn": BACKENDS.GPUTarget("hip", "gfx942", 64),
}
TABLES = {"addresses": "*i64", "sizes": "*i64", "owners": "*i32", "starts": "*i64"}


def compiled(target: Any, dtype: torch.dtype, *, is_aligned: bool) -> Any:
    constants: dict[str, object] = {
        "DTYPE": KERNELS.ELEMENT_TYPES[dtype],
        "IS_ALIGNED": is_aligned,
        "STRETCH": STRETCH,
        "BLOCK": BLOCK if dtype.itemsize <= 4 else BLOCK // 2,
        "STAGES": 3,
    }
    signature = TABLES | {"partials": "*fp64"} | dict.fromkeys(constants, "constexpr")
    source = COMPILER.ASTSource(KERNELS.read_stretches, signature, constants)
    return TRITON.compile(source, target=target, options={"num_warps": 4})


def joined(target: Any) -> Any:
    signature = {"partials": "*fp64", "firsts": "*i32", "sizes": "*i64", "places": "*i64"}
    signature |= {"found": "*fp32", "BLOCK": "constexpr"}
    return TRITON.compile(
        COMPILER.ASTSource(KERNELS.join_stretches, signature, {"BLOCK": 1024}), target=target
    )


def finished(target: Any) -> Any:
    signature = {"stats": "*fp32", "norms": "*fp32", "sparse_above": "*fp32", "num": "i32"}
    source = COMPILER.ASTSource(
        KERNELS.finish_ratios, signature | {"BLOCK": "constexpr"}, {"BLOCK": 256}
    )
    return TRITON.compile(source, target=target)


def sampled(target: Any, kernel: Any, others: dict[str, str], dtype: torch.dtype) -> Any:
    constants: dict[str, object] = {"DTYPE": KERNELS.ELEMENT_TYPES[dtype], "BLOCK": 1024}
    signature = {"table": "*i64", "kept": "*fp32"} | others
    signature |= dict.fromkeys(constants, "constexpr")
    source = COMPILER.ASTSource(kernel, signature, constants)
    return TRITON.compile(source, target=target)


def fallen_back() -> dict[str, object]:
    """What becomes of tensors of a CPU, for which Triton has no compiler."""
    faults = Faults()
    reader = GradientsOnDevice(CPU, faults, open_kernel)
    found: list[object] = [reader.read(drawn(100, 7)).tolist() for _ in range(2)]
    tensors = drawn(100, 7)
    samples = GradientsOnDevice(CPU, faults, open_kernel).open_samples(tensors, tensors)
    samples.remember()
    for one in tensors:
        one.add_(1.0)
    moved = list(map(float, samples.squares()))
    return {"found": found, "moved": moved, "faults": faults.count, "told": faults.untold()}


def main(results: Path) -> None:
    assembler: dict[str, list[str]] = {}
    shared_bytes: dict[str, int] = {}
    for kind, target in TARGETS.items():
        readings = [
            compiled(target, dtype, is_aligned=is_aligned)
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
            for is_aligned in (True, False)
        ]
        shared_bytes[kind] = max(one.metadata.shared for one in readings)
        assembler[kind] = [one.asm[kind] for one in readings]
        assembler[kind] += [joined(target).asm[kind], finished(target).asm[kind]]
        assembler[kind] += [
            sampled(target, kernel, others, dtype).asm[kind]
            for dtype in KERNELS.SAMPLED_TYPES
            for kernel, others in (
                (KERNELS.remember_samples, {"marks": "*i32"}),
                (KERNELS.compare_samples, {"shares": "*fp32", "squares": "*fp32"}),
            )
        ]
    found = {"assembler": assembler, "shared": shared_bytes, "fallen_back": fallen_back()}
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
