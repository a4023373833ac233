"""How unevenly a model's gradients are spread over its tensors, from its profile."""

from dally.job import Job
from dally.profiles.files import ProfileSet

BUCKET_CAP_BYTES = 25 * 2**20
"""Size at which PyTorch closes a bucket: a larger one ends in a tensor of at least the excess."""


def skew(job: Job, profiles: ProfileSet | None) -> float:
    """Share of a model's gradients that its largest tensor surely holds; 0 if unknown.

    Profiles know buckets, not tensors: the largest tensor is at least the largest bucket less the size at
    which buckets are closed.
    """
    profile = profiles.find(job.model, job.gpu_type) if profiles and job.model else None
    if profile is None or not profile.model.buckets or not profile.model.grad_bytes:
        return 0.0
    largest = max(bucket.bytes for bucket in profile.model.buckets)
    return max(0, largest - BUCKET_CAP_BYTES) / profile.model.grad_bytes
