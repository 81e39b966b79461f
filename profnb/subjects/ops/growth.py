"""How a session's graph changed from run to run (TensorFlow 1)."""

from collections.abc import Sequence
from itertools import pairwise

_FEWEST = 3


def find_growth(versions: Sequence[int]) -> tuple[int, int] | None:
    """In how many of the runs the graph had changed, and by how many changes a run.

    Args:
        versions: How many changes the graph had seen at each run.

    Returns:
        None where it changed in fewer than half of the runs, or in fewer than three.
    """
    grown = sum(later > earlier for earlier, later in pairwise(versions))
    if grown < _FEWEST or grown * 2 < len(versions) - 1:
        return None
    return grown, round((versions[-1] - versions[0]) / (len(versions) - 1))
