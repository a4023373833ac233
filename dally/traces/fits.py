"""The distributions behind the synthetic workloads: three fitted to published traces, and a plain one.

Shares of the GPU counts, in per cent of the jobs, and the longest job are counted in the traces (Philly: its
steady slice); counts rarer than 0.01 % are left out. Durations and gaps are the fits published beside
the traces.
"""

from dally.traces.knobs import knob_mix
from dally.traces.synthetic import WorkloadShape

PLAIN = WorkloadShape(gpus=knob_mix("gpus", "1:50/2:10/4:15/8:20/16:5"), mu=8.2, sigma=1.5, max_s=864_000.0)
"""Round numbers for small studies (median 1 h), no fit to anything."""

# Philly's 8-GPU jobs have a fit of their own. mu and sigma of the others are such that all jobs together have
# the published 7.15 and 2.44: with w = 4.97 %, mu = (7.15 - w * 9.01) / (1 - w), and likewise the variance.
PHILLY = WorkloadShape(
    gpus=knob_mix("gpus", "1:86.8/2:2.26/4:4.96/8:4.97/12:.01/16:.73/24:.04/32:.2/64:.02/128:.01"),
    mu=7.053,
    sigma=2.365,
    fits={8: (9.01, 3.04)},
    max_s=5_185_940.0,
    gap_s=64.0,
    cv=2.7,
)

VENUS = WorkloadShape(
    gpus=knob_mix(
        "gpus",
        "1:55.01/2:5.04/3:.13/4:5.99/5:.02/6:.08/7:.18/8:22.06/16:5.36/24:1.04/32:2.28/40:.55/48:.96/56:.22"
        "/64:.04/72:.1/80:.39/88:.07/96:.03/104:.01/112:.04/120:.02/128:.11/136:.05/144:.08/152:.03/160:.12",
    ),
    mu=5.95,
    sigma=2.85,
    max_s=1_964_673.0,
    gap_s=162.0,
    cv=3.9,
)

LINGJUN = WorkloadShape(
    gpus=knob_mix(
        "gpus",
        "1:9.33/2:4.76/3:.52/4:7.05/6:.96/8:33.03/9:.16/12:.48/16:7.29/24:1.12/32:16.17/40:.12/48:3.12/56:.08"
        "/59:.04/60:1.28/64:4.24/72:.76/80:.6/88:.8/91:.04/118:.04/120:.04/128:.72/256:5.56/400:.52/448:.04"
        "/464:.04/496:.08/504:.04/512:.92/744:.04",
    ),
    mu=6.12,
    sigma=2.83,
    max_s=1_237_860.0,
    gap_s=551.0,
    cv=4.1,
)
