"""XLA's part of a trace: its modules (programs), its ops, their costs."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.xla.hlo_ops import HloOps, find_hlo_ops
from profnb.subjects.xla.xla_ops import XlaModules, XlaOps, tabulate_xla, tabulate_xla_modules


class Xla:
    """XLA's part of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine) -> None:
        """Nothing is computed yet."""
        self._spine = spine

    @cached_property
    def hlo(self) -> HloOps:
        """The events that ran HLO instructions, and the modules those belong to."""
        return find_hlo_ops(self._spine.trace)

    @cached_property
    def ops(self) -> XlaOps:
        """The HLO instructions of the whole capture."""
        return tabulate_xla(self._spine.trace, self.hlo)

    @cached_property
    def modules(self) -> XlaModules:
        """The modules that were compiled or ran."""
        return tabulate_xla_modules(self._spine.trace, self.hlo, self.ops)
