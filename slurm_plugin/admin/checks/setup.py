"""Checks of what Dally itself needs: its configuration, Slurm's commands, rights, files and folders."""

from dally.errors import InputError
from dally.jobs.knowledge import Knowledge
from dally.policies.registry import parse_policy
from dally.words import plural
from slurm_plugin.admin.checks.site import Finding, SiteFacts, ok, problem, some, warning

OLDEST = (22, 5)
"""The oldest Slurm that Dally knows how to speak to."""

_RIGHTS = "the controller holds, releases, requeues and updates jobs of others and makes reservations"
_MOST_SKEW_S = 2.0
_LEAST_FREE_BYTES = 100e6


def configuration(site: SiteFacts) -> Finding:
    """The configuration can be read."""
    if site.config is None:
        return problem(
            site.config_error, "write it (`dally slurm install` gives an example), or name --config"
        )
    return ok(f"{site.config_path}: partitions {', '.join(site.config.partitions)}")


def commands(site: SiteFacts) -> Finding:
    """Slurm's commands are there."""
    missing = [name for name, path in site.commands.items() if path is None]
    if missing:
        return problem(
            f"not on PATH: {', '.join(missing)}", "install Slurm's client commands, or put them on PATH"
        )
    return ok(f"found {', '.join(site.commands)}")


def version(site: SiteFacts) -> Finding:
    """Slurm is new enough."""
    oldest = _version(OLDEST)
    if site.version is None:
        return problem("Slurm's version is not known", "`scontrol --version` must work")
    if site.version < OLDEST:
        return problem(f"Slurm {_version(site.version)}", f"Dally needs Slurm {oldest} or newer")
    return ok(f"Slurm {_version(site.version)}")


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:02}"


def slurmctld(site: SiteFacts) -> Finding:
    """Slurmctld answers."""
    if site.slurm_error:
        return problem(
            site.slurm_error, "start slurmctld and munge, and see that `scontrol ping` says UP here"
        )
    return ok(f"slurmctld of cluster {site.setting('ClusterName')} is up")


def rights(site: SiteFacts) -> Finding:
    """Whoever asks may do what the controller does."""
    if site.hint_mode:
        return ok("hint mode needs no rights")
    if site.uid == 0:
        return ok(
            "you are root, who may do all; the controller's own user may not",
            "run this again as the user of the controller, like `sudo -u dally dally slurm doctor`",
        )
    if f"({site.uid})" in site.setting("SlurmUser"):
        return ok(f"{site.user} is SlurmUser, who may do all")
    if site.is_privileged:
        return ok(f"{site.user} has the admin level {site.admin_level}")
    if site.setting("AccountingStorageType").endswith("slurmdbd"):
        return problem(
            f"{site.user} is not an operator; {_RIGHTS}",
            f"sacctmgr modify user {site.user} set adminlevel=Operator",
        )
    return problem(
        f"{site.user} is neither root nor SlurmUser; {_RIGHTS}",
        "without slurmdbd there are no operators: run the controller as SlurmUser",
    )


def user(site: SiteFacts) -> Finding:
    """As whom all is judged."""
    why = (
        "to whom the state folder belongs"
        if site.as_user
        else "who asks; the controller is to run as the same"
    )
    return ok(f"checked as {site.user} (uid {site.uid}), {why}")


_HIDING = ("jobs", "nodes", "partitions", "reservations")


def hidden(site: SiteFacts) -> Finding:
    """Slurm shows the controller all jobs and nodes."""
    private = site.setting("PrivateData").split(",")
    if site.hint_mode:
        return ok("hint mode looks at no jobs")
    if not site.is_privileged and (hiding := sorted({*_HIDING} & {*private})):
        return problem(
            f"Slurm hides {', '.join(hiding)} of others from {site.user} (PrivateData)",
            f"sacctmgr modify user {site.user} set adminlevel=Operator",
        )
    if site.cloud_nodes and "cloud" not in private:
        return warning(
            f"Slurm hides cloud nodes that are powered down, such as {some(site.cloud_nodes)}",
            "PrivateData=cloud in slurm.conf shows them (in spite of the name)",
        )
    return ok(f"Slurm shows {site.user} all jobs and nodes")


def history(site: SiteFacts) -> Finding:
    """The accounting teaches how long jobs run."""
    wanted = site.required_config.knowledge
    if site.hint_mode or wanted not in (Knowledge.AUTO, Knowledge.HISTORY):
        return ok("no history is read")
    if not site.setting("AccountingStorageType").endswith("slurmdbd"):
        return ok(
            "without slurmdbd there is no history; the controller learns from the jobs that it sees end"
        )
    if site.history_error:
        return warning(
            f"{site.user} cannot read the history: {site.history_error}", "see that sacct works for this user"
        )
    if "gres/gpu" not in site.setting("AccountingStorageTRES"):
        return warning(
            "the history tells no GPUs: AccountingStorageTRES lacks gres/gpu",
            "AccountingStorageTRES=gres/gpu in slurm.conf; it counts from then on",
        )
    may_see = site.uid == 0 or site.is_operator or f"({site.uid})" in site.dbd_settings.get("SlurmUser", "")
    if not may_see and "jobs" in site.dbd_settings.get("PrivateData", "").split(","):
        return warning(
            f"slurmdbd hides the history of others from {site.user} (PrivateData in slurmdbd.conf)",
            f"sacctmgr modify user {site.user} set adminlevel=Operator",
        )
    return ok(f"{site.user} may read all users' history")


