"""Small models with layers that bear telling names.

Shapes: B batch, T positions, D width.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT, LETTERS = 32, 96


class MLP(nn.Sequential):
    """Linear layers `0`, `2`, `4`, ... with an activation between them."""

    def __init__(self, widths: tuple[int, ...], activation: type[nn.Module] = nn.ReLU) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), activation()]
        super().__init__(*layers[:-1])


class ConvNet(nn.Module):
    """Two convolutions with batch normalisation, for images of 12 by 12."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm_1 = nn.BatchNorm2d(16)
        self.conv_2 = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.norm_2 = nn.BatchNorm2d(32)
        self.head = nn.Linear(32 * 36, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.norm_1(self.conv_1(images)))
        x = functional.relu(self.norm_2(self.conv_2(x)))
        out: Tensor = self.head(x.flatten(1))
        return out


class CharLSTM(nn.Module):
    """Two layers of LSTM over letters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 48)
        self.lstm = nn.LSTM(48, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, LETTERS)

    def forward(self, letters_BT: Tensor) -> Tensor:
        hidden_BTD, _ = self.lstm(self.embedding(letters_BT))
        out: Tensor = self.head(hidden_BTD)
        return out


class Block(nn.Module):
    """Attention and two layers with GELU, each normalised before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, positions, width = x_BTD.shape
        shape = (batch, positions, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(self.norm_1(x_BTD)).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(batch, positions, width))
        out: Tensor = x_BTD + self.down(functional.gelu(self.up(self.norm_2(x_BTD))))
        return out


class Transformer(nn.Module):
    """A pre-norm GPT over letters."""

    def __init__(self, width: int = 48, blocks: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, LETTERS)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, letters_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(letters_BT) + self.positions(torch.arange(letters_BT.shape[1]))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        out: Tensor = self.head(self.norm(x_BTD))
        return out


class VAE(nn.Module):
    """A variational autoencoder of 144 pixels; its loss is its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = MLP((144, 96, 2 * 8))
        self.decoder = MLP((8, 96, 144))

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        mean, log_variance = self.encoder(pixels).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        error = functional.mse_loss(self.decoder(code), pixels, reduction="none").sum(1)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        out: Tensor = (error + divergence).mean()
        return out


class Recommender(nn.Module):
    """Users and items as vectors; most rows of the tables are rare."""

    def __init__(self, users: int = 2000, items: int = 500, width: int = 16) -> None:
        super().__init__()
        self.users = nn.EmbeddingBag(users, width, mode="mean")
        self.items = nn.Embedding(items, width)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        out: Tensor = (self.users(users) * self.items(items)).sum(1) + self.bias
        return out
