"""Training scripts whose parameters or gradients do not lie in memory as most do."""

from typing import cast

import torch
from tests.hooks.ways.scripts import Scripts
from tests.hooks.ways.trial import Trial, backward, batch, norms_of
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

SCRIPTS = Scripts()


@SCRIPTS.add
def gradients_that_are_conjugated_views(trial: Trial) -> None:
    """As autograd makes them where a complex parameter is used conjugated, or by its `.mH`."""
    model = nn.ParameterDict({"weight": nn.Parameter(torch.randn(6, 3, dtype=torch.cfloat))})
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        x, y = batch()
        optimizer.zero_grad()
        loss = backward(F.cross_entropy((x.to(torch.cfloat) @ model["weight"].conj()).abs(), y))
        assert model["weight"].grad is not None
        assert model["weight"].grad.is_conj()
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def gradients_that_are_negated_views(trial: Trial) -> None:
    """One of each way to be read: among others, and by itself."""
    sizes = (18, 40_000)
    model = nn.ParameterList(nn.Parameter(torch.randn(size)) for size in sizes)
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        for one in model.parameters():
            one.grad = torch._neg_view(torch.randn(one.shape))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        norms = norms_of(model)
        optimizer.step()
        trial.step(1.0, norms)


@SCRIPTS.add
def sparse_parameters(trial: Trial) -> None:
    """A graph whose edges are trained."""
    edges = torch.randn(6, 6).relu().to_sparse()
    model = nn.ParameterDict({"edges": nn.Parameter(edges), "bias": nn.Parameter(torch.zeros(6))})
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        mixed = cast(Tensor, torch.sparse.mm(model["edges"], torch.randn(6, 4)))
        loss = backward(torch.add(mixed.T, model["bias"]).square().sum())
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def memory_that_is_freed_between_steps(trial: Trial) -> None:
    """As FSDP does with what it has gathered: torch refuses it once numpy has seen the memory."""
    model = nn.ParameterList([nn.Parameter(torch.randn(5000)), nn.Parameter(torch.randn(5000))])
    model[1].data = model[1].double()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss = backward(model[0].square().sum() + model[1].square().sum().float())
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)
        for one in model.parameters():
            kept = one.detach().clone()
            one.untyped_storage().resize_(0)
            one.untyped_storage().resize_(kept.nbytes)
            one.data.copy_(kept)
