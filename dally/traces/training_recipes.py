"""Which models train under which parallel plans on how many GPUs, as public recipes for H100 have it."""

from dataclasses import dataclass, replace

from dally.jobs.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """A published training, which runs on more GPUs with more replicas.

    Attributes:
        model: What is trained, as `read_model` knows it.
        published: Its plan on the GPUs that it was published for, the fewest that it is used on.
        batch: Sequences of a step there.
        most_gpus: The most GPUs that it is used on.
        batch_grows: Whether the batch grows with the replicas; else it stays.
    """

    model: str
    published: TrainingPlan
    batch: int
    most_gpus: int
    batch_grows: bool = False

    def fits(self, gpus: int) -> bool:
        """Whether it is used on so many GPUs, and they make whole replicas and whole groups of experts."""
        if not self.published.gpus <= gpus <= self.most_gpus:
            return False
        axes = self.published.parallelism
        return gpus % (axes.tp * axes.pp * axes.cp) == 0 and gpus // axes.pp % axes.ep == 0

    def plan(self, gpus: int) -> TrainingPlan:
        """Its plan on so many GPUs, a number that fits."""
        axes = self.published.parallelism
        replicas = gpus // (axes.tp * axes.pp * axes.cp)
        return replace(self.published, parallelism=replace(axes, dp=replicas))

    def batch_on(self, gpus: int) -> int:
        """Its batch there, rounded to one microbatch or more of each replica."""
        plan = self.plan(gpus)
        wanted = self.batch * (gpus / self.published.gpus if self.batch_grows else 1)
        return max(1, round(wanted / plan.batch_step)) * plan.batch_step


def _recipe(model: str, plan: str, batch: int, most_gpus: int, batch_grows: bool = False) -> TrainingRecipe:
    return TrainingRecipe(model, TrainingPlan.parse(plan), batch, most_gpus, batch_grows)


RECIPES = (
    _recipe("llama3-8b", "dp=8,zero=3,micro=2,sequence=8192", 16, 128, batch_grows=True),
    _recipe("llama3-8b", "cp=2,dp=4,zero=3,recompute=yes,micro=1,sequence=65536", 4, 64, batch_grows=True),
    _recipe("llama3-70b", "tp=8,dp=8,zero=3,recompute=yes,micro=8,sequence=8192", 64, 512, batch_grows=True),
    _recipe("llama3-70b", "dp=128,zero=3,recompute=yes,micro=8,sequence=2048", 1024, 512, batch_grows=True),
    _recipe("llama3-70b", "tp=4,pp=4,dp=2,vp=5,zero=1,micro=1,sequence=4096", 32, 32),
    _recipe("llama3-70b", "tp=4,pp=8,dp=2,vp=5,zero=1,micro=1,sequence=8192", 256, 512),
    _recipe(
        "llama3-405b",
        "tp=8,pp=8,dp=8,zero=2,recompute=yes,micro=1,sequence=8192",
        256,
        1024,
        batch_grows=True,
    ),
    _recipe(
        "llama3-405b",
        "tp=8,pp=8,cp=4,dp=2,zero=2,recompute=yes,micro=1,sequence=131072",
        16,
        1024,
        batch_grows=True,
    ),
    _recipe("llama3-405b", "tp=8,pp=8,cp=2,dp=8,vp=8,zero=1,micro=1,sequence=8192", 1536, 1024),
    _recipe("qwen3-30b-a3b", "dp=16,ep=16,zero=1,micro=1,sequence=4096", 1024, 128),
    _recipe("gpt-oss-120b", "pp=4,dp=16,ep=8,zero=1,micro=1,sequence=4096", 1280, 256),
    _recipe("qwen3-235b-a22b", "tp=2,pp=8,dp=16,vp=4,ep=32,zero=1,micro=1,sequence=4096", 8192, 1024),
    _recipe("deepseek-v3", "tp=2,pp=8,dp=64,vp=4,ep=64,zero=1,micro=1,sequence=4096", 8192, 1024),
)
"""Llama with `zero=3`, or 2 beside pipelines, is torchtitan's (benchmarks/llama3_h100_202412_torchtitan.md;
70B on 64 GPUs is its llama3_70b.toml), but 70B with `zero=3` alone is MPT-70B of MosaicML's llm-foundry
(scripts/train/benchmarking/README.md). The others are NVIDIA's: Megatron-Bridge on DGX-H100, in
docs/performance-summary-archive.md, whose distributed optimizer is `zero=1`. Ours: up to how many GPUs a
recipe grows, and bf16 for all, in which the constants of the H100 were fitted."""
