"""Training scripts as people write them, the odd ones too: each a few steps of something small."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from tests.hooks.ways.trial import Norms, Trial, backward, batch, loss_of, mlp, norms_of
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

Script = Callable[[Trial], None]


class Scripts(dict[str, Script]):
    """By their names."""

    def add(self, script: Script) -> Script:
        self[script.__name__] = script
        return script


SCRIPTS = Scripts()


def train(
    trial: Trial, model: nn.Module, optimizer: Optimizer, num_steps: int = 4, **zeroing: bool
) -> None:
    """The loop that most of them have."""
    for _ in range(num_steps):
        optimizer.zero_grad(**zeroing)
        loss = backward(loss_of(model))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def gradients_zeroed_in_place(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    trial.attach(model, optimizer)
    train(trial, model, optimizer, set_to_none=False)


@SCRIPTS.add
def two_groups_of_different_rates(trial: Trial) -> None:
    model = mlp()
    groups: list[dict[str, Any]] = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[3].parameters()},
    ]
    optimizer = AdamW(groups, lr=0.2)
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def a_clip_by_hand(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    trial.attach(model, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        loss = backward(loss_of(model))
        grads = [one.grad for one in model.parameters() if one.grad is not None]
        factor = 0.1 / sum(float(grad.square().sum()) for grad in grads) ** 0.5
        for grad in grads:
            grad.mul_(min(1.0, factor))
        norms = norms_of(model)  # nobody can see such a clip: these are the clipped ones
        optimizer.step()
        trial.step(loss, norms)


class SignDescent(Optimizer):
    """An optimizer of one's own, whose groups know no `lr`."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"speed": 0.01})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    one.sub_(group["speed"] * one.grad.sign())


@SCRIPTS.add
def an_optimizer_of_ones_own(trial: Trial) -> None:
    model = mlp()
    optimizer = SignDescent(model.parameters())
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


class RelativeSteps(Optimizer):
    """One that finds its rate by itself, as Hugging Face's Adafactor does."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"lr": None})
        self.num_steps = 0

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.num_steps += 1
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    one.sub_(0.01 * self.num_steps**-0.5 * one.grad)


@SCRIPTS.add
def an_optimizer_that_finds_its_rate_by_itself(trial: Trial) -> None:
    model = mlp()
    optimizer = RelativeSteps(model.parameters())
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


class Around(Optimizer):
    """A wrapper that skips `super().__init__`, as many do."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.defaults = inner.defaults

    def step(self, closure: Any = None) -> Any:
        return cast(Any, self.inner.step(closure))

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


@SCRIPTS.add
def an_optimizer_around_another(trial: Trial) -> None:
    model = mlp()
    optimizer = Around(AdamW(model.parameters(), lr=0.01))
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def a_rate_that_is_a_tensor(trial: Trial) -> None:
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=torch.tensor(0.01))
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def half_precision(trial: Trial) -> None:
    model = nn.Linear(6, 3).half()
    optimizer = SGD(model.parameters(), lr=0.1)
    trial.attach(model, optimizer)
    for _ in range(4):
        x, y = batch()
        optimizer.zero_grad()
        loss = backward(F.cross_entropy(model(x.half()).float(), y))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def made_double_in_the_middle(trial: Trial) -> None:
    model = nn.Linear(6, 3)
    optimizer = SGD(model.parameters(), lr=0.1)
    trial.attach(model, optimizer)
    for step in range(5):
        if step == 2:
            model.double()
        x, y = batch()
        optimizer.zero_grad()
        loss = backward(F.cross_entropy(model(x.to(model.weight.dtype)), y))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


