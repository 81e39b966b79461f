"""GPUs by NVML: what ``nvidia-ml-py`` (module ``pynvml``) says of the boards that this process may use.

Each value is asked for by itself: a board that does not know one (a MIG slice has no utilization, an old
board no energy) is not asked again, and the value is missing.

Source: NVML API reference, NVIDIA (nvmlDeviceGetUtilizationRates, nvmlDeviceGetPowerUsage,
nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetCurrentClocksEventReasons); CUDA's documentation of
CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
"""

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from profnb.capture.machine.machine_records import MISSING, BoardRecords, MachineRecords

_MOST_BOARDS = 16


def visible_boards(environment: Mapping[str, str], names: list[str]) -> list[int] | list[str]:
    """The boards that CUDA shows to this process, by NVML's numbers or by their own ids.

    CUDA counts the fastest first, NVML by their places on the bus. Where boards differ and nobody asked CUDA
    for the bus' order, a number of CUDA's may be any of them, and all of them are looked at.

    Args:
        environment: The process' own.
        names: What each board is, by NVML's number.
    """
    every = list(range(len(names)))
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return every
    chosen = [part.strip() for part in asked.split(",")]
    if all(part.startswith(("GPU-", "MIG-")) for part in chosen):
        return chosen
    in_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(names)) < 2
    numbers = []
    for part in chosen:  # what stands behind the first one that there is not does not count
        if not part.isdecimal() or int(part) not in every:
            break
        numbers.append(int(part))
    return numbers if in_order or not numbers else every


class GpuReader:
    """Reads all boards at each look.

    Args:
        records: Where they are kept.

    Raises:
        Exception: There is no NVML, or it has no board: whatever its module raises.
    """

    def __init__(self, records: MachineRecords) -> None:
        """Open NVML."""
        warnings.filterwarnings("ignore", "The pynvml package is deprecated")  # nvidia-ml-py is not
        self._nvml: Any = import_module("pynvml")
        self._nvml.nvmlInit()
        count = min(int(self._nvml.nvmlDeviceGetCount()), _MOST_BOARDS)
        handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        names = [_text(self._nvml.nvmlDeviceGetName(handle)) for handle in handles]
        self._boards: list[tuple[Any, BoardRecords]] = []
        self._untold: set[tuple[int, str]] = set()
        for board in visible_boards(os.environ, names):
            if isinstance(board, int):
                handle, name, index = handles[board], names[board], board
            else:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(board)
                name = _text(self._nvml.nvmlDeviceGetName(handle))
                index = len(self._boards)
            self._boards.append((handle, BoardRecords(name, index)))
        records.boards.extend(board for _, board in self._boards)

    def look(self) -> None:
        """Add one value to each column of each board."""
        for handle, board in self._boards:
            memory = self._ask(board, handle, "nvmlDeviceGetMemoryInfo")
            use = self._ask(board, handle, "nvmlDeviceGetUtilizationRates")
            if memory is not None:
                board.memory_bytes = int(memory.total)
            values = (
                None if use is None else use.gpu,
                None if memory is None else memory.used,
                self._ask(board, handle, "nvmlDeviceGetPowerUsage"),
                self._ask(board, handle, "nvmlDeviceGetTotalEnergyConsumption"),
                self._reasons(board, handle),
            )
            for column, value in zip(board.columns(), values, strict=True):
                column.append(MISSING if value is None else int(value))

    def _reasons(self, board: BoardRecords, handle: Any) -> Any:
        """NVML's bits; the function's name changed in 2023, and older drivers know the older one."""
        reasons = self._ask(board, handle, "nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask(board, handle, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return reasons

    def _ask(self, board: BoardRecords, handle: Any, name: str) -> Any:
        """What a function of NVML says of a board; None where it cannot, and from then on."""
        if (board.index, name) in self._untold:
            return None
        try:
            return getattr(self._nvml, name)(handle)
        except Exception:  # noqa: BLE001 - NVMLError, or a function that this version has not
            self._untold.add((board.index, name))
            return None

    def close(self) -> None:
        """Let NVML go."""
        self._nvml.nvmlShutdown()


def _text(name: Any) -> str:
    """A name, which older versions give as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
