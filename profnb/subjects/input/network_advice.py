"""The rule that speaks where the input is read over a network: Google Drive, gcsfuse, NFS, SMB."""

from profnb.core.units import count_text, percent_text
from profnb.subjects.advising import GUIDE, LEAST_INPUT, Finding
from profnb.subjects.study import Study

__all__ = ["network_files"]

_FEWEST, _LEAST_OF_WAIT = 5, 0.25
_DRIVE = "drive"


def network_files(study: Study) -> Finding | None:
    """The steps wait for their input 5 % of the time or more, and it reads files on a network mount.

    Such files must have been open for reading in five looks or more, and for a quarter as much of the time
    as the steps wait: a vocabulary or a log that lies there is not what they wait for.
    """
    seen, waiting = study.recording.network_files, study.input.waiting
    diagnosis = study.input.diagnosis
    if seen.found < _FEWEST or not seen.mounts or diagnosis is None:
        return None
    share = waiting.fraction
    if diagnosis.severity == "none" or not share >= LEAST_INPUT:
        return None
    if seen.found < _LEAST_OF_WAIT * share * seen.looks:
        return None
    place = max(seen.mounts, key=lambda name: seen.mounts[name])
    folder = place.rpartition(" (")[0]
    files = "1 file" if seen.files == 1 else f"{count_text(seen.files)} different files"
    looks = f"{count_text(seen.found)} of {count_text(seen.looks)} looks at the open files"
    return Finding(
        "network-files", "Copy the data to this machine's disk first",
        f"The steps wait {percent_text(share)} of the time for their input, and in {looks} it was reading on "
        f"{place}, a network mount: {files}. Each open and each read goes to another machine.",
        share,
        f"Before the training, once: `!cp -r {folder}/... /content/data`; many small files as one archive, "
        "`!tar -xf ... -C /content/data`. Then read from /content/data."
        if _DRIVE in place
        else f"Copy what is read from {folder} to a local disk before the training; many small files as one "
        "archive. Where that is too large, dataset.cache('/local/path') keeps what the first epoch read.",
        f"{GUIDE}/data_performance",
    )  # fmt: skip
