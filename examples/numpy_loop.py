"""Runwatch without torch: a small network of numpy that learns to tell two spirals apart.

    python examples/numpy_loop.py --steps 500

The same calls watch a training in JAX or Keras: its arrays are read as they are, as deep as they
lie. RUNWATCH_URL and RUNWATCH_TOKEN name the service; without them a spool is written.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from runwatch_hooks.plain import open_run

Floats = NDArray[np.float64]


def spirals(num_points: int) -> tuple[Floats, Floats]:
    """(N, 2) places, and (N, 1) which of the two spirals each lies on."""
    turn = np.sqrt(np.linspace(0.05, 1.0, num_points)) * 3 * np.pi
    arm = np.arange(num_points) % 2
    angle = turn + np.pi * arm
    places = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / (3 * np.pi)
    return places, arm.reshape(-1, 1).astype(np.float64)


def gradients_of(
    params: dict[str, Floats], x: Floats, y: Floats
) -> tuple[float, dict[str, Floats]]:
    hidden = np.tanh(x @ params["hidden.weight"] + params["hidden.bias"])
    logits = hidden @ params["head.weight"] + params["head.bias"]
    loss = float(np.mean(np.logaddexp(0.0, logits) - y * logits))
    slope = (1.0 / (1.0 + np.exp(-logits)) - y) / len(x)
    back = (slope @ params["head.weight"].T) * (1.0 - hidden**2)
    return loss, {
        "hidden.weight": x.T @ back,
        "hidden.bias": back.sum(axis=0),
        "head.weight": hidden.T @ slope,
        "head.bias": slope.sum(axis=0),
    }


def main() -> None:
    arguments = parse()
    random = np.random.default_rng(1)
    x, y = spirals(400)
    params = {
        "hidden.weight": random.normal(0.0, 2.0, (2, 64)),
        "hidden.bias": random.normal(0.0, 2.0, 64),
        "head.weight": random.normal(0.0, 0.1, (64, 1)),
        "head.bias": np.zeros(1),
    }
    rate, scale = 0.5, 1.0
    with open_run("numpy-spirals", config={"rate": rate}, allow=("lower_lr", "stop")) as run:
        for step in range(arguments.steps):
            loss, gradients = gradients_of(params, x, y)
            for name, gradient in gradients.items():
                params[name] -= rate * scale * gradient
            report = run.step(loss, gradients=gradients, parameters=params, lr=rate * scale)
            scale = report.lr_scale
            if report.stop:
                break
            if step % 100 == 99:
                print(f"step {step}: loss {loss:.4f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    return parser.parse_args()


if __name__ == "__main__":
    main()
