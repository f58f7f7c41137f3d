"""A training that evaluates after every fifth step, and never comes out of the fifth evaluation.

Ended by whoever started it.
"""

import threading
import time

import torch
from torch import nn

from runwatch_hooks import attach

PAUSE_S = 0.05


def main() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, run="evaluating") as watch:
        for step in watch.steps(10_000):
            time.sleep(PAUSE_S)
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            if step % 5 == 4:
                with watch.phase("eval"):
                    if step == 24:
                        threading.Event().wait()
                    time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
