"""What the captured code ran with: accelerators, versions, precision policy."""

import contextlib
import sys
from typing import Any

__all__ = ["describe_environment", "list_devices"]


def list_devices() -> tuple[str, ...]:
    """The accelerators of a TensorFlow that has run something; asking sets nothing up then."""
    with contextlib.suppress(Exception):  # whatever it is, the user's code comes first
        listed = sys.modules["tensorflow"].config.list_physical_devices()
        return tuple(device.name for device in listed if device.device_type in ("GPU", "TPU"))
    return ()


def describe_environment() -> dict[str, str]:
    """Versions and settings that change how fast code runs, of what the code has imported."""
    found = {"Python": sys.version.partition(" ")[0]}
    for name, title in (("tensorflow", "TensorFlow"), ("keras", "Keras"), ("tf_keras", "tf_keras")):
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            found[title] = version
    with contextlib.suppress(
        Exception
    ):  # not every Keras has policies; the user's code comes first
        policies: Any = getattr(sys.modules.get("keras"), "mixed_precision", None)
        if policies is not None:
            asked = getattr(policies, "dtype_policy", None) or policies.global_policy
            found["Precision policy"] = str(asked().name)
    return found
