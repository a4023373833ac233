"""A few rows of the matrix of sites, which `python -m tests.slurm_plugin.site_matrix` tries whole."""

import re
from pathlib import Path

import pytest

from tests.patience import LONGEST_S
from tests.slurm_plugin.site_matrix.__main__ import ROWS
from tests.slurm_plugin.site_matrix.matrix_row import try_row
from tests.slurm_plugin.site_matrix.matrix_site import matrix_site

_PAGE = Path(__file__).parents[2] / "docs" / "sites.md"
_CHEAP = ("`--constraint=c&ib`", "`--licenses`", "`--dependency=afterok`")


@pytest.mark.slurm
def test_jobs_start_wait_and_leave_others_alone_as_the_table_says(cluster_folder: Path) -> None:
    with matrix_site(cluster_folder, accounting=False, runs_s=LONGEST_S) as site:
        found = [try_row(site, row) for row in ROWS if row.feature in _CHEAP]
    assert [each.feature for each in found] == [*_CHEAP]
    assert [each for each in found if not each.good] == []


def test_the_page_of_sites_has_every_row_in_order() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    table = text[text.index("| | starts where it should |") :].partition("\n\n")[0].splitlines()[2:]
    assert [re.split(r"(?<!\\\\) \| ", line[2:])[0] for line in table] == [row.feature for row in ROWS]
