"""Parses one line that a trainer printed: its numbers with their names, and its position in the
run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from runwatch.aliases import is_a_loss, series_of
from runwatch.frames import MAX_STEP
from runwatch_server.importing.numbers import number_of

_NUMBER: Final = (
    # `12,500` and `1,048,576.5` are one number each, a list like `3,4` or `0.9,0.95` is not.
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,12}(?!,?\d)(?:\.\d{0,40})?|\d{1,40}(?:\.\d{0,40})?|"
    r"\.\d{1,40})(?:e[-+]?\d{1,4})?|(?:nan|inf(?:inity)?)(?![a-z]))"
)
_WORD: Final = r"[A-Za-z][\w/@.\-]{0,79}"
_PAIR: Final = re.compile(
    # Starts where a word does, and all repetitions are bounded, so that the cost is linear in the
    # line.
    rf"(?<![\w/@.\-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,3}}?)"
    r"(?:\((?:train|val|test)\))?['\"]?\s{0,8}(?:[:=]|->|\bis\b|\bwas\b)?\s{0,8}"
    rf"['\"\[(]{{0,2}}(?:tensor\()?\s{{0,8}}(?<![\w/@.\-])(?P<value>{_NUMBER})"
    r"(?![\d_]|[.:\-]\d)"  # not part of a date, a time or an address
    # `loss 120 2.5` and `loss 120: 2.5` give the step, too
    rf"(?::?\s{{1,8}}(?P<second>{_NUMBER})(?![\w%,(]|[.:\-]\d))?",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(
    # `[10/500]`, `[640/60000 (1%)]`, the bars of tqdm (`| 10/500 [`) and Keras (`10/500 [=>..]`, or
    # `10/500 ━━`), `epoch 1: 10 / 500`
    r"(?:\[|\||^|:)\s{0,8}(?P<done>\d{1,15})\s{0,2}/\s{0,2}\d{1,15}"
    r"(?:\s?\(\s{0,3}[\d.]{1,8}\s?%\))?\s{0,4}(?:[\[\]]|(?<=\s)(?=[a-z━]))",
    re.IGNORECASE,
)
_RANGE: Final = re.compile(
    r"(?:(?P<mxnet>batch\s?\[)|:)\d{1,15}-(?P<done>\d{1,15})(?(mxnet)\]|batch)", re.IGNORECASE
)
"""How many batches of an epoch are done, in the forms of MXNet (`Batch [0-50]`) and ESPnet
(`1epoch:train:1-50batch`)."""
_EPOCH_AFTER_COUNT: Final = re.compile(
    r"(?<![\w.])(?P<epoch>\d{1,15})epoch(?![a-z])", re.IGNORECASE
)
_TOTAL: Final = re.compile(r"\s{0,2}/\s{0,2}(?P<total>\d{1,15})(?![\d.])")
"""What follows a count: how many there will be."""
_SECTION: Final = re.compile(
    r"(?<![\w./\\\-])(?:(?P<train>train(?:ing)?)|(?P<test>test(?:ing)?)|"
    r"val|valid|validation|validating|eval|evaluation|evaluating|dev)(?![\w./\\])",
    re.IGNORECASE,
)
_OPENS_EVALUATION: Final = re.compile(
    r"\W{0,40}(?:start\w{0,3}\s)?(?:eval|evaluation|evaluating|validation|validating|testing)"
    r"(?:\s(?:begins?|starts?|started|set|phase|results?))?\W{0,40}",
    re.IGNORECASE,
)
_SOURCE: Final = re.compile(r"\.(?:py|cc|cpp|cu|go|rs|java)$", re.IGNORECASE)
"""Before a number this is a source line of the program: `solver.cpp:218]`, `train.py:30`."""
_EPOCH_WORDS: Final = frozenset(("epoch", "epochs", "ep"))
_STEP_WORDS: Final = frozenset((
    "step", "global_step", "iter", "iters", "iteration", "iterations", "it", "num_updates",
    "steps", "total_timesteps", "timesteps", "total_steps", "train_step", "nupdates",
))  # fmt: skip
_BATCH_WORDS: Final = frozenset(("batch", "batches", "minibatch", "mini-batch", "mb"))
_NOT_OF_THIS_ROW: Final = frozenset((
    "best", "min", "max", "lowest", "minimum", "previous", "prev", "old", "final", "last",
    "initial", "target", "from", "per", "every", "total", "num", "warmup", "resume", "early",
))  # fmt: skip
"""Words before a name that make it another row's: `best val loss 0.3`, `time per step 2`."""
_WITHOUT_MEANING: Final = frozenset((
    "info", "debug", "warning", "with", "and", "at", "the", "a", "an", "current", "now",
    "finished", "done", "complete", "completed", "end", "of", "got", "has", "it", "s", "ms", "step",
))  # fmt: skip
_AS_ZERO: Final = str.maketrans("123456789", "0" * 9)
_SHAPES_KEPT: Final = 1024
_NAMES_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """What a line says about the run."""

    values: Mapping[str, float]
    """Values by name. If a line has a name twice, the first counts: it is the row's value, the
    second the mean."""
    epoch: int | None
    step: int | None
    """A count of steps that has a name."""
    place: int | None
    """A count of batches within the epoch."""
    total: int | None = None
    """How many steps or batches there will be, where it is printed behind their count."""
    opens_evaluation: bool = False
    """Whether it only announces an evaluation."""

    @property
    def is_placed(self) -> bool:
        return self.step is not None or self.place is not None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The position in a line of a name and of its number."""

    name: slice
    value: slice
    section: str | None
    """What the words before the number are about: `train`, `test`, `val`."""
    step: slice | None
    """A step between the name of a loss and its number."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parts of a line, apart from its digits."""

    pairs: tuple[_Pair, ...]
    batches: slice | None
    """Where a range of batches ends."""
    epoch: slice | None
    """An epoch before its word."""
    evaluates: bool
    opens_evaluation: bool