def clock(site: SiteFacts) -> Finding:
    """Both clocks agree."""
    if abs(site.skew_s) > _MOST_SKEW_S:
        return warning(
            f"this clock differs from slurmctld's by {abs(site.skew_s):.0f} s",
            "keep both in time (chrony or ntpd): begin times and ages are compared",
        )
    return ok("this clock agrees with slurmctld's")


def job_submit(site: SiteFacts) -> Finding:
    """Jobs pass through Dally's job_submit.lua."""
    path = site.conf_dir / "job_submit.lua"
    if site.lua is None:
        return problem(f"{path} is missing", "`dally slurm install`; on the host of slurmctld")
    if site.option("JobSubmitPlugins", "lua") is None:
        return problem(
            f"{path} is there, but JobSubmitPlugins has no lua",
            "JobSubmitPlugins=lua in slurm.conf, then restart slurmctld",
        )
    if site.lua != site.own_lua:
        return warning(
            f"{path} is not the one of this version of Dally",
            "`dally slurm install` brings an older one up to date; if it is yours, see docs/install.md",
        )
    if not site.site_lua:
        return problem(f"{path} has no dally_site.lua beside it", "`dally slurm install`")
    for name in site.config.partitions if site.config else ():
        if f'"{name}"' not in site.site_lua:
            return problem(
                f"dally_site.lua does not name partition {name}", "`dally slurm install` writes it anew"
            )
    if site.uid and f"[{site.uid}]" not in site.site_lua and not site.hint_mode:
        return problem(
            f"dally_site.lua does not exempt {site.user} (uid {site.uid}), who then may place no user's job",
            f"`dally slurm install --user {site.user}`, as root, on the host of slurmctld",
        )
    return ok(f"{path} is this version's, in {'hint' if site.hint_mode else 'hold'} mode")


def profiles(site: SiteFacts) -> Finding:
    """Profiles tell how much each model suffers."""
    if site.profiles_error:
        return problem(site.profiles_error, "name a folder of profiles or a shipped set as `profiles`")
    if not site.profiles:
        return warning(
            "no profiles: no model counts as sensitive to the network",
            "measure your models, or name a shipped set as `profiles`",
        )
    if site.stand_ins:
        return warning("; ".join(site.stand_ins), "measure on these GPUs: `profile-models slurm`")
    return ok(f"profiles of {plural(site.profiles, 'model')}")


def state_folder(site: SiteFacts) -> Finding:
    """The controller's folder is its own, and has room."""
    path, folder = site.required_config.state_dir, site.state_dir
    if site.hint_mode:
        return ok("hint mode keeps nothing")
    if folder is None:
        return problem(f"{path} is missing", f"mkdir -m 700 {path}, owned by the controller's user")
    if folder.mode & 0o077:
        return problem(f"{path} is open to others (mode {folder.mode:o})", f"chmod 700 {path}")
    if folder.uid != site.uid:
        return warning(
            f"{path} belongs to uid {folder.uid}, you are {site.user}",
            "it must be the folder of the user that the controller runs as",
        )
    if folder.free_bytes < _LEAST_FREE_BYTES:
        return problem(
            f"{path} has {folder.free_bytes / 1e6:.0f} MB left", "make room: the journal is kept there"
        )
    return ok(f"{path} is ours, {folder.free_bytes / 1e9:.1f} GB free")


def health(site: SiteFacts) -> Finding:
    """A controller answers."""
    url = site.required_config.url
    if not url:
        return ok("url is empty: dally-sbatch does not ask for the controller")
    if site.health_error and site.hint_mode:
        return ok("no controller answers; hint mode needs none")
    if site.health_error:
        return warning(site.health_error, "systemctl start dally-controller, and see its log")
    return ok(f"{url} answers")


def reports(site: SiteFacts) -> Finding:
    """What the policy plans by that jobs must report, where they have no profile."""
    if site.hint_mode:
        return ok("hint mode needs no reports")
    try:
        needs = parse_policy(site.required_config.policy).policy.plans_by
    except InputError as error:
        return problem(str(error), "correct policy in dally.toml; `dally policies` lists them")
    if not needs:
        return ok("the policy plans by nothing that jobs must report")
    if site.required_config.profiles:
        return ok(f"the policy plans by {needs}: by profiles, and by what jobs with --progress report")
    return warning(
        f"the policy plans by {needs}, and no model has a profile",
        "have users submit with --progress (docs/elastic-training.md); it guesses for the others",
    )
