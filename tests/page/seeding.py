"""Runs to look at, sent over the real interface as a trainer would send them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import msgspec
import numpy as np
import urllib3
from numpy.typing import NDArray
from tests.proofs import proof_for, token_of

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Event, Frame
from runwatch.histograms import (
    FIRST_EXPONENT,
    LOWEST_EXPONENT,
    NONFINITE,
    NUM_BINS,
    ZEROS,
    HistogramKind,
    Histograms,
    pack_histograms,
)
from runwatch.layouts import Layer, Layout
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId

Floats = NDArray[np.float64]

STATS: Final = ("grad_norm", "nonfinite", "update_ratio")
STEP_S: Final = 0.25
_RUNS: Final = count(1)
_PARTS: Final = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down", "norm1", "norm2")


def layout_of(num_layers: int) -> Layout:
    """Named as a transformer's, first to last."""
    middle = [f"blocks.{index // 6}.{_PARTS[index % 6]}.weight" for index in range(num_layers - 2)]
    names = ["embed.weight", *middle, "head.weight"]
    return Layout(tuple(Layer(name, (8, 8)) for name in names), STATS)


@dataclass
class Sender:
    """Sends runs to a service."""

    url: str
    key: str
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return self._send(method, path, msgspec.json.encode(body), "application/json")

    def open(
        self,
        name: str,
        *,
        project: str = "default",
        group: str = "",
        world_size: int = 1,
        **config: object,
    ) -> RunId:
        """A run with its first attempt open."""
        # Counted, not random: a search looks at ids too, and a random one has any word in it.
        run_id = RunId(ulid(int(time.time() * 1000), next(_RUNS).to_bytes(10)))
        run = {"run_id": run_id, "name": name, "project": project, "group": group}
        self.ask("POST", "/runs", run | {"config": config})
        self.attempt(run_id, world_size=world_size)
        return run_id

    def attempt(self, run_id: RunId, *, resume_step: int = 0, world_size: int = 1) -> int:
        known = self.ask("GET", f"/runs/{run_id}/attempts")["attempts"]
        opened = self.ask(
            "POST",
            f"/runs/{run_id}/attempts",
            {
                "token": token_of(run_id, len(known) + 1),
                "started_at": time.time(),
                "resume_step": resume_step,
                "world_size": world_size,
                "allow": ["checkpoint", "rollback", "lower_lr", "stop"],
                "host": {"hostname": "gpu-node-17", "user": "kim"},
            },
        )
        number: int = opened["attempt"]
        return number

    def layout(self, run_id: RunId, layout: Layout) -> None:
        self.ask("PUT", f"/runs/{run_id}/layouts/{layout.hash}", layout.to_document())

    def frame(self, run_id: RunId, frame: Frame) -> None:
        self._send("POST", f"/runs/{run_id}/frames", encode_frame(frame), CONTENT_TYPE)

    def _send(self, method: str, path: str, body: bytes, content_type: str) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": content_type}
        headers |= proof_for(path, body)
        reply = self.http.request(method, f"{self.url}/api/v1{path}", body=body, headers=headers)
        assert reply.status < 300, reply.data
        return msgspec.json.decode(reply.data) if reply.data else None


@dataclass
class Stream:
    """One rank's frames, numbered as they are sent."""

    sender: Sender
    run_id: RunId
    layout: Layout | None = None
    attempt: int = 1
    rank: int = 0
    began_at: float = field(default_factory=lambda: time.time() - 3600.0)
    seq: int = 0

    def send(
        self,
        first_step: int,
        metrics: Mapping[str, Floats],
        *,
        stats: NDArray[np.float32] | None = None,
        segment: int = 0,
        events: Sequence[Event] = (),
        histograms: Sequence[Histograms] = (),
    ) -> None:
        """Steps from `first_step` on, one value of each metric a step; stats are (N, C)."""
        num_steps = len(next(iter(metrics.values())))
        self.seq += 1
        has_stats = self.layout is not None and stats is not None
        steps = first_step + np.arange(num_steps, dtype=np.float64)
        frame = Frame(
            attempt=self.attempt,
            rank=self.rank,
            seq=self.seq,
            segment=segment,
            first_step=first_step,
            times=self.began_at + STEP_S * steps,
            metric_names=tuple(metrics),
            metrics=np.stack(list(metrics.values()), axis=1),
            layout_hash=self.layout.hash if self.layout is not None and has_stats else "",
            stats=stats if has_stats and stats is not None else np.empty((num_steps, 0), "f4"),
            events=tuple(events),
            histograms=tuple(histograms),
        )
        self.sender.frame(self.run_id, frame)


