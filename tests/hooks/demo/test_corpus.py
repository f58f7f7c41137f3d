"""The demo's text: the same everywhere, and the same batch for the same step."""

from pathlib import Path

import pytest
import torch

from runwatch_hooks.demo.training import ALPHABET, batch_at, read_corpus


def test_a_letter_outside_the_alphabet_is_read_as_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "heapq.py").write_text("é1", encoding="utf-8")
    assert _text(read_corpus(tmp_path)) == "?1"


def test_a_file_that_is_missing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "heapq.py").write_text("a", encoding="utf-8")
    (tmp_path / "typing.py").write_text("b", encoding="utf-8")
    assert _text(read_corpus(tmp_path)) == "a\nb"


def test_a_folder_without_any_of_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="found none of Python's own source files"):
        read_corpus(tmp_path)


def test_this_machine_has_enough_text() -> None:
    assert len(read_corpus()) > 200_000


def test_a_step_read_again_is_the_same_batch() -> None:
    corpus = torch.arange(1000)
    first = batch_at(corpus, 7, seed=0, batch=4, context=16)
    assert first.shape == (4, 17)
    assert torch.equal(first, batch_at(corpus, 7, seed=0, batch=4, context=16))
    assert not torch.equal(first, batch_at(corpus, 8, seed=0, batch=4, context=16))


def _text(letters: torch.Tensor) -> str:
    return "".join(ALPHABET[int(letter)] for letter in letters)
