"""This process among those of its job, by what the launcher says in the environment, or else a framework.

TensorFlow's clusters say it by ``TF_CONFIG``, PyTorch's launcher by ``RANK``, Horovod's by ``HOROVOD_RANK``,
Open MPI by ``OMPI_COMM_WORLD_RANK``, MPICH by ``PMI_RANK``, Slurm by ``SLURM_PROCID``; JAX reads
``JAX_PROCESS_ID``. A program may give the number itself (``jax.distributed.initialize``,
``torch.distributed.init_process_group``): the framework then knows it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from profnb.capture.seams import (
    JAX_JOB,
    JAX_RANK,
    JAX_RANKS,
    TORCH_HAS_JOB,
    TORCH_RANK,
    TORCH_RANKS,
)
from profnb.core.options import CaptureOptions

# Variables of a process' number and of how many there are, in order of trust.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_CHIEFS, _WORKER = ("chief", "master"), "worker"
_MOST_RANKS = 1_000_000
_FAR_LONGER = 6


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job.

    Attributes:
        name: What tells it from the others: ``3``, or ``ps0`` for a task that trains nothing.
        processes: How many there are; 0 where nobody says.
        is_collective: Whether they exchange with one another by collectives, as far as that is said: a
            cluster with parameter servers does not.
    """

    name: str
    processes: int = 0
    is_collective: bool = True


def find_rank(given: int | None = None, environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Find this process' rank; None where it is the only one, or nothing says that there are more.

    Args:
        given: Its number, where the user gave one.
        environment: The variables of the process.
    """
    if given is not None:
        return Rank(str(given))
    task = _task_of_cluster(environment.get("TF_CONFIG", ""))
    if task is not None:
        return task if task.processes > 1 else None
    for number, size in _VARIABLES:
        rank, ranks = _whole(environment.get(number)), _whole(environment.get(size))
        if rank is not None and ranks is not None and rank < ranks > 1:
            return Rank(str(rank), ranks)
    return _rank_in_framework()


def bound_by_steps(options: CaptureOptions) -> CaptureOptions:
    """In a job of several processes, bounds that let all of them trace the same steps.

    Each would close its window after so many seconds of its own; they go through their steps together, so
    the number of steps decides, unless seconds were asked for or a window becomes far longer.
    """
    usual = CaptureOptions().max_seconds
    if options.max_seconds != usual or find_rank(options.rank) is None:
        return options
    return replace(options, max_seconds=usual * _FAR_LONGER)


def _rank_in_framework() -> Rank | None:
    """Ask an imported framework what it was told, which sets nothing up."""
    job = JAX_JOB.find()
    rank, ranks = JAX_RANK.of(job), JAX_RANKS.of(job)
    asked = [seam.find() for seam in (TORCH_HAS_JOB, TORCH_RANK, TORCH_RANKS)]
    if rank is None and None not in asked and asked[0]():
        rank, ranks = asked[1](), asked[2]()
    is_known = isinstance(rank, int) and isinstance(ranks, int)
    return Rank(str(rank), ranks) if is_known and 0 <= rank < ranks > 1 else None


def _whole(text: str | None) -> int | None:
    is_number = text is not None and text.isdecimal() and len(text) <= len(str(_MOST_RANKS))
    return int(text) if is_number and text is not None else None


def _task_of_cluster(text: str) -> Rank | None:
    """The task that ``TF_CONFIG`` names; None where it names none, or is not what TensorFlow reads."""
    try:
        config: Any = json.loads(text) if text else None
        cluster, task = dict(config["cluster"]), dict(config["task"])
        kind, index = str(task["type"]), _whole(str(task["index"]))
        tasks = {name: len(of) for name, of in cluster.items()}
    except (ValueError, TypeError, KeyError):
        return None
    if not kind.isidentifier() or index is None:
        return None
    chiefs = sum(tasks.get(name, 0) for name in _CHIEFS)
    processes, is_collective = sum(tasks.values()), "ps" not in tasks
    if kind in _CHIEFS or kind == _WORKER:  # TensorFlow counts the chief as the first worker
        number = chiefs + index if kind == _WORKER else 0
        return Rank(str(number), processes, is_collective)
    return Rank(f"{kind[:20]}{index}", processes, is_collective=False)
