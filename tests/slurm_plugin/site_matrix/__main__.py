"""`python -m tests.slurm_plugin.site_matrix`: try all rows on a real Slurm and print the table in Markdown.

Words after it choose rows by what is in their names; `--no-accounting` leaves out those that need slurmdbd.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm_plugin.site_matrix.matrix_row import RowFindings, try_row
from tests.slurm_plugin.site_matrix.matrix_site import matrix_site
from tests.slurm_plugin.site_matrix.option_rows import OPTION_ROWS
from tests.slurm_plugin.site_matrix.site_rows import SITE_ROWS

ROWS = (*OPTION_ROWS, *SITE_ROWS)
HEAD = "| | starts where it should | waits with a true reason | hurts nobody |\n|---|---|---|---|"


def line(found: RowFindings) -> str:
    """A row of the table."""
    cells = (found.starts, found.waits, found.hurt)
    said = (f"**{cell.replace('|', '¦')}**" if cell else "yes" for cell in cells)
    return f"| {' | '.join((found.feature, *said))} |"


def main() -> None:
    """Read the arguments, try the rows, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm_plugin.site_matrix")
    parser.add_argument("words", nargs="*", help="rows whose names have one of these; all if none is given")
    parser.add_argument("--no-accounting", action="store_true", help="leave out what needs slurmdbd")
    asked = parser.parse_args()
    rows = [
        row
        for row in ROWS
        if not (row.accounting and asked.no_accounting)
        and (not asked.words or any(word in row.feature for word in asked.words))
    ]
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    with matrix_site(folder, accounting=any(row.accounting for row in rows)) as site:
        major, minor = site.slurm.version()
        print(f"Slurm {major}.{minor:02}\n\n{HEAD}", flush=True)
        good = 0
        for row in rows:
            began_s = time.monotonic()
            found = try_row(site, row)
            good += found.good
            print(line(found), flush=True)
            print(f"{row.feature}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
        print(f"\n{good} of {len(rows)} rows are as they should be.")


if __name__ == "__main__":
    main()
