"""A trace to everything that is worked out from it: the spine, and one object per subject.

A subject needs the spine and the subjects before it: memory the spine alone, input what fed it besides, then
xla, device, ops, bounds, and last layers, source and python. That holds of what they find; a section may link
to any other. Nothing is computed before it is asked for, and nothing twice.
"""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.bounds.find import Bounds
from profnb.subjects.device.find import Devices
from profnb.subjects.input.find import Input
from profnb.subjects.layers.find import Layers
from profnb.subjects.memory.find import Memory
from profnb.subjects.ops.find import Ops
from profnb.subjects.python.python_time import Python
from profnb.subjects.source.find import Source
from profnb.subjects.xla.find import Xla


class Study(Spine):
    """One trace: its steps, as ``Spine`` has them, and what each subject finds."""

    recorded: "Study"

    @cached_property
    def input(self) -> Input:
        """The work of tf.data, and the training's waiting for it."""
        return Input(self)

    @cached_property
    def memory(self) -> Memory:
        """Memory that allocators held."""
        return Memory(self)

    @cached_property
    def xla(self) -> Xla:
        """Programs that XLA compiled and ran."""
        return Xla(self)

    @cached_property
    def device(self) -> Devices:
        """Work of the devices."""
        return Devices(self, self.xla, self.memory)

    @cached_property
    def ops(self) -> Ops:
        """Time by op."""
        return Ops(self, self.xla, self.input)

    @cached_property
    def bounds(self) -> Bounds:
        """Bounds of the ops."""
        return Bounds(self, self.xla, self.device, self.ops)

    @cached_property
    def layers(self) -> Layers:
        """Op time by layer."""
        return Layers(self, self.xla, self.ops, self.memory, self.bounds)

    @cached_property
    def source(self) -> Source:
        """Cost of each line of the user's source."""
        return Source(self, self.xla, self.ops)

    @cached_property
    def python(self) -> Python:
        """Python's own time."""
        return Python(self)
