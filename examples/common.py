"""What the examples share: a small transformer-like model and the start of a job."""

import os

import torch
import torch.distributed as dist
from torch import nn

STEPS = int(os.environ.get("STEPS", "20"))


class Block(nn.Module):
    """Two linear layers around a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Some blocks and a head."""

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def begin() -> torch.device:
    """Joins the job; the device of this rank."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
        return device
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    return torch.device("cpu")


def train(model: nn.Module, device: torch.device, *shape: int) -> None:
    """Trains on random data; `shape`: of a batch."""
    optimizer = torch.optim.AdamW(model.parameters())
    shape = shape or (16, 256)
    for _ in range(STEPS):
        x = torch.randn(shape, device=device)
        y = torch.randint(0, 1000, shape[:1], device=device)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
