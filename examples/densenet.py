"""DenseNet-121 under DistributedDataParallel, the job of the ncclsee paper: 8 million parameters in
many small layers, and so few and large buckets for NCCL.

`torchrun --nproc-per-node 2 examples/densenet.py`
"""

import os

import torch
import torch.distributed as dist
from common import begin, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GROWTH, BLOCKS = 32, (6, 12, 24, 16)
SIZE = int(os.environ.get("IMAGE", "224"))  # pixels
BATCH = int(os.environ.get("BATCH", "16"))


class DenseLayer(nn.Module):
    """A layer that sees the output of all layers before it in its block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bottleneck = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 4 * GROWTH, 1, bias=False),
        )
        self.convolution = nn.Sequential(
            nn.BatchNorm2d(4 * GROWTH),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.convolution(self.bottleneck(x))), 1)


def densenet121() -> nn.Sequential:
    """The network of Huang et al., 2017."""
    model = nn.Sequential()
    stem = (nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    model.add_module("stem", nn.Sequential(*stem, nn.MaxPool2d(3, stride=2, padding=1)))
    channels = 64
    for number, layers in enumerate(BLOCKS, 1):
        block = nn.Sequential(*(DenseLayer(channels + GROWTH * layer) for layer in range(layers)))
        model.add_module(f"block{number}", block)
        channels += GROWTH * layers
        if number < len(BLOCKS):
            squeeze = nn.Conv2d(channels, channels // 2, 1, bias=False)
            transition = (nn.BatchNorm2d(channels), nn.ReLU(), squeeze, nn.AvgPool2d(2))
            model.add_module(f"transition{number}", nn.Sequential(*transition))
            channels //= 2
    head = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.add_module("head", nn.Sequential(*head, nn.Linear(channels, 1000)))
    return model


device = begin()
model = densenet121().to(device)
train(DistributedDataParallel(model), device, BATCH, 3, SIZE, SIZE)
dist.destroy_process_group()
