#!/usr/bin/env bash
# Runs the testbed's workloads for real on this machine and holds the simulator against them: about two hours, nothing beside it.
. "$(dirname "$0")/setup.sh"
install_dally analysis,training,ssh
install_debian $slurm_packages $network_packages

out=${1:-runs/testbed}
policies="--policy srsf-delay:lease_s=90 --policy dally:lease_s=90 --policy fifo --policy tiresias:quantum_s=90 --policy slurm:switch_wait_s=60"

.venv/bin/dally testbed up --racks 2,2,2,2 --gpus 2 --rate 1Gb --uplink 200Mb
trap '.venv/bin/dally testbed down' EXIT
.venv/bin/dally testbed run --workload forty $policies --out "$out/forty"
for workload in burst steady waves mixed calm; do
    .venv/bin/dally testbed run --workload "$workload" --policy srsf-delay:lease_s=90 --policy dally:lease_s=90 --out "$out/$workload"
done
.venv/bin/dally testbed run --workload limits --policy slurm --policy srsf-delay --out "$out/limits"
for workload in burst waves; do
    .venv/bin/dally testbed run --workload "$workload" --policy slurm --out "$out/$workload"
done
for workload in forty burst steady waves mixed calm limits; do
    .venv/bin/dally testbed compare "$out/$workload"
done
