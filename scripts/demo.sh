#!/usr/bin/env bash
# Sets everything up and lets Dally and its baselines schedule a thousand generated jobs on 64 GPUs in four racks.
. "$(dirname "$0")/setup.sh"
install_dally analysis
out=runs/demo
for number in $(seq 2 1000); do
    [ -e "$out" ] || break
    out=runs/demo-$number
done
gangs=1:40/2:10/4:15/8:22/16:10/32:3  # GPUs:share of jobs
.venv/bin/dally simulate \
    --trace "venus-like:jobs=1000,gpus=$gangs,mu=7.5,sigma=1.6,max_s=172800,load=0.9,cluster_gpus=64" \
    --cluster demo --profiles realistic --seed 1 \
    --model-mix resnet50=0.2,bert-large=0.3,vgg11=0.2,alexnet=0.2,resnet18=0.05,mobilenetv3=0.05 \
    --knowledge limits \
    --policy slurm --policy srsf-delay --policy srsf-delay:patience=0,moves=0,waste=0 --policy dally \
    --policy srtf:placement=consolidated --policy tiresias --policy tiresias:limits=pollux \
    --out "$out"
.venv/bin/dally report "$out"
echo "look at $out/report.html; ask why a job waited: .venv/bin/dally why JOB --run $out/srsf-delay"
