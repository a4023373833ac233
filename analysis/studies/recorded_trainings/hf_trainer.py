"""A training by Hugging Face's Trainer, of a small GPT-2 on made-up tokens: [STEPS].

On CPUs it trains by DDP, whatever it is told of FSDP.
"""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

steps = sys.argv[1] if len(sys.argv) > 1 else "30"


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sentences of thirty-two tokens."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 1000, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=2,
    max_steps=int(steps),
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    ddp_backend="gloo",
    disable_tqdm=True,
)
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=64))
Trainer(model=model, args=arguments, train_dataset=Tokens()).train()
print("trained")
