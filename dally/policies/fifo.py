"""First in, first out: jobs start strictly in the order in which they arrived."""

from dally.policies.common.in_order import InOrder, OrderKnobs


class Fifo(InOrder):
    """Serves jobs by arrival; with backfill, later ones may pass the first if that does not delay it.

    Backfill needs predicted running times (`dally.policies.common.estimates`): in a simulation the true ones.
    """

    name = "fifo"
    summary = "Jobs start strictly in the order of arrival, with or without EASY backfill."
    source = "Mu'alem and Feitelson, IEEE TPDS 12(6), 2001 (FCFS and EASY backfill)"
    knobs_type = OrderKnobs