class Oddities(nn.Module):
    """Complex, integer, empty and 0-dimensional parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.cfloat))
        self.count = nn.Parameter(torch.tensor(3), requires_grad=False)
        self.nothing = nn.Parameter(torch.empty(0, 4))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.cfloat) @ self.weight).abs() * self.scale + self.nothing.sum()


@SCRIPTS.add
def parameters_of_odd_kinds(trial: Trial) -> None:
    model = Oddities()
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


class Bag(nn.Module):
    def __init__(self, num_words: int, *, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, 6, sparse=sparse)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = (x.abs() * 1e6).long() % self.words.num_embeddings
        mixed: Tensor = self.head(self.words(words).mean(1))
        return mixed


@SCRIPTS.add
def a_sparse_embedding(trial: Trial) -> None:
    model = Bag(50, sparse=True)
    optimizers = [
        torch.optim.SparseAdam(model.words.parameters(), lr=0.01),
        AdamW(model.head.parameters(), lr=0.01),
    ]
    trial.attach(model, optimizers)
    for _ in range(4):
        loss = backward(loss_of(model))
        norms = norms_of(model)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        trial.step(loss, norms)


@SCRIPTS.add
def one_huge_embedding(trial: Trial) -> None:
    model = Bag(200_000, sparse=False)
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer, 2)


@SCRIPTS.add
def optimizers_in_backward(trial: Trial) -> None:
    model = mlp()
    names = {one: name for name, one in model.named_parameters()}
    optimizers = {one: AdamW([one], lr=0.01) for one in names}
    norms: Norms = {}

    def step(one: Tensor) -> None:
        assert one.grad is not None
        norms[names[one]] = float(one.grad.double().norm())  # type: ignore[index]
        optimizers[one].step()  # type: ignore[index]
        optimizers[one].zero_grad()  # type: ignore[index]

    trial.attach(model, list(optimizers.values()))
    for one in names:
        one.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    for _ in range(4):
        loss = backward(loss_of(model))
        trial.step(loss, dict(norms))


@SCRIPTS.add
def a_closure_of_lbfgs(trial: Trial) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    trial.attach(model, optimizer)
    for _ in range(4):
        x, y = batch()

        def closure(x: Tensor = x, y: Tensor = y) -> Any:
            optimizer.zero_grad()
            return backward(F.cross_entropy(model(x), y))

        loss = cast(Tensor, optimizer.step(closure))  # type: ignore[no-untyped-call]
        trial.step(loss, norms_of(model))


@SCRIPTS.add
def a_closure_that_clips(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    norms: Norms = {}

    def closure() -> Any:
        optimizer.zero_grad()
        loss = backward(loss_of(model))
        norms.update(norms_of(model))
        clip_grad_norm_(model.parameters(), 0.01)
        return loss

    trial.attach(model, optimizer)
    for _ in range(4):
        loss = cast(Tensor, optimizer.step(closure=closure))
        trial.step(loss, dict(norms))


@SCRIPTS.add
def sharpness_aware(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(4):
        x, y = batch()
        optimizer.zero_grad()
        loss = backward(F.cross_entropy(model(x), y))
        moves = [0.05 * one.grad for one in model.parameters() if one.grad is not None]
        for one, move in zip(model.parameters(), moves, strict=True):
            one.data.add_(move)
        optimizer.zero_grad()
        backward(F.cross_entropy(model(x), y))
        for one, move in zip(model.parameters(), moves, strict=True):
            one.data.sub_(move)
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def a_critic_that_steps_thrice(trial: Trial) -> None:
    """The row shows the critic's last step."""
    maker, critic = nn.Linear(4, 6), nn.Linear(6, 1)
    steps_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
    steps_critic = torch.optim.Adam(critic.parameters(), lr=0.02)
    trial.attach({"maker": maker, "critic": critic}, [steps_maker, steps_critic])
    norms: Norms = {}
    for _ in range(4):
        for _ in range(3):
            steps_critic.zero_grad()
            made = maker(torch.randn(8, 4)).detach()
            backward(
                F.softplus(critic(made)).mean() + F.softplus(-critic(torch.randn(8, 6))).mean()
            )
            norms = norms_of(critic, "critic.")
            steps_critic.step()
        steps_maker.zero_grad()
        loss = backward(F.softplus(-critic(maker(torch.randn(8, 4)))).mean())
        norms |= norms_of(maker, "maker.")
        steps_maker.step()
        trial.step(loss, norms)


@SCRIPTS.add
def tied_weights(trial: Trial) -> None:
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 6, bias=False))
    model[2].weight = model[0].weight
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def frozen_and_later_not(trial: Trial) -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer, 2)
    model[0].requires_grad_(True)
    train(trial, model, optimizer, 2)


