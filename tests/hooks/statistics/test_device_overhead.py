"""The program that measures what watching costs an accelerator runs, for those who have none."""

import sys

import pytest
from benchmarks import device_overhead

pytestmark = pytest.mark.heavy


def test_it_measures_a_small_model_where_there_is_no_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "--device cpu --model small --rounds 2 --steps 1"
    monkeypatch.setattr(sys, "argv", ["device_overhead", *asked.split()])
    device_overhead.main()
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    table = [(cells[0].strip("| "), cells[1]) for cells in lines if len(cells) == 9]

    assert table[2:] == [
        (tokens, name) for tokens in ("32", "128") for name in ("bare", "bare again", "Runwatch")
    ]