def curve(first_step: int, num_steps: int, *, seed: int = 0) -> dict[str, Floats]:
    """What a healthy trainer measures."""
    rng = np.random.default_rng(seed + first_step)
    steps = first_step + np.arange(num_steps, dtype=np.float64)
    step_time = STEP_S * (1 + 0.05 * rng.random(num_steps))
    return {
        "loss": 2.2 + 8 * np.exp(-steps / 900) + 0.04 * rng.standard_normal(num_steps),
        "lr": 3e-4 * np.minimum(1.0, (steps + 1) / 400),
        "grad_norm": 0.8 * np.exp(rng.normal(0, 0.2, num_steps)),
        "loss_scale": np.full(num_steps, 65536.0),
        "clip_coef": np.minimum(1.0, 1 / np.exp(rng.normal(0, 0.2, num_steps))),
        "step_time": step_time,
        "tokens_per_s": 65536 / step_time,
    }


def layer_stats(layout: Layout, num_steps: int, *, seed: int = 0) -> NDArray[np.float32]:
    """(N, C) of a healthy run: each layer about a size of its own."""
    num_layers = len(layout.layers)
    rng = np.random.default_rng(seed)
    sizes = np.exp(np.random.default_rng(5).normal(-1, 1, num_layers))
    norms = sizes * np.exp(rng.normal(0, 0.2, (num_steps, num_layers)))
    nothing = np.zeros((num_steps, num_layers))
    return np.concatenate([norms, nothing, norms * 1e-3], axis=1).astype(np.float32)


def histograms_of(layout: Layout, step: int) -> list[Histograms]:
    """Of gradients and weights: bell-shaped over powers of two; one layer with a NaN."""
    exponents = LOWEST_EXPONENT + np.arange(NUM_BINS - FIRST_EXPONENT - 2)
    found: list[Histograms] = []
    for kind, middle in ((HistogramKind.GRADIENTS, -14), (HistogramKind.WEIGHTS, -5)):
        counts = np.zeros((len(layout.layers), NUM_BINS), np.int64)
        bell = 4096 * np.exp(-(((exponents - middle) / 2.5) ** 2))
        counts[:, FIRST_EXPONENT : FIRST_EXPONENT + len(exponents)] = bell
        counts[:, ZEROS] = 300
        counts[0, NONFINITE] = 7 if kind is HistogramKind.GRADIENTS else 0
        found += pack_histograms(step, kind, layout.layer_names, counts)
    return found


