"""What reading printed logs costs, in CPU time: from the text to the rows that rules judge.

    python -m benchmarks.printed_logs [--lines 58000]
    python -m benchmarks.printed_logs FILE ...

Without files, logs in the words of six programs, of which every fortieth line is something else.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.harness import machine, markdown_table

from runwatch_server.importing import read_run_log

STYLES: Final = {
    "nanoGPT": "iter {n}: loss {loss:.4f}, time {ms:.2f}ms, mfu {mfu:.2f}%",
    "Trainer": (
        "{{'loss': {loss:.4f}, 'grad_norm': {norm:.4f}, 'learning_rate': 5e-05, 'step': {n}}}"
    ),
    "Detectron2": (
        "[11/30 01:20:17] d2.utils.events INFO:  eta: 1:48:32  iter: {n}  total_loss: {loss:.4f}  "
        "loss_cls: {part:.4f}  time: {norm:.4f}  data_time: 0.0048  lr: 0.02  max_mem: 5421M"
    ),
    "Megatron": (
        " iteration {n:8d}/  500000 | consumed samples: {samples:12d} | elapsed time per iteration "
        "(ms): {ms:.1f} | learning rate: 1.500E-04 | global batch size:    64 | lm loss: "
        "{loss:.6E} | loss scale: 65536.0 | grad norm: {norm:.3f} |"
    ),
    "MMDetection": (
        "2021-05-03 10:00:00,123 - mmdet - INFO - Epoch [{epoch}][{batch}/5000]\tlr: 2.000e-02, "
        "eta: 11:11:11, time: {norm:.3f}, data_time: 0.004, memory: 3999, loss_cls: {part:.4f}, "
        "loss: {loss:.4f}"
    ),
    "PyTorch's examples": "Train Epoch: {epoch} [{batch}/5000 ({share:.0f}%)]\tLoss: {loss:.6f}",
}
OTHER_LINE: Final = "/lib/torch/nn/functional.py:718: UserWarning: named tensors are experimental"


def printed(style: str, num_lines: int) -> Iterator[str]:
    numbers = random.Random(0)
    for n in range(1, num_lines + 1):
        if n % 40 == 0:
            yield OTHER_LINE
            continue
        loss = 2.5 / (1 + n / 5000) + 0.1 * numbers.random()
        yield style.format(
            n=n, loss=loss, part=loss / 3, norm=numbers.random(), ms=numbers.uniform(900, 999),
            mfu=numbers.uniform(5, 9), samples=64 * n, epoch=n // 5000 + 1, batch=n % 5000,
            share=n % 5000 / 50,
        )  # fmt: skip


def written(folder: Path, num_lines: int) -> list[Path]:
    files = {folder / f"{name}.log": style for name, style in STYLES.items()}
    for file, style in files.items():
        file.write_text("".join(f"{line}\n" for line in printed(style, num_lines)))
    return list(files)


def measured(file: Path) -> tuple[str, int, str]:
    num_lines = file.read_bytes().count(b"\n")
    start = time.process_time()
    read_run_log(file)
    return file.stem, num_lines, f"{time.process_time() - start:.2f}"


def main() -> None:
    options = _options()
    print(f"\n{machine()}; CPU time\n")
    with tempfile.TemporaryDirectory() as folder:
        files: list[Path] = options.files or written(Path(folder), options.lines)
        table = [measured(file) for file in files]
    print(markdown_table(("log", "lines", "seconds"), table))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--lines", type=int, default=58_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
