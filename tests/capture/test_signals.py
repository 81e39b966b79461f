"""Signals that come while code of ours runs: what their handlers raise reaches the user's code, and only once."""

import contextlib
import functools
import gc
import signal
import sys
import threading
import weakref
from types import CodeType

import pytest

from profnb.capture import hooks
from profnb.capture.hooks import watch
from profnb.capture.signals import interrupt_held_back
from profnb.capture.signals import _Holding, OwnFaults, signal_of


def interrupt_self(*_):
    signal.raise_signal(signal.SIGINT)


class Machine:
    def step(self):
        return 5


class Enough(BaseException):
    """What a handler of the user's own may raise, too."""


@pytest.fixture
def handle():
    """Sets handlers of signals, which are put back."""
    before = {}

    def set_handler(number, handler):
        before.setdefault(number, signal.signal(number, handler))

    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_in_the_hook_after_a_call_reaches_the_code_that_called():
    """And only once; the traceback ends in our hook, as an interrupt's does wherever it comes."""
    lines, failed = [], []
    with watch(Machine, "step", after=interrupt_self, hook_failed=failed.append):
        with pytest.raises(KeyboardInterrupt) as caught:
            value = Machine().step()
            lines.append(value)  # not reached
            lines.append("went on")
        lines.append("once")
    assert (lines, failed) == (["once"], [])
    assert [entry.name for entry in caught.traceback][0] == "test_an_interrupt_in_the_hook_after_a_call_reaches_the_code_that_called"


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_the_handler_of_a_signal_raises_in_a_hook_reaches_the_code(handle, when):
    """A time limit of the code's own, by SIGALRM for instance, that comes while a hook runs; a fault of ours does not."""

    def late(*_):
        raise TimeoutError("mine")

    def comes(_):
        if sent:
            raise TimeoutError("ours")
        sent.append(when)
        with OwnFaults():
            raise ValueError("ours, too")
        with OwnFaults():
            signal.raise_signal(signal.SIGUSR1)

    sent, lines, failed = [], [], []
    handle(signal.SIGUSR1, late)
    with watch(Machine, "step", **{when: comes}, hook_failed=failed.append):
        with pytest.raises(TimeoutError, match="mine"):
            lines.append(Machine().step())
            lines.append("went on")
        lines.append(Machine().step())
    assert lines == [5]
    assert [str(error) for error in failed] == ["ours"]


def test_an_interrupt_anywhere_around_a_watched_call_is_the_codes_and_nothing_is_printed(monkeypatch):
    """At each of our instructions once."""

    def trace(frame, kind, _):
        frame.f_trace_opcodes = True
        if kind == "opcode" and frame.f_code in code:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    code = {one for made in (hooks._around, hooks.guarded) for one in made.__code__.co_consts if isinstance(one, CodeType)}
    ignored, failed, interrupts = [], [], 0
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    before_tracing = sys.gettrace()
    with watch(Machine, "step", before=lambda _: None, after=lambda _: None, hook_failed=failed.append):
        for at in range(1, 1000):
            left = [at]
            sys.settrace(trace)
            try:
                value = Machine().step()
            except KeyboardInterrupt:
                interrupts += 1
                continue
            finally:
                sys.settrace(before_tracing)
            if left[0] > 0:  # there were fewer
                break
        assert value == Machine().step() == 5
    assert interrupts > 20
    assert (ignored, failed) == ([], [])


def test_without_an_interrupt_no_hook_sends_one():
    with watch(Machine, "step", after=lambda _: None, hook_failed=raises):
        assert [Machine().step() for _ in range(1000)] == [5] * 1000


# Whose handler it was.


def raises(_, __):
    raise TimeoutError


class Limit:
    def over(self, number, frame):
        raise TimeoutError

    def __call__(self, *given):
        raise TimeoutError


@pytest.mark.parametrize(
    "handler",
    [raises, Limit().over, Limit(), functools.partial(lambda limit, number, frame: raises(number, frame), 5), lambda *_: raises(*_)],
    ids=["function", "method", "object", "partial", "star"],
)
def test_the_signal_of_what_a_handler_raised_is_told(handle, handler):
    handle(signal.SIGUSR1, handler)
    with pytest.raises(TimeoutError) as caught:
        signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it may be set back before anybody asks
    assert signal_of(caught.value) == signal.SIGUSR1


def deletes(number, frame):
    del number, frame
    raise TimeoutError


class Deletes:
    def __call__(self, number, frame):
        deletes(number, frame)


def rebinds(_, frame):
    while frame is not None:
        frame = frame.f_back
    raise TimeoutError