def send_healthy(sender: Sender, name: str = "llama-1b warm restart") -> RunId:
    """3000 steps of 24 layers, with checkpoints; a spike at 1600 was rolled back from 1800."""
    run_id = sender.open(name, owner="ada", max_steps=20_000, lr=3e-4, dtype="bf16")
    layout = layout_of(24)
    sender.layout(run_id, layout)
    stream = Stream(sender, run_id, layout)
    for first_step in range(0, 1800, 300):
        metrics = curve(first_step, 300)
        if first_step >= 1500:
            metrics["loss"][100:] += 3 * np.exp(-np.arange(200) / 60)
        told = [
            _event(first_step + 100, "checkpoint", path=f"ckpt/{first_step + 100}.pt"),
            _event(first_step + 100, "phase", phase="eval", edge="begin"),
            _event(first_step + 101, "phase", phase="eval", edge="end"),
        ]
        if first_step < 1500:
            told.append(
                _event(first_step + 200, "checkpoint_good", path=f"ckpt/{first_step + 100}.pt")
            )
        taken = histograms_of(layout, first_step + 100)
        stats = layer_stats(layout, 300)
        stream.send(first_step, metrics, stats=stats, events=told, histograms=taken)
    back = [
        _event(1800, "rollback", rolled_back_to=1500, reason="GradientExplosion"),
        _event(1801, "lr_scale", lr_scale=0.5, reason="GradientExplosion"),
        _event(1801, "gap", rows=3),
    ]
    for first_step in range(1500, 3000, 300):
        events = back if first_step == 1500 else []
        metrics = curve(first_step, 300, seed=1)
        stats = layer_stats(layout, 300)
        stream.send(first_step, metrics, stats=stats, segment=1, events=events)
    return run_id


def send_nan(
    sender: Sender,
    name: str,
    *,
    num_layers: int = 300,
    onset: int = 420,
    owner: str = "<i>mallory</i>",
) -> RunId:
    """NaN from a step on: first in the layer at two thirds, a layer a step outwards from there. As
    the hook tells it on a CPU: a norm is over what is finite, of which nothing is left, and all
    elements are counted."""
    run_id = sender.open(name, project="pretrain", owner=owner)
    layout = layout_of(num_layers)
    sender.layout(run_id, layout)
    stream = Stream(sender, run_id, layout)
    for first_step in range(0, onset + 80, 100):
        metrics, stats = curve(first_step, 100), layer_stats(layout, 100, seed=first_step)
        steps = first_step + np.arange(100)
        broken = steps >= onset
        metrics["loss"][broken] = np.nan
        metrics["grad_norm"][broken] = np.nan
        metrics["grad_norm"][steps == onset] = np.inf
        distance = np.abs(np.arange(num_layers) - num_layers * 2 // 3)
        reached = (steps[:, np.newaxis] - onset) * 5 >= distance
        norms, counts = stats[:, :num_layers], stats[:, num_layers : 2 * num_layers]
        norms[reached] = 0.0
        counts[reached] = 64
        stream.send(first_step, metrics, stats=stats)
    return run_id


def send_long(sender: Sender, *, num_steps: int = 1_000_000, layers_from: int = 985_000) -> RunId:
    """Many steps; its 300 layers are recorded over the last of them."""
    run_id = sender.open(f"gpt-13b, {num_steps} steps", owner="noor")
    layout = layout_of(300)
    sender.layout(run_id, layout)
    stream = Stream(sender, run_id, layout)
    for first_step in range(0, num_steps, 4096):
        size = min(4096, num_steps - first_step)
        kept = {name: curve(first_step, size)[name] for name in ("loss", "lr", "step_time")}
        if first_step < layers_from:
            stream.send(first_step, kept)
            continue
        for start in range(0, size, 512):
            part = {name: values[start : start + 512] for name, values in kept.items()}
            stats = layer_stats(layout, len(part["loss"]), seed=start)
            stream.send(first_step + start, part, stats=stats)
    return run_id


def send_ranks(sender: Sender, num_ranks: int = 4, *, num_steps: int = 400) -> RunId:
    """One rank a quarter of the steps behind, and slower."""
    run_id = sender.open(f"{num_ranks} ranks", world_size=num_ranks)
    for rank in range(num_ranks):
        stream = Stream(sender, run_id, rank=rank)
        metrics = curve(0, num_steps * 3 // 4 if rank == 2 else num_steps)
        metrics["step_time"] *= 1.5 if rank == 2 else 1.0
        stream.send(0, metrics, events=[_event(0, "host", hostname=f"gpu-node-{rank // 2}")])
    return run_id


def _event(step: int, kind: str, **detail: Any) -> Event:
    return Event(step, kind, time.time(), detail)
