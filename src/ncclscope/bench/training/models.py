"""The models that are trained: DenseNet121 as in its paper, and a small GPT. Need PyTorch."""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

_GROWTH, _BOTTLENECK, _FIRST = 32, 4, 64
_BLOCKS = (6, 12, 24, 16)  # DenseNet121's layers


class _DenseLayer(nn.Module):
    """Two convolutions whose output is added to the channels of their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = _BOTTLENECK * _GROWTH
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, _GROWTH, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


def densenet121(blocks: tuple[int, ...] = _BLOCKS, classes: int = 1000) -> nn.Module:
    """DenseNet121, or one with other numbers of layers."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, _FIRST, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(_FIRST),
        nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1),
    ]  # fmt: skip
    channels = _FIRST
    for number, layers in enumerate(blocks):
        for _ in range(layers):
            parts.append(_DenseLayer(channels))
            channels += _GROWTH
        if number < len(blocks) - 1:
            half = channels // 2
            parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            parts += [nn.Conv2d(channels, half, 1, bias=False), nn.AvgPool2d(2)]
            channels = half
    parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels, classes))


class _Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, layers: int, width: int = 512, heads: int = 8, words: int = 4096) -> None:
        super().__init__()
        self.words = words
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
