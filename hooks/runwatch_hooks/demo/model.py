"""A character-level GPT of the smallest kind that still learns to spell.

Shapes: B batch, T positions, D width, H heads, d width of a head, V letters.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

_LOGIT_CAP: Final = 15.0
"""Limit on the logits, as in Gemma 2, so that a ruined run ends with a bad loss and not with
NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the model."""

    vocabulary: int
    context: int = 64
    width: int = 64
    heads: int = 4
    blocks: int = 2


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, positions, width = x_BTD.shape
        heads = self.qkv(x_BTD).view(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed_BHTd = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed_BHTd.transpose(1, 2).reshape(batch, positions, width))
        return out


class Block(nn.Module):
    """Attention, then two layers with ReLU, each with post-norm, as in the transformer of 2017.

    Normalising after the residual sum ("post-norm") and ReLU make this model easy to ruin: one
    oversized step leaves dead units, and no path around them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.norm_1 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)
        self.norm_2 = nn.LayerNorm(shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.norm_1(x_BTD + self.attention(x_BTD))
        out: Tensor = self.norm_2(x_BTD + self.down(functional.relu(self.up(x_BTD))))
        return out


class GPT(nn.Module):
    """Logits of the next letter, shape (B, T, V), from letters, shape (B, T)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.letters = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.blocks))
        self.head = nn.Linear(shape.width, shape.vocabulary)
        for embedding in (self.letters, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, letters_BT: Tensor) -> Tensor:
        x_BTD = self.letters(letters_BT) + self.positions.weight[: letters_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV: Tensor = self.head(x_BTD)
        return _LOGIT_CAP * torch.tanh(logits_BTV / _LOGIT_CAP)
