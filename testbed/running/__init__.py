"""Running a workload for real: jobs to submit, the controller that decides, what happened, the run folder."""
