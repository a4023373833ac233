"""Checks of settings in slurm.conf that slow Dally down or get in its way."""

from dally.jobs.job import CHECKPOINTED
from slurm_plugin.admin.checks.site import Finding, Row, SiteFacts, ok, problem, warning
from slurm_plugin.client.job_json import node_names
from slurm_plugin.client.node_text import number
from slurm_plugin.submit.hints import SLURM_MAX_WAIT_S

_LEAST_JOB_AGE_S = 60
_NO_LIMIT = ("", "UNLIMITED", "0")


def memory(site: SiteFacts) -> Finding:
    """A job without --mem leaves memory for others."""
    parameters = site.setting("SelectTypeParameters")
    if "MEMORY" not in parameters.upper():
        return ok("memory is not counted")
    for name in site.required_config.partitions:
        if not (_limits(site.settings) or _limits(site.partitions.get(name, {}))):
            return warning(
                f"{parameters}, no DefMemPerGPU: jobs in {name} without --mem take all memory of their nodes",
                "set DefMemPerGPU (or DefMemPerCPU) in slurm.conf, else two jobs never share a node",
            )
    return ok("memory has a default per job")


def _limits(row: Row) -> bool:
    """Whether a job without --mem gets less than all memory, by the settings of all or of a partition."""
    limits = [row.get(key, "") for key in ("DefMemPerNode", "DefMemPerCPU")]
    return not set(limits).issubset(_NO_LIMIT) or "DefMemPerGPU" in row.get("JobDefaults", "")


def requeue(site: SiteFacts) -> Finding:
    """Jobs may be requeued."""
    if site.setting("JobRequeue") == "0":
        return warning(
            "JobRequeue=0: only jobs submitted with --requeue can be preempted",
            "JobRequeue=1 in slurm.conf; dally-sbatch asks for it anyway",
        )
    return ok("jobs are requeued unless they say no")


def checkpoint_exit(site: SiteFacts) -> Finding:
    """Slurm itself puts a job back that has written its checkpoint."""
    codes = site.setting("RequeueExitHold")
    if site.hint_mode or str(CHECKPOINTED) in node_names(f"[{codes}]"):
        return ok(f"a job that ends with exit code {CHECKPOINTED} is put back by Slurm, held")
    return warning(
        f"RequeueExitHold lacks {CHECKPOINTED}: a job whose checkpoint is written is put back only by a "
        "controller that runs when it ends, or within MinJobAge",
        f"RequeueExitHold={CHECKPOINTED} in slurm.conf, then `scontrol reconfigure`",
    )


def job_age(site: SiteFacts) -> Finding:
    """Ended jobs stay visible long enough to be seen."""
    age_s = int(number(site.setting("MinJobAge").partition(" ")[0]))  # like `300 sec`
    if not age_s:
        return ok("ended jobs can be seen for ever")
    if age_s < _LEAST_JOB_AGE_S:
        return problem(
            f"MinJobAge={age_s}: ended jobs vanish before the controller sees how they ended",
            f"MinJobAge={_LEAST_JOB_AGE_S} or more in slurm.conf (300 is Slurm's default)",
        )
    return ok(f"ended jobs can be seen for {age_s} s")


def start_delay(site: SiteFacts) -> Finding:
    """A released job starts soon."""
    delay = site.option("SchedulerParameters", "batch_sched_delay") or "3"
    interval = site.option("SchedulerParameters", "bf_interval") or "30"
    if site.option("SchedulerParameters", "defer") is not None:
        return warning(
            "SchedulerParameters has defer: a released job waits for the next round of scheduling",
            "leave defer out, or raise start_timeout_s above sched_interval",
        )
    if delay.isdecimal() and int(delay) >= site.required_config.start_timeout_s:
        return problem(
            f"batch_sched_delay={delay} is not below start_timeout_s",
            "lower the one, or raise the other: Dally gives up on a start after start_timeout_s",
        )
    if delay != "0":
        return ok(
            f"a released job starts up to {delay} s later (batch_sched_delay), {interval} s if only backfill "
            "looks at it (bf_interval)",
            "SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0 makes it 0.4 s",
        )
    return ok("a released job starts at once")


def switch_wait(site: SiteFacts) -> Finding:
    """In hint mode, Slurm waits as long as it is told."""
    if not site.hint_mode:
        return ok("max_switch_wait matters in hint mode only")
    value = site.option("SchedulerParameters", "max_switch_wait")
    if not value:
        return warning(
            f"max_switch_wait is unset: Slurm cuts every hint to {SLURM_MAX_WAIT_S} s",
            "SchedulerParameters=max_switch_wait=86400 in slurm.conf",
        )
    return ok(f"max_switch_wait={value}")


def power_saving(site: SiteFacts) -> Finding:
    """Nodes stay on."""
    if site.setting("SuspendProgram") and site.setting("SuspendTime"):
        return warning(
            "SuspendProgram is set: a node that is off takes longer to start than start_timeout_s",
            "name the GPU nodes in SuspendExcNodes, or raise start_timeout_s above ResumeTimeout",
        )
    return ok("Slurm does not switch nodes off")


def preemption(site: SiteFacts) -> Finding:
    """Slurm does not preempt on its own."""
    found = site.setting("PreemptType")
    if found not in ("", "preempt/none"):
        return warning(
            f"PreemptType={found}: Slurm may stop jobs that Dally placed",
            "fine if meant so (Dally places them again), else PreemptMode=OFF for its partitions",
        )
    return ok("Slurm does not preempt")