@pytest.mark.parametrize("handler", [deletes, Deletes(), functools.partial(lambda _, *given: rebinds(*given), 5), rebinds])
def test_a_handler_that_lost_its_arguments_is_known_by_its_code(handle, handler):
    def comes(_):
        signal.raise_signal(signal.SIGUSR1)

    failed = []
    handle(signal.SIGUSR1, handler)
    with watch(Machine, "step", before=comes, hook_failed=failed.append), pytest.raises(TimeoutError):
        Machine().step()
    assert failed == []


def test_what_no_handler_raised_is_of_no_signal():
    def looks_alike(number, frame):
        raise TimeoutError(number, frame)

    with pytest.raises(TimeoutError) as caught:
        looks_alike(signal.SIGUSR1, None)
    assert signal_of(caught.value) is None
    assert signal_of(ValueError("never raised")) is None


def test_the_signal_is_told_of_a_handler_that_was_held_back(handle):
    """A window that closes after its steps, in a hook: the code's time limit comes meanwhile."""

    def closes(_):
        with interrupt_held_back():
            signal.raise_signal(signal.SIGUSR1)

    failed = []
    handle(signal.SIGUSR1, raises)
    with watch(Machine, "step", after=closes, hook_failed=failed.append), pytest.raises(TimeoutError):
        Machine().step()
        gc.isenabled()  # Python asks for signals once a call
    assert failed == []


# What passes through a hook.


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, SystemExit, Enough])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_handler_of_the_codes_own_is_called_once_for_a_signal(handle, number, error):
    called = []

    def polite(*_):
        called.append(number)
        raise error(len(called))

    sent, failed = [number], []
    handle(number, polite)
    with watch(Machine, "step", after=lambda _: sent and signal.raise_signal(sent.pop()), hook_failed=failed.append):
        with pytest.raises(error, match="1"):
            Machine().step()
        assert called == [number]
        assert signal.getsignal(number) is polite
        with pytest.raises(error, match="2"):
            signal.raise_signal(number)
    assert failed == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_method_watched_twice_hands_an_interrupt_on_to_the_code(which):
    """What would have run behind it does not: the capture ends there."""
    both = [interrupt_self, lambda _: seen.append("the other's")]
    seen, failed = [], []
    with watch(Machine, "step", after=both[which], hook_failed=failed.append), watch(Machine, "step", after=both[1 - which], hook_failed=failed.append):
        with pytest.raises(KeyboardInterrupt):
            Machine().step()
    assert seen == ["the other's"] * which
    assert failed == []


@pytest.mark.parametrize("when", ["before", "after", "came"])
def test_what_a_hook_raises_that_is_no_error_passes_through_on_any_thread(when):
    """SystemExit, say: nobody's fault, and the code's to see. An error is a fault of ours, of which the code sees nothing."""

    def fails(*_):
        raise Enough if threading.current_thread() is thread else ValueError("ours")

    def run():
        with pytest.raises(Enough):
            Machine().step()
        seen.append("it")

    seen, failed = [], []
    thread = threading.Thread(target=run)
    with watch(Machine, "step", **{when: fails}, hook_failed=failed.append):
        thread.start()
        thread.join()
        assert Machine().step() == 5
    assert seen == ["it"]
    assert [str(error) for error in failed] == ["ours"]


# Held back.


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, SystemExit, Enough])
def test_each_signal_that_python_handles_waits_for_the_end_of_the_outermost_block(handle, error):
    def ends(*_):
        raise error

    done = []
    handle(signal.SIGUSR1, ends)
    with pytest.raises(error):
        with interrupt_held_back():
            with interrupt_held_back():
                signal.raise_signal(signal.SIGUSR1)
                done.append("inside")
            done.append("outside")
        done.append("went on")
    assert done == ["inside", "outside"]
    assert signal.getsignal(signal.SIGUSR1) is ends


def test_of_several_signals_each_handler_is_called_whatever_the_others_raise(handle):
    called = []

    def ends(number, _):
        called.append(number)
        raise TimeoutError

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        handle(number, ends)
    with pytest.raises(TimeoutError), interrupt_held_back():
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            signal.raise_signal(number)
    assert sorted(called) == [signal.SIGUSR1, signal.SIGUSR2]


def test_all_handlers_are_back_before_one_is_called(handle):
    seen = []
    handle(signal.SIGUSR1, lambda *_: seen.append(signal.getsignal(signal.SIGUSR2)))
    handle(signal.SIGUSR2, lambda *_: seen.append(signal.getsignal(signal.SIGUSR1)))
    with interrupt_held_back():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
    assert set(seen) == {signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)}


