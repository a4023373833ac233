"""Modules of `transformers` as plain ones: a tensor in, a tensor out."""

from torch import Tensor, nn


class Logits(nn.Module):
    """A module of `transformers`, of whose outputs only the logits are wanted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits for a batch of inputs."""
        logits = self.model(inputs).logits
        assert isinstance(logits, Tensor)
        return logits
