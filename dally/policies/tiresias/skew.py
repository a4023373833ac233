"""How unevenly a model's gradients are spread over its tensors, from its profile or its architecture."""

from collections.abc import Mapping

from dally.jobs.job import Job
from dally.profiles.files import ProfileSet

BUCKET_CAP_BYTES = 25 * 2**20
"""Size at which PyTorch closes a bucket: a larger one ends in a tensor of at least the excess."""

LARGEST_TENSORS: Mapping[str, float] = {
    "alexnet": 37_748_736 / 61_100_840,  # 9216 x 4096
    "bert-base": 23_440_896 / 109_482_240,  # 30522 x 768
    "bert-large": 31_254_528 / 335_141_888,  # 30522 x 1024
    "mobilenetv3": 1_024_000 / 2_542_856,  # 1024 x 1000, of mobilenet_v3_small
    "resnet18": 2_359_296 / 11_689_512,  # 512 x 512 x 3 x 3
    "resnet50": 2_359_296 / 25_557_032,  # 512 x 512 x 3 x 3
    "vgg11": 102_760_448 / 132_863_336,  # 25088 x 4096
    "vgg16": 102_760_448 / 138_357_544,  # 25088 x 4096
    "vgg19": 102_760_448 / 143_667_240,  # 25088 x 4096
}
"""Share of a model's parameters that its largest tensor holds, for those of torchvision and BERT."""


def skew(job: Job, profiles: ProfileSet | None) -> float:
    """Share of a model's gradients that its largest tensor surely holds; 0 if unknown.

    Profiles know buckets, not tensors: the largest tensor is at least the largest bucket less the size at
    which buckets are closed. Buckets of equal size tell nothing, so well-known models are told by name.
    """
    known = LARGEST_TENSORS.get(job.model, 0.0)
    profile = profiles.find(job.model, job.gpu_type) if profiles and job.model else None
    if profile is None or not profile.model.buckets or not profile.model.grad_bytes:
        return known
    largest = max(bucket.bytes for bucket in profile.model.buckets)
    return max(known, (largest - BUCKET_CAP_BYTES) / profile.model.grad_bytes)