def test_a_handler_that_could_not_be_put_back_is_reached_all_the_same(handle, monkeypatch):
    """A time limit that comes between two of them being put back."""
    called = []

    def ends(number, _):
        called.append(number)
        raise TimeoutError

    def fails_once(self, number):
        monkeypatch.undo()
        raise TimeoutError(number)

    handle(signal.SIGUSR1, ends)
    monkeypatch.setattr(_Holding, "_put_back", fails_once)
    with pytest.raises(TimeoutError), interrupt_held_back():
        pass
    assert signal.getsignal(signal.SIGUSR1) is not ends
    with pytest.raises(TimeoutError):
        signal.raise_signal(signal.SIGUSR1)
    assert called == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is ends
    for _ in range(2):
        with interrupt_held_back():
            pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("where", ["held back", "in a hook"])
def test_what_the_code_held_goes_with_what_was_raised(handle, where):
    """Without the garbage collector: it may be all of a device's memory."""

    def comes(_):
        if where == "held back":
            with interrupt_held_back():
                signal.raise_signal(signal.SIGUSR1)
        else:
            signal.raise_signal(signal.SIGUSR1)

    class Big:
        pass

    def work():
        big = Big()
        gone.append(weakref.ref(big))
        with contextlib.suppress(TimeoutError):
            Machine().step()
            gc.isenabled()

    gone, failed = [], []
    handle(signal.SIGUSR1, raises)
    gc.collect()
    gc.disable()
    try:
        for hook in ("before", "after"):
            with watch(Machine, "step", **{hook: comes}, hook_failed=failed.append):
                work()
        assert [at() for at in gone] == [None, None]
        assert failed == []
    finally:
        gc.enable()


def test_a_handler_that_is_set_inside_stays(handle):
    handle(signal.SIGUSR1, raises)
    with interrupt_held_back():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


@pytest.fixture
def cells(capsys):
    """A shell, and what it said."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns["wait"] = threading.Event().wait
    yield shell, lambda: "".join(capsys.readouterr())


@pytest.mark.parametrize("handler", [signal.default_int_handler, None])
def test_a_signal_that_comes_in_a_callback_before_a_cell_comes_in_the_cell(cells, handler):
    from profnb.drawing.live_outputs import LiveOutputs

    shell, said = cells
    number = signal.SIGINT if handler else signal.SIGALRM
    raised = KeyboardInterrupt if handler else TimeoutError
    heard = []

    def time_is_up(*_):
        heard.append(1)
        raise TimeoutError

    before = signal.signal(number, handler or time_is_up)
    outputs = LiveOutputs(shell)
    try:
        shell.run_cell("1", cell_id="a")
        outputs.keep(lambda: signal.raise_signal(number))
        result = shell.run_cell("while True: wait(0.01)", cell_id="a")
    finally:
        outputs.end()
        signal.signal(number, before)
    assert isinstance(result.error_in_exec, raised)
    assert "Error in callback" not in said()
    assert len(heard) == (0 if handler else 1)


def test_an_error_in_such_a_callback_is_an_error(cells):
    from profnb.drawing.live_outputs import LiveOutputs

    shell, said = cells
    outputs = LiveOutputs(shell)
    shell.run_cell("1", cell_id="a")
    outputs.keep(lambda: 1 / 0)
    assert shell.run_cell("2", cell_id="a").success
    assert "ZeroDivisionError" in said()
    outputs.end()


@pytest.mark.parametrize("at", range(0, 150, 5))
def test_an_interrupt_after_the_cell_is_no_error_of_a_callback_and_its_end_is_told_once(cells, at):
    """Wherever it comes once the callback has begun."""
    from profnb.capture import cell
    from profnb.capture.cell import call_after_cell

    shell, said = cells
    ends, left = [], [at]

    def trace(frame, event, _):
        if frame.f_code.co_name == "cell_ended" or (frame.f_back and frame.f_code.co_filename in (cell.__file__, sys.modules["profnb.capture.seams"].__file__, sys.modules["profnb.capture.signals"].__file__)):
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    signal.raise_signal(signal.SIGINT)
            return trace
        return None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    shell.user_ns["begin"] = lambda: (call_after_cell(shell, lambda *end: ends.append(end)), sys.settrace(trace))
    try:
        shell.run_cell("begin();")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    assert ends == [("begin();", True, None)]
    assert "Error in callback" not in said()
    assert not any("cell_ended" in str(one) for one in shell.events.callbacks["post_run_cell"])