def read_line(line: str) -> ProgressLine:
    """The numbers of a line; those without a name are skipped."""
    # No pattern depends on which digit it is, so a line that differs from an earlier one only in
    # digits, as most do, is not searched again.
    form = line.translate(_AS_ZERO)
    shape = _shape(form)
    values: dict[str, float] = {}
    counts = _steps_of_losses(line, shape)
    if shape.epoch is not None:
        counts["epoch"] = shape.epoch
    for pair in shape.pairs:
        name, value = line[pair.name], _number(line[pair.value])
        role = _role_of(name)
        if role is not None and _count(value) is not None:
            # `[Eval][Epoch 1][Iter: 0/100]` counts the batches of the evaluation.
            is_place = shape.evaluates and role != "epoch" and line.startswith("/", pair.value.stop)
            counted = _before_comma(line, pair.value) if role == "epoch" else pair.value
            role = "batch" if is_place else role
            if role not in counts or name.lower().endswith("global_step"):
                counts[role] = counted
        elif value is not None:
            values.setdefault(_series(name, pair.section), value)
    if shape.evaluates:  # its batches are not a position in the training
        counts.pop("batch", None)
    elif "batch" not in counts:
        counts |= _place(form, shape, counts)
    epoch, step, place = (_count_at(line, counts.get(role)) for role in ("epoch", "step", "batch"))
    total = None if shape.evaluates else _total(line, counts.get("step", counts.get("batch")))
    return ProgressLine(values, epoch, step, place, total, shape.opens_evaluation)


def _place(form: str, shape: _Shape, counts: Mapping[str, slice]) -> dict[str, slice]:
    """Where a line without a named count of batches has one; maybe also one of epochs."""
    start = 0 if "step" in counts else max((count.stop for count in counts.values()), default=1) - 1
    places = _places(form, start)
    if len(places) > 1 and not counts:  # [epoch/epochs][batch/batches]
        return {"epoch": places[0], "batch": places[1]}
    if shape.batches is not None:
        return {"batch": shape.batches}
    return {"batch": places[0]} if places else {}


@lru_cache(_SHAPES_KEPT)
def _shape(form: str) -> _Shape:
    sections = [(found.end(), found.lastgroup or "val") for found in _SECTION.finditer(form)]
    matches = [
        match
        for match in _PAIR.finditer(form)
        if _SOURCE.search(match["name"]) is None and not _is_share(form, match)
    ]
    is_counted = any(_role_of(match["name"]) in ("step", "batch") for match in matches)
    pairs = tuple(_pair(match, sections, is_counted=is_counted) for match in matches)
    batches, epoch = _RANGE.search(form), _EPOCH_AFTER_COUNT.search(form)
    return _Shape(
        pairs,
        None if batches is None else slice(*batches.span("done")),
        None if epoch is None else slice(*epoch.span("epoch")),
        evaluates=bool(sections) and sections[0][1] != "train",
        opens_evaluation=_OPENS_EVALUATION.fullmatch(form) is not None,
    )


