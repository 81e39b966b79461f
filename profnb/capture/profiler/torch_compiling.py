"""Hooks that ``torch.compile`` does not see: it compiles the user's code and not ours.

It reads a function's bytecode and follows every call, so a hook around a call would be compiled with it, cut
the program into pieces, and have it compiled anew when the hook goes. So while it reads, what we replaced is
as it was, and frames of ours that run between its pieces are none that it looks at.

Source: PyTorch's torch/_dynamo/callback.py and convert_frame.py (2.2 to 2.15).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from profnb.capture.hooks import put_again, put_aside
from profnb.capture.seams import TORCH_COMPILE_CALLBACKS, TORCH_SKIPS


@contextmanager
def unseen_by_torch_compile() -> Iterator[None]:
    """Put all hooks aside whenever ``torch.compile`` compiles, inside the block."""
    callbacks, skip = [seam.find() for seam in TORCH_COMPILE_CALLBACKS], TORCH_SKIPS.find()
    if skip is not None:
        _skip_profnb(skip)
    with ExitStack() as stack:
        if None not in callbacks:
            begin, begin_no_more, end, end_no_more = callbacks
            begin(put_aside)
            stack.callback(begin_no_more, put_aside)
            end(put_again)
            stack.callback(end_no_more, put_again)
        yield


@cache
def _skip_profnb(skip: Callable[[str], object]) -> None:
    skip("profnb")
