"""``trace_remotely``: one window of running processes to what ``load`` or ``load_fleet`` give of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from profnb.capture.profiler.tensorflow_door import parse_addresses, trace_processes
from profnb.core.safe_files import folder_prefix
from profnb.core.units import count_text
from profnb.loading import load
from profnb.profile import Profile
from profnb.several.fleet_loading import load_fleet
from profnb.several.fleets import Fleet


def trace_remotely(url: str, seconds: float = 2.0) -> Profile | Fleet:
    """Trace processes that run ``profnb.serve(port)``, all in one window.

    Args:
        url: ``grpc://host:port``, of several processes with commas between them.
        seconds: How long.

    Returns:
        The profile of one process, or the fleet of several. Layers, source lines and steps outside of the
        window are not known of others.

    Raises:
        CaptureError: Nobody answered, or nothing ran.
        ValueError: An address is not HOST:PORT, or the time not positive.
    """
    addresses = parse_addresses(url)
    folder = TemporaryDirectory(prefix=folder_prefix())
    logdir = Path(folder.name)
    trace_processes(addresses, seconds, logdir)
    trace_files = sorted(logdir.glob("plugins/profile/*/*.xplane.pb"))
    missing = len(addresses) - len(trace_files)
    silent = (
        f"Of {count_text(len(addresses))} processes {count_text(missing)} left no trace."
        if missing > 0
        else ""
    )
    if len(trace_files) == 1:
        profile = load(trace_files[0])
        profile.remarks += [silent] if silent else []
        return profile
    fleet = load_fleet([str(file) for file in trace_files])
    fleet.add_note(silent)
    fleet.folder = folder
    return fleet
