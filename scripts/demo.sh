#!/usr/bin/env bash
# Sets everything up and lets Dally and its baselines schedule a week of generated jobs on 64 GPUs in four racks.
. "$(dirname "$0")/setup.sh"
install_dally analysis
out=${1:-runs/demo}
[ ! -e "$out" ] || fail "$out exists already: remove it, or name another folder: scripts/demo.sh FOLDER"
.venv/bin/dally simulate \
    --trace philly-like:jobs=1500,load=0.9,cluster_gpus=64 --cluster demo --profiles realistic --seed 1 \
    --model-mix resnet50=0.3,bert-large=0.25,vgg11=0.15,alexnet=0.1,resnet18=0.1,mobilenetv3=0.1 \
    --policy dally-paper --policy dally-paper:timers=no-wait --policy dally-paper:timers=consolidated \
    --policy tiresias --policy gandiva --policy srtf --policy slurm --policy fifo \
    --out "$out"
echo "look at $out/jct.png; ask why a job waited: .venv/bin/dally why JOB --run $out/dally-paper"
