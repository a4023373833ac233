"""A training by Lightning under torchrun: [STEPS].

Its FSDP takes GPUs alone.
"""

import os
import sys

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = sys.argv[1] if len(sys.argv) > 1 else "30"


class Regression(lightning.LightningModule):
    """Four layers that learn to give nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)])

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:  # noqa: D102
        loss: torch.Tensor = self.layers(batch[0]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102
        return torch.optim.AdamW(self.parameters())


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=int(steps),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Regression(), DataLoader(TensorDataset(torch.randn(16_384, 256)), batch_size=8))
print("trained")
