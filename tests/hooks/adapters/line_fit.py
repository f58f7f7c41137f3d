"""What the programs of the Trainer train: a line, on rows that are all alike."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": F.mse_loss(self.layer(x), torch.ones_like(x))}


class Rows(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.ones(1)}