def _is_share(form: str, match: re.Match[str]) -> bool:
    """Whether a number is how much is done, in percent: `Steps:  3%|#   | 30/1000` counts behind
    its bar."""
    sign = "%|" if _role_of(match["name"]) is None else "%"
    return form.startswith(sign, match.end("value"))


def _steps_of_losses(line: str, shape: _Shape) -> dict[str, slice]:
    steps = (pair.step for pair in shape.pairs if pair.step is not None)
    step = next(steps, None)
    return {} if step is None or _count_at(line, step) is None else {"step": step}


def _pair(match: re.Match[str], sections: list[tuple[int, str]], *, is_counted: bool) -> _Pair:
    """`is_counted`: the line has a count with a name. So a whole number that follows a loss is the
    loss, as `{:g}` prints it, and the one after it something else."""
    about = next((kind for end, kind in reversed(sections) if end <= match.start("value")), None)
    name, value = slice(*match.span("name")), slice(*match.span("value"))
    second = match["second"]
    is_second = second is not None and match["value"].isdigit() and not second.isdigit()
    if is_second and not is_counted and is_a_loss(match["name"]):
        return _Pair(name, slice(*match.span("second")), about, step=value)
    return _Pair(name, value, about, step=None)


def _number(text: str) -> float | None:
    """A number that may have commas between its thousands. Before a 0 there are none: that comma
    is a decimal one."""
    is_decimal = text.lstrip("+-").startswith("0")
    return number_of(text.replace(",", "." if is_decimal else ""))


def _before_comma(line: str, number: slice) -> slice:
    """The digits before a comma: `epoch 3,250` is the 250th batch of an epoch, as nobody trains for
    three thousand of them."""
    comma = line.find(",", number.start, number.stop)
    return number if comma < 0 else slice(number.start, comma)


@lru_cache(_SHAPES_KEPT)
def _places(form: str, start: int) -> tuple[slice, ...]:
    return tuple(slice(*found.span("done")) for found in _PLACE.finditer(form, start))


def _total(line: str, count: slice | None) -> int | None:
    """The number behind a slash after a count."""
    found = None if count is None else _TOTAL.match(line, count.stop)
    return None if found is None else int(found["total"])


def step_of(name: str, value: float) -> int | None:
    """The step that a number is, if its whole name says so; None otherwise."""
    return _count(value) if _role([name]) == "step" else None


def of_evaluation(line: ProgressLine) -> ProgressLine:
    """The line as one of an evaluation, whose batches are not a position in the training."""
    values = {
        "val/loss" if series_of(name) == "loss" else name: value
        for name, value in line.values.items()
    }
    return replace(line, values=values, step=None, place=None, total=None)


@lru_cache(_NAMES_KEPT)
def _role_of(name: str) -> str | None:
    """What a number under the name counts."""
    return _role(name.split(" "))


def _role(words: list[str]) -> str | None:
    last = words[-1].lower()
    if any(word.lower() in _NOT_OF_THIS_ROW for word in words[:-1]):
        return None
    if last in _EPOCH_WORDS:
        return "epoch"
    if last in _STEP_WORDS:
        return "step"
    return "batch" if last in _BATCH_WORDS else None


def _meant(words: list[str]) -> str:
    """The series named by the words before a number, without introductory words. `D loss` is not
    the whole loss, and `best val loss` is not the row's."""
    whole = " ".join(words)
    for start in range(len(words)):
        lead, name = words[:start], " ".join(words[start:])
        if series_of(name) is None:
            continue
        if any(word.lower() in _NOT_OF_THIS_ROW for word in lead):
            return whole
        if len(words) - start > 1 or all(word.lower() in _WITHOUT_MEANING for word in lead):
            return name
    return whole


@lru_cache(_NAMES_KEPT)
def _series(name: str, section: str | None) -> str:
    """The series of a name. A plain `loss` belongs to what the words before it are about."""
    meant = _meant(name.split(" "))
    if section in (None, "train") or series_of(meant) != "loss" or "train" in meant.lower():
        return meant
    return f"{section}/loss"


def _count(value: float | None) -> int | None:
    if value is None or not 0 <= value <= MAX_STEP or value != int(value):
        return None
    return int(value)


def _count_at(line: str, found: slice | None) -> int | None:
    return None if found is None else _count(_number(line[found]))
