"""A training that stands still for measuring: the bare loop, and the ways to watch it that need no
tool. Each owns a copy of model and optimizer, and takes turns with the others."""

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


class Variant(ABC):
    """A way to watch, with the training it watches."""

    def __init__(self, model: nn.Module, batches: list[Tensor]) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.parameters = list(self.model.parameters())
        self.turns: list[list[float]] = []
        """Seconds of each step, turn by turn."""
        self._batches = batches
        self._step = 0

    def turn(self, num_steps: int) -> None:
        self.turns.append([self._train_step() for _ in range(num_steps)])

    def _train_step(self) -> float:
        letters = self._batches[self._step % len(self._batches)]
        started_at = time.perf_counter()
        self.optimizer.zero_grad()
        logits: Tensor = self.model(letters[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), letters[:, 1:].flatten())
        torch.autograd.backward(loss)
        self.before_optimizer(loss)
        self.optimizer.step()
        self.after_optimizer(loss)
        self._step += 1
        return time.perf_counter() - started_at

    @abstractmethod
    def before_optimizer(self, loss: Tensor) -> None: ...

    @abstractmethod
    def after_optimizer(self, loss: Tensor) -> None: ...


class Bare(Variant):
    """Nothing is watched."""

    def before_optimizer(self, loss: Tensor) -> None:
        pass

    def after_optimizer(self, loss: Tensor) -> None:
        pass


class NaiveItem(Bare):
    """What people write first: one `.item()` for each tensor and statistic."""

    def before_optimizer(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.seen = [g.norm().item() for g in gradients]
        self.seen += [p.detach().norm().item() for p in self.parameters]
        self.seen.append(loss.item())


class Foreach(Bare):
    """Fused norms, and one transfer."""

    def before_optimizer(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norms = torch._foreach_norm(gradients)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        weights = torch._foreach_norm([p.detach() for p in self.parameters])  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        self.seen: list[float] = torch.stack([*norms, *weights, loss.detach()]).tolist()


class ComposerNorms(Bare):
    """What Composer's OptimizerMonitor computes with its DecoupledAdamW, at every step instead of
    every tenth: norms of gradient, parameter, moment and update, and one `.item()` for each
    (composer/callbacks/optimizer_monitor.py and optim/decoupled_weight_decay.py)."""

    def after_optimizer(self, loss: Tensor) -> None:
        found: dict[str, Tensor] = {}
        squares = torch.zeros(())
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None:
                continue
            moment, update = self._update_of(parameter)
            grad_norm = _norm(parameter.grad)
            squares = squares + grad_norm**2
            found[f"l2_norm/moment/{name}"] = _norm(moment)
            found[f"l2_norm/param/{name}"] = _norm(parameter.data)
            found[f"l2_norm/update/{name}"] = _norm(update)
            found[f"l2_norm/grad/{name}"] = grad_norm
        found["l2_norm/grad/global"] = squares**0.5
        self.seen = {name: norm.item() for name, norm in found.items()}

    def _update_of(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
        """The first moment, and the step that AdamW has made by it, reckoned again."""
        group, state = self.optimizer.param_groups[0], self.optimizer.state[parameter]
        (beta1, beta2), num_steps = group["betas"], float(state["step"])
        moment: Tensor = state["exp_avg"]
        spread: Tensor = state["exp_avg_sq"].sqrt() / math.sqrt(1 - beta2**num_steps)
        update = group["lr"] / (1 - beta1**num_steps) * moment.div(spread.add_(group["eps"]))
        return moment, update.add_(parameter.data, alpha=-group["weight_decay"])


def _norm(tensor: Tensor) -> Tensor:
    return cast("Callable[[Tensor], Tensor]", torch.linalg.vector_norm)(tensor)
