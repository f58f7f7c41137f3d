"""Histograms as they travel."""

import msgspec
import numpy as np
import pytest

from runwatch.codec import decode_frame, encode_frame
from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.histograms import MAX_TENSORS, NUM_BINS, HistogramKind, Histograms, pack_histograms


def packed(num_tensors: int = 2, step: int = 7) -> list[Histograms]:
    counts = np.arange(num_tensors * NUM_BINS, dtype=np.int64).reshape(num_tensors, NUM_BINS)
    names = tuple(f"layer.{index}" for index in range(num_tensors))
    return pack_histograms(step, HistogramKind.WEIGHTS, names, counts)


def frame_of(*histograms: Histograms) -> Frame:
    times = np.empty(0, np.float64)
    return Frame(1, 0, 1, 0, 7, times, histograms=histograms)


def test_they_come_out_of_a_frame_as_they_went_in() -> None:
    (sent,) = packed()

    (found,) = decode_frame(encode_frame(frame_of(sent))).histograms

    assert found == sent
    assert found.counts().tolist() == [
        list(range(NUM_BINS)),
        list(range(NUM_BINS, 2 * NUM_BINS)),
    ]


def test_a_count_may_be_larger_than_float32_or_32_bits_hold() -> None:
    counts = np.zeros((1, NUM_BINS), np.int64)
    counts[0, 3] = 2**40 + 1

    (part,) = pack_histograms(0, HistogramKind.GRADIENTS, ("w",), counts)

    assert int(part.counts()[0, 3]) == 2**40 + 1


def test_many_layers_travel_in_numbered_parts() -> None:
    parts = packed(MAX_TENSORS + 1)

    assert [(part.part, len(part.names)) for part in parts] == [(0, MAX_TENSORS), (1, 1)]


def test_a_frame_without_any_is_as_it_was_before_there_were_any() -> None:
    frame = Frame(1, 0, 1, 0, 7, np.array([1.0]))

    assert b"histograms" not in encode_frame(frame)


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": ("w",)},
        {"names": ()},
        {"names": ("w" * 257, "v")},
        {"step": -1},
        {"part": -1},
        {"packed": b"no zstd"},
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    (part,) = packed()

    with pytest.raises(FrameError, match="histograms"):
        decode_frame(encode_frame(frame_of(msgspec.structs.replace(part, **wrong))))
