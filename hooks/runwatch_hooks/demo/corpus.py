"""Training text that is on every machine: the licence and sources of Python's standard library.

Nothing is downloaded. The files are listed by name, so that machines with the same Python read the
same text; files that a distribution has left out are skipped.
"""

import sysconfig
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

FILES: Final = (
    "LICENSE.txt",
    "argparse.py",
    "difflib.py",
    "doctest.py",
    "heapq.py",
    "inspect.py",
    "ipaddress.py",
    "optparse.py",
    "pickle.py",
    "shutil.py",
    "socket.py",
    "statistics.py",
    "subprocess.py",
    "tarfile.py",
    "threading.py",
    "typing.py",
)
"""Half a megabyte of English in docstrings and comments, and of Python around it."""

ALPHABET: Final = "\n" + "".join(map(chr, range(32, 127)))
"""Printable ASCII, so that the vocabulary does not depend on the text."""

_UNKNOWN: Final = ALPHABET.index("?")


def read_corpus(library: Path | None = None) -> Tensor:
    """The text as one sequence of token ids, shape (tokens,), int64."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"{folder}: found none of Python's own source files, wanted {FILES}"
        )
    text = "\n".join(path.read_text(encoding="utf-8") for path in found)
    ids = {letter: index for index, letter in enumerate(ALPHABET)}
    return torch.tensor([ids.get(letter, _UNKNOWN) for letter in text])


def batch_at(corpus: Tensor, step: int, *, seed: int, batch: int, context: int) -> Tensor:
    """The batch of a step, shape (batch, context + 1).

    It depends on the step alone, so that a run rolled back to an earlier step reads the same batch
    again, without a loader whose position would have to be restored.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(corpus) - context, (batch, 1), generator=generator)
    return corpus[starts + torch.arange(context + 1)]