@SCRIPTS.add
def activations_computed_twice(trial: Trial) -> None:
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(4):
        x, y = batch()
        optimizer.zero_grad()
        logits = cast(Tensor, checkpoint(model, x, use_reentrant=False))
        loss = backward(F.cross_entropy(logits, y))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def fp16_with_a_scaler(trial: Trial) -> None:
    scaled(trial, fused=False)


@SCRIPTS.add
def fp16_with_a_scaler_and_a_fused_optimizer(trial: Trial) -> None:
    scaled(trial, fused=True)


def scaled(trial: Trial, *, fused: bool) -> None:
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    trial.attach(model, optimizer, scaler)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(model)
        backward(scaler.scale(loss))
        norms = norms_of(model, scale=scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        trial.step(loss, norms)


@SCRIPTS.add
def bf16_autocast(trial: Trial) -> None:
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model)
        backward(loss)
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def gradients_of_three_batches(trial: Trial) -> None:
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        parts = [float(backward(loss_of(model) / 3).detach()) for _ in range(3)]
        norms = norms_of(model)
        clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        trial.step(sum(parts), norms)


@SCRIPTS.add
def a_boundary_for_each_small_batch(trial: Trial) -> None:
    """Every other one without a step, and so without gradients."""
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        trial.step(backward(loss_of(model) / 2), {})
        loss = backward(loss_of(model) / 2)
        norms = norms_of(model)
        optimizer.step()
        optimizer.zero_grad()
        trial.step(loss, norms)


@SCRIPTS.add
def parameters_moved_in_memory(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(4):
        for one in model.parameters():
            one.data = one.data.clone()
        train(trial, model, optimizer, 1)


@SCRIPTS.add
def gradients_that_were_computed_apart(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        loss = loss_of(model)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for one, grad in zip(model.parameters(), grads, strict=True):
            one.grad = grad
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def images_channels_last(trial: Trial) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 3))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        loss = backward(F.cross_entropy(model(images), torch.randint(3, (4,))))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def weights_under_a_parametrization(trial: Trial) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    torch.nn.utils.parametrizations.weight_norm(model[0])
    torch.nn.utils.parametrizations.spectral_norm(model[1])
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def modules_that_are_made_by_their_first_batch(trial: Trial) -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    train(trial, model, optimizer)


@SCRIPTS.add
def an_evaluation_in_inference_mode(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    watch = trial.attach(model, optimizer)
    for _ in range(3):
        train(trial, model, optimizer, 1)
        with torch.inference_mode(), watch.phase("eval"):
            watch.log(val_loss=loss_of(model.eval()))
        model.train()


@SCRIPTS.add
def a_step_that_raises_and_is_tried_again(trial: Trial) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    for _ in range(3):
        optimizer.zero_grad()
        loss = backward(loss_of(model))
        norms = norms_of(model)
        broken = optimizer.register_step_pre_hook(fail)
        try:
            optimizer.step()
        except ZeroDivisionError:
            broken.remove()
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def muon_beside_adamw(trial: Trial) -> None:
    model = mlp()
    weights = [one for one in model.parameters() if one.dim() == 2]
    biases = [one for one in model.parameters() if one.dim() == 1]
    optimizers = [torch.optim.Muon(weights, lr=0.01), AdamW(biases, lr=0.01)]
    trial.attach(model, optimizers)
    for _ in range(4):
        loss = backward(loss_of(model))
        norms = norms_of(model)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        trial.step(loss, norms)


@SCRIPTS.add
def parameters_replaced_in_the_optimizers_groups(trial: Trial) -> None:
    """As Gaussian splatting does: more points every few steps, which no module holds."""
    points = nn.Parameter(torch.randn(6, 3))
    optimizer = SGD([points], lr=0.01)
    trial.attach(nn.Identity(), optimizer)
    for step in range(6):
        optimizer.zero_grad()
        loss = backward(points.square().sum())
        norms = norms_of(nn.ParameterList([points]), prefix="opt0.g0.p")
        optimizer.step()
        trial.step(loss, norms)
        if step % 2:
            grown = torch.cat((points.detach(), points.detach()[:1]))
            points = nn.Parameter(grown)
            optimizer.param_groups[0]["params"] = [points]
