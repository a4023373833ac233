"""One rank's training of one model: its module, torch's data parallelism (DDP), its optimizer and samples."""

import gc
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, AdamW, Optimizer

from dally.errors import InputError
from workloads.elastic.batch_rules import Tuning
from workloads.emulated import emulate
from workloads.group import Group
from workloads.noise import EVERY, NoiseScale, squared_norm
from workloads.registry import ModelRecipe
from workloads.samples import Source, Synthetic
from workloads.settings import Precision, Settings
from workloads.task import Task, as_input, make_task

CommHook = Callable[[object, GradBucket], Future[Tensor]]
"""Reduces a bucket of gradients to their mean over the ranks; DDP wants `bucket` as its parameter's name."""

_JUDGED = 256
"""Samples that are evaluated together."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples on the device; the first axis of both is the samples."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """How well a model does on samples that it is not trained on.

    Attributes:
        samples: How many.
        loss: Their mean loss.
        accuracy: Part of them whose class has the largest output; None if the model tells no classes.
    """

    samples: int
    loss: float
    accuracy: float | None


class Trainer:
    """One rank's training of one model.

    All ranks start from rank 0's parameters, made from the seed. Each has batch norms' statistics of its own.

    Attributes:
        task: What is trained.
        module: The module; wrapped in DDP if there are several ranks, or a hook.
        source: Where samples come from.
        noise: Its gradient noise scale, measured now and then; None: it is not.
        tuning: How long its steps take by ranks and batch; None: its batch does not go by that.
        sample_s: What a sample takes at least to compute, seconds; 0 for as fast as it can be.
    """

    def __init__(
        self,
        workload: ModelRecipe,
        settings: Settings,
        group: Group,
        hook: CommHook | None = None,
        source: Source | None = None,
    ) -> None:
        """Build the module on the group's device.

        Args:
            workload: The model.
            settings: How it is trained.
            group: The ranks, joined.
            hook: Reduces the gradients in place of DDP's own all-reduce.
            source: Where samples come from; None to make them up.

        Raises:
            InputError: The settings do not fit the model or the number of ranks.
        """
        if settings.global_batch < group.size:
            raise InputError(
                f"global batch is {settings.global_batch}, must be {group.size} or more: one for each rank"
            )
        self.task = find_task(workload, settings)
        self.source: Source = source or Synthetic(self.task, settings.seed)
        self.noise: NoiseScale | None = None
        self.tuning: Tuning | None = None
        self.sample_s = 0.0
        self._settings, self._group, self._hook = settings, group, hook
        self._workload = workload
        torch.manual_seed(settings.seed)
        self._model = self.task.build().to(group.device)
        self._ahead: tuple[Sequence[int], Batch, torch.cuda.Stream] | None = None
        emulated = settings.emulated_flops is not None
        self._optimizer = None if emulated else _make_optimizer(workload, self._model.parameters())
        self.module = self._wrap()

    def _wrap(self) -> nn.Module:
        """The model in DDP, where there are several ranks or a hook."""
        if self._group.size == 1 and not self._hook:
            return self._model
        with warnings.catch_warnings():  # torch 2.13 renames broadcast_buffers; older ones have no other name
            warnings.simplefilter("ignore", FutureWarning)
            parallel = DistributedDataParallel(
                self._model,
                device_ids=[self._group.device] if self._group.device.type == "cuda" else None,
                broadcast_buffers=False,
                init_sync=self._settings.emulated_flops is None,  # a pretended GPU's parameters are all zero
                gradient_as_bucket_view=True,
            )
        if self._hook:
            parallel.register_comm_hook(None, self._hook)
        return parallel

    @property
    def learning_rate(self) -> float:
        """The optimizer's; a pretended GPU has none, and keeps the workload's."""
        if not self._optimizer:
            return self._workload.learning_rate
        return float(self._optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if self._optimizer:
            for group in self._optimizer.param_groups:
                group["lr"] = rate

    def part(self) -> None:
        """Let go of the group, which torch must not find held when it is left: it may wait for ever."""
        if isinstance(self.module, DistributedDataParallel):
            self.module.reducer._remove_autograd_hooks()  # or it would reduce in the next group, too
        self._model.zero_grad(set_to_none=True)  # gradients lie in its buckets
        self.module = self._model
        gc.collect()  # DDP's objects hold each other

    def regroup(self, group: Group, batch: int) -> None:
        """Go on with other ranks, joined after `part`, and batches of so many samples, all ranks together.

        Raises:
            InputError: There are more ranks than samples.
        """
        if batch < group.size:
            raise InputError(f"global batch is {batch}, must be {group.size} or more: one for each rank")
        self._group, self._settings = group, replace(self._settings, global_batch=batch)
        self.module = self._wrap()

    def train(self, step: int, samples: Sequence[int]) -> Tensor:
        """One whole iteration.

        Args:
            step: Its number; with the seed and the rank it decides what dropout drops, so that a job that is
                resumed needs no state of random numbers.
            samples: This rank's.

        Returns:
            The loss, as `forward` gives it, without its history.
        """
        mixed = np.random.SeedSequence((self._settings.seed, step, self._group.rank))
        torch.manual_seed(int(mixed.generate_state(1)[0]))
        due_s = time.perf_counter() + self.sample_s * len(samples)
        batch = self._drawn(samples)
        loss = self.forward(batch)
        time.sleep(max(0.0, due_s - time.perf_counter()))  # before gradients are sent
        self.backward(loss)
        if self.noise and self._optimizer and step % EVERY == 0:
            self._measure(self.noise, batch)
        self.update()
        return loss.detach()

    def _measure(self, noise: NoiseScale, batch: Batch) -> None:
        """Compare the step's gradient with that of half of this rank's samples; nothing else changes."""
        part = len(batch.inputs) // 2
        if not part:
            return
        before = [buffer.clone() for buffer in self._model.buffers()]  # statistics of batch norms
        parameters = [each for each in self._model.parameters() if each.requires_grad]
        try:
            with torch.autocast(self._group.device.type, torch.bfloat16, enabled=self._is_bf16):
                loss = self.task.loss(self._model(batch.inputs[:part]), batch.targets[:part])
            small = torch.autograd.grad(loss, parameters, allow_unused=True)
        except torch.OutOfMemoryError:  # the training itself fits
            self.noise = None
            return
        for buffer, kept in zip(self._model.buffers(), before, strict=True):
            buffer.copy_(kept)
        large = squared_norm(each.grad for each in parameters)
        noise.add(large, self._settings.global_batch, squared_norm(small), part)

    @property
    def _is_bf16(self) -> bool:
        return self._settings.precision is Precision.BF16

    def draw(self, samples: Sequence[int], source: Source | None = None) -> Batch:
        """The samples of these indices, on the device; of this source, or the trainer's own."""
        device, tensors = self._group.device, map(torch.from_numpy, (source or self.source).draw(samples))
        if device.type == "cuda":  # out of pinned memory, nobody waits for the copy
            tensors = map(Tensor.pin_memory, tensors)
        inputs, targets = (tensor.to(device, non_blocking=True) for tensor in tensors)
        return Batch(as_input(inputs), targets)

    def draw_ahead(self, samples: Sequence[int]) -> None:
        """Draw the next step's samples while a GPU computes this one, as data loaders do."""
        if self._group.device.type != "cuda":
            return
        make_stream: Any = torch.cuda.Stream
        stream = self._ahead[2] if self._ahead else make_stream(self._group.device)
        with torch.cuda.stream(stream):
            self._ahead = samples, self.draw(samples), stream

    def _drawn(self, samples: Sequence[int]) -> Batch:
        """The samples of these indices, on the device: drawn ahead, or now."""
        if self._ahead is None or self._ahead[0] != samples:
            return self.draw(samples)
        _, batch, stream = self._ahead
        training = torch.cuda.current_stream()
        training.wait_stream(stream)
        for tensor in (batch.inputs, batch.targets):
            tensor.record_stream(training)  # or the next batch would be copied over it
        return batch

    def evaluate(self, source: Source) -> Score:
        """The model on all samples of a source, as it would be used: batch norms by running statistics."""
        self._model.eval()
        with torch.no_grad():
            sums = torch.stack(
                [
                    self._judge(self.draw(range(start, min(start + _JUDGED, source.count)), source))
                    for start in range(0, source.count, _JUDGED)
                ]
            ).sum(0)
        self._model.train()
        loss, right = (sums / source.count).tolist()
        return Score(source.count, loss, None if math.isnan(right) else right)

    def _judge(self, batch: Batch) -> Tensor:
        """Sum of the losses of some samples, and how many are put into their class; NaN if it has none."""
        outputs = self._model(batch.inputs)
        loss = self.task.loss(outputs, batch.targets) * len(batch.inputs)
        classes = outputs.ndim == 2 and batch.targets.ndim == 1
        right = (outputs.argmax(1) == batch.targets).sum() if classes else torch.full_like(loss, math.nan)
        return torch.stack((loss.double(), right.double()))

    def forward(self, batch: Batch) -> Tensor:
        """The loss of this rank's samples, weighted so that the mean over the ranks is the global batch's."""
        with torch.autocast(self._group.device.type, torch.bfloat16, enabled=self._is_bf16):
            loss = self.task.loss(self.module(batch.inputs), batch.targets)
        return loss * (len(batch.inputs) * self._group.size / self._settings.global_batch)

    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over the ranks unless `unsynchronised`."""
        torch.autograd.backward(loss)

    def update(self) -> None:
        """Step the optimizer, and clear the gradients where they are: fresh memory costs more than zeros.

        A pretended GPU has nothing to do: an optimizer's operations are few beside those of the passes, and
        its gradients are zero. To make an optimizer at all takes torch a second.
        """
        if self._optimizer:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=False)

    def state(self) -> dict[str, Any]:
        """Parameters, statistics of batch norms, the optimizer's state, and what was measured of its steps.

        A pretended GPU's parameters are all zero, and stay so: there is nothing to keep.
        """
        if not self._optimizer:
            return {}
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        kept = {"noise": self.noise, "tuning": self.tuning}
        return state | {name: each.plain() for name, each in kept.items() if each}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        if self._optimizer:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            for name, kept in (("noise", self.noise), ("tuning", self.tuning)):
                if kept and name in state:
                    kept.restore(state[name])

    def unsynchronised(self) -> AbstractContextManager[None]:
        """A context for forward and backward in which gradients stay on their rank."""
        if isinstance(self.module, DistributedDataParallel):
            return self.module.no_sync()
        return nullcontext()


def find_task(workload: ModelRecipe, settings: Settings) -> Task:
    """What the settings make of a workload.

    Raises:
        InputError: The settings do not fit the model.
    """
    if settings.emulated_flops is None:
        return make_task(workload, settings.size)
    return emulate(workload, settings.size, settings.emulated_flops)


def _make_optimizer(workload: ModelRecipe, parameters: Iterable[nn.Parameter]) -> Optimizer:
    if workload.optimizer == "sgd":
        return SGD(parameters, workload.learning_rate, momentum=0.9, weight_decay=1e-4)
    if workload.optimizer == "adam":
        return Adam(parameters, workload.learning_rate)
    return AdamW(parameters, workload.learning_rate, weight_decay=0.01)
