"""Cells run as without the magic, through a real kernel: same outputs, names, errors, lines, order.

Every cell runs in two kernels: in one below a comment line, in the other below ``%%tfprofile -q``. What the
user sees must be equal. Behind them, the second kernel runs what shows reports and what is interrupted: to
start one and to import TensorFlow takes longer than all cells.
"""

import json
import re
import tempfile
from pathlib import Path

import pytest
from conftest import PATIENT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.kernel, pytest.mark.tensorflow]

SETUP = """
import os, warnings
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
warnings.filterwarnings("ignore")
names_before = set(globals())
"""
IMPORTS = """
import keras, numpy as np, tensorflow as tf
x = np.ones((64, 6), "float32"); y = np.zeros(64, "int64")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=8, verbose=0)
class Boom(keras.callbacks.Callback):
    def __init__(self, error): super().__init__(); self.error = error
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 5: raise self.error
tf.get_logger().setLevel("ERROR")
"""
BEFORE_TENSORFLOW = {
    "a cell without TensorFlow": "total = sum(range(10))\ntotal",
    "a cell that imports TensorFlow itself": "import tensorflow\nint(tensorflow.constant(3) + 4)",
    "a cell that fails to import": "import no_such_module_anywhere",
}
CELLS = {
    "the last value": "value = 1 + 1\nvalue",
    "a trailing semicolon": "value + 1;",
    "no value": "other = 3",
    "only a comment": "# nothing here",
    "an empty cell": "",
    "blank lines": "\n\n",
    "order of output": "from IPython.display import display, HTML\nprint('one')\ndisplay(HTML('<b>two</b>'))\nimport sys; print('three', file=sys.stderr)\n'four'",
    "the value before it": "_",
    "a value that is training": "len(model.fit(x, y, batch_size=8, verbose=0).history['loss'])",
    "an exception": "a = 1\nb = 2\n\ndef divide(p):\n    return p / 0\n\nprint('before')\ndivide(a)\nprint('after')",
    "an exception in step 5": "print('fitting')\nmodel.fit(x, y, batch_size=8, verbose=0, callbacks=[Boom(ValueError('step 5'))])",
    "an exception in train_on_batch": "model.train_on_batch(np.ones((8, 5), 'float32'), y[:8])",
    "an exception in a function": "@tf.function\ndef broken(t):\n    raise ValueError('in tracing')\nbroken(tf.ones(3))",
    "a keyboard interrupt": "for i in range(3):\n    if i == 2:\n        raise KeyboardInterrupt",
    "a signal": "import signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "an interrupt in training": "model.fit(x, y, batch_size=8, verbose=0, callbacks=[Boom(KeyboardInterrupt())])",
    "a syntax error": "a = 1\nb = = 2",
    "an indentation error": "if True:\npass",
    "top-level await": "import asyncio\nawait asyncio.sleep(0.01, result='awaited')",
    "nested time": "%%time\nq = 5\nq + 1",
    "nested capture": "%%capture captured\nprint('hidden')\n7",
    "what was captured": "captured.stdout",
    "line magics and shell": "lines = !echo shell\n%pwd\nlines",
    "an unknown magic": "%no_such_magic",
    "AutoGraph of a function in the cell": "@tf.function\ndef clip(t):\n    if tf.reduce_sum(t) > 1:\n        return t * 0\n    return t\nclip(tf.ones(3)).numpy().tolist()",
    "source of a function in the cell": "import inspect\ndef f():\n    return 'a'\ninspect.getsource(f)",
    "triple-quoted strings": "text = '''\n  a\n    b'''\ntext",
    "a percent sign in a string": "'''\n%%tfprofile\n'''",
    "where a line is": "import inspect\ninspect.currentframe().f_lineno",
    "a warning": "import warnings\nwarnings.warn('careful')",
    "a cell that runs a cell": "get_ipython().run_cell('inner = 5; inner')\ninner + 1",
    "a cell that profiles itself": "import tempfile\nfolder = tempfile.mkdtemp()\ntf.profiler.experimental.start(folder)\nz = tf.ones(3) + 1\ntf.profiler.experimental.stop()\nlen(__import__('glob').glob(folder + '/plugins/profile/*/*.xplane.pb'))",
    "stopping what never ran": "tf.profiler.experimental.stop()",
    "a session left running": "tf.profiler.experimental.start(folder + '/left')",
    "and stopped in the next cell": "tf.profiler.experimental.stop()\n'stopped'",
    "a capture inside": "import profnb\nwith profnb.profile() as inside:\n    model.fit(x, y, batch_size=8, verbose=0)\nlen(inside.steps)",
    "a system exit": "raise SystemExit('bye')",
    "names that are there": "sorted(n for n in set(globals()) - names_before if not re.match(r'_|inside|profnb|In$|Out$', n)) if 'names_before' in globals() else None",
}


def run(first_line, *more):
    """The outputs of every cell by its name, and the cells that run behind them, as they are then."""
    cells = ["import re", SETUP, "%load_ext profnb"]
    cells += [f"{first_line}\n{source}" for source in BEFORE_TENSORFLOW.values()]
    cells += [IMPORTS]
    for source in CELLS.values():  # another cell magic works only on a cell's first line
        alone = first_line == "# plain" and source.startswith("%%")
        cells.append(source if alone else f"{first_line}\n{source}")
    names = [None] * 3 + list(BEFORE_TENSORFLOW) + [None] + list(CELLS)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in (*cells, *more)])
    nbclient.NotebookClient(notebook, **PATIENT, allow_errors=True, kernel_name="python3").execute()
    outputs, behind = [cell.outputs for cell in notebook.cells[: len(cells)]], notebook.cells[len(cells) :]
    assert not any(o.output_type == "error" for n, out in zip(names, outputs, strict=True) if n is None for o in out)
    return {name: out for name, out in zip(names, outputs, strict=True) if name}, behind


@pytest.fixture(scope="module")
def plain():
    return run("# plain")[0]


@pytest.fixture(scope="module")
def second():
    """What the kernel of profiled cells ran: those, what shows reports, and what is interrupted."""
    again = ["%reload_ext profnb", IMPORTS]
    outputs, behind = run("%%tfprofile -q", "import profnb", IMPORTS, *SHOWN, *again, *INTERRUPTED)
    return outputs, without_slot(behind[2 : 2 + len(SHOWN)]), without_slot(behind[-len(INTERRUPTED) :])


@pytest.fixture(scope="module")
def profiled(second):
    return second[0]


@pytest.fixture(scope="module")
def shown(second):
    return second[1]


@pytest.fixture(scope="module")
def interrupted(second):
    return second[2]


NUMBERS = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?( [mnuµμ]?s)?")
OUR_LINE = re.compile(r"(?m)^((?:-+> )?\s*1 )%%tfprofile -q$")


def seen(outputs, *, without_numbers=False):
    """What a person sees of a cell, our own line shown as the comment it stands for."""
    rows = []
    for output in outputs:
        if output.output_type == "stream":
            rows.append((output.name, output.text))
        elif output.output_type == "error":
            text = "\n".join(output.traceback)
            text = re.sub(r"\x1b\[[0-9;]*m", "", text)
            rows.append(("error", output.ename, output.evalue, OUR_LINE.sub(r"\1# plain", text)))
        else:
            rows.append((output.output_type, dict(output.data)))
    text = repr(rows)
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"__autograph_generated_file\w+", "autograph", text)
    text = re.sub(r"(__inference_\w+?_|function_)\d+", r"\1#", text)
    text = re.sub(r"(/tmp/ipykernel_\d+/)?\d{6,}\.py", "cell.py", text)
    return NUMBERS.sub("#", text) if without_numbers else text


def merged(outputs):
    """Streams of one name in a row joined: the kernel may flush them at any point."""
    out = []
    for output in outputs:
        if output.output_type == "stream" and out and out[-1].get("name") == output.name:
            out[-1]["text"] += output.text
        else:
            out.append(output)
    return out


@pytest.mark.parametrize("name", [*BEFORE_TENSORFLOW, *CELLS])
def test_a_cell_runs_as_without_the_magic(plain, profiled, name):
    timed = name in ("nested time",)
    ours = [o for o in merged(profiled[name]) if not is_sentence(o)]
    assert seen(ours, without_numbers=timed) == seen(merged(plain[name]), without_numbers=timed)


def is_sentence(output):
    return output.output_type == "display_data" and 'class="profnb"' in output.data.get("text/html", "")


def test_something_was_compared(plain):
    assert plain["the last value"][0].data["text/plain"] == "2"
    assert plain["an exception"][-1].ename == "ZeroDivisionError"
    assert plain["an exception in step 5"][-1].ename == "ValueError"
    assert plain["a signal"][-1].ename == "KeyboardInterrupt"
    assert plain["top-level await"][-1].data["text/plain"] == "'awaited'"
    assert plain["a cell that profiles itself"][-1].data["text/plain"] == "1"


EMPTY = {"text/html": "", "text/plain": ""}


def without_slot(cells):
    """Cells without what stood there while they ran, which is empty, in front of all else."""
    for cell in cells:
        if cell.outputs and cell.outputs[0].get("data") == EMPTY:
            del cell.outputs[0]
        assert not any(output.get("data") == EMPTY for output in cell.outputs)
    return cells


TIMELINE_JSON = Path(tempfile.mkdtemp()) / "timeline.json"
FIT = "model.fit(x, y, batch_size=8, verbose=0)"
SHOWN = [
    f"%%tfprofile -o p --label 'my run'\nh = {FIT}\n'value'",
    f"%%tfprofile\n{FIT[:-1]}, callbacks=[Boom(ValueError('five'))])",
    "len(_tfprofile.steps), len(p.steps), p.options.label",
    "%%tfprofile -n many\n1",
    "%%tfprofile -o class\n1",
    "%%tfprofile -n 0\n1",
    "%%tfprofile?",
    "%tfprofile p",
    "%tfprofile /no/such/trace",
    f"%%tfprofile --no-live\n{FIT};",
    f"get_ipython().run_cell_magic('tfprofile', '-q -o q', 'h = {FIT}\\n1/0')",
    "len(q.steps)",
    "%%tfprofile -q\n" + FIT + ";\n",
    f"%%tftimeline -o t --json {TIMELINE_JSON}\nh = {FIT}\n'value'",
    f"%%tftimeline\n{FIT[:-1]}, callbacks=[Boom(ValueError('five'))])",
    "%tftimeline t",
    f"%tfprofile {TIMELINE_JSON} -o again",
    "len(again.steps), len(again.events) == len(t.events)",
    "%%tftimeline --no-live --json /no/such/folder/x.json\n" + FIT + ";",
    f"%%time\nget_ipython().run_cell_magic('tftimeline', '-q', 'h = {FIT}')",
    "%unload_ext profnb\nprofnb.profile",
    "%%tfprofile\n1",
    "%%tftimeline\n1",
]


def kinds(cell):
    def kind(output):
        if output.output_type != "display_data":
            return output.output_type
        return next((k for k in ("widget", "plotly", "javascript") if any(k in mime for mime in output.data)), "profnb")

    return [kind(output) for output in cell.outputs]


def steps_told(text):
    """How many steps a headline is of, with those that took so long that they stand aside, which on a busy machine may be several."""
    counted, aside = re.search(r"(\d+) train steps, median [^(\n]*(?:\((one|\d+) steps? of [^)]* aside\))?", text).groups()
    return int(counted) + (1 if aside == "one" else int(aside or 0))


def test_the_report_comes_under_the_value_with_chart_and_controls(shown):
    assert kinds(shown[0]) == ["execute_result", "profnb", "javascript", "widget"]
    assert steps_told(shown[0].outputs[1].data["text/plain"]) in (7, 8)


def test_after_an_exception_the_traceback_comes_once_and_then_the_report(shown):
    assert kinds(shown[1])[:2] == ["error", "profnb"]
    assert shown[1].outputs[0].ename == "ValueError"
    assert shown[2].outputs[0].data["text/plain"] == "(5, 8, 'my run')"


@pytest.mark.parametrize("index", [3, 4, 5])
def test_a_bad_option_is_one_line_and_the_cell_does_not_run(shown, index):
    assert shown[index].outputs[-1].output_type in ("error", "stream")
    text = "".join(o.get("text", "") + o.get("evalue", "") for o in shown[index].outputs)
    assert "UsageError" in text or shown[index].outputs[-1].get("ename") == "UsageError"
    assert "Traceback" not in text


def test_help_documents_the_options(shown):
    from profnb.magics import ProfnbMagics

    assert kinds(shown[6]) == []  # the pager has it; the cell does not run
    for option in ("--out", "--steps", "--warmup", "--seconds", "--logdir", "--no-live"):
        assert option in ProfnbMagics.tfprofile_cell.__doc__


def test_a_result_can_be_shown_again_and_a_missing_trace_is_one_line(shown):
    assert kinds(shown[7])[0] == "profnb"
    assert "No file or folder" in str(shown[8].outputs)


def test_controls_can_be_left_out(shown):
    assert kinds(shown[9]) == ["profnb", "javascript"]


def test_callers_that_bypass_the_transformer_get_the_same_and_the_cell_fails(shown):
    errors = [o for o in shown[10].outputs if o.output_type == "error" and o.traceback]
    assert [o.ename for o in errors] == ["ZeroDivisionError"]
    assert shown[11].outputs[0].data["text/plain"] == "8"


def test_quiet_shows_nothing(shown):
    assert shown[12].outputs == []


def test_a_timeline_comes_under_the_value_with_its_script_and_the_way_to_the_kernel(shown):
    assert kinds(shown[13]) == ["execute_result", "profnb", "javascript", "widget"]
    data = shown[13].outputs[1].data
    assert "profnb-timeline" in data["text/html"]
    assert re.search(r"events on \d+ threads and streams in .*, 8 steps", data["text/plain"])
    assert "█" in data["text/plain"]
    assert shown[13].outputs[3].data["text/plain"] == ""


def test_a_failed_cell_shows_its_error_and_then_the_timeline(shown):
    assert kinds(shown[14])[:2] == ["error", "profnb"]
    assert shown[14].outputs[0].ename == "ValueError"


def test_a_timeline_can_be_shown_again(shown):
    assert kinds(shown[15])[0] == "profnb"


def test_the_chrome_trace_is_written_and_opens_as_a_result(shown):
    assert json.loads(TIMELINE_JSON.read_text())["traceEvents"]
    assert kinds(shown[16])[0] == "profnb"
    assert shown[17].outputs[0].data["text/plain"] == "(8, True)"


def test_a_chrome_trace_that_cannot_be_written_is_one_sentence(shown):
    assert kinds(shown[18]) == ["profnb", "javascript", "profnb"]
    assert "The Chrome trace was not written: " in shown[18].outputs[2].data["text/plain"]


def test_unloading_takes_the_magics_away(shown):
    assert "not found" in str(shown[21].outputs)
    assert "not found" in str(shown[22].outputs)


INTERRUPTS = """
import signal
from profnb.capture.session import Capture
from profnb.capture.profiler.window import Window
from profnb.profile import Profile

def interrupt_at(owner, name, *, after=False):
    original = getattr(owner, name)
    def interrupted(*arguments, **keywords):
        setattr(owner, name, original)
        if not after:
            signal.raise_signal(signal.SIGINT)
        value = original(*arguments, **keywords)
        if after:
            signal.raise_signal(signal.SIGINT)
        return value
    setattr(owner, name, interrupted)
"""


INTERRUPTED = [
    INTERRUPTS,
    "interrupt_at(Window, '_set_timer')",
    f"%%tfprofile --no-live\nran = True\n{FIT};",
    "'ran' in globals(), Window._set_timer.__name__, len(_tfprofile.recording.steps)",
    f"%%tfprofile --no-live -o after_start\n{FIT};",
    "len(after_start.steps), [n for n in after_start.notes if 'still running' in n]",
    "interrupt_at(Capture, 'finish')",
    f"%%tfprofile --no-live\n{FIT};",
    "interrupt_at(Capture, 'finish', after=True)",
    f"%%tfprofile --no-live\n{FIT};",
    "interrupt_at(Profile, 'report')",
    f"%%tfprofile --no-live\n{FIT};",
    "%tfprofile _tfprofile --no-live",
    "interrupt_at(Profile, 'report', after=True)",
    f"%%tfprofile --no-live\n{FIT};",
    f"%%tfprofile --no-live -o last\n{FIT};",
    "len(last.steps)",
    "get_ipython = 'a name of mine'\nprint('bound')",
    f"%%tfprofile --no-live -o shadowed\n{FIT};",
    "get_ipython, len(shadowed.steps), [t[0] for t in shadowed.recording.source.texts.values() if 'shadowed' in t[0]]",
    "%%tfprofile --no-live\n%%capture\nprint('hidden')",
    "from IPython import get_ipython",
    f"%%tfprofile --no-live -o back\n{FIT};",
    "len(back.steps)",
]


def test_an_interrupt_while_the_profiler_starts_is_shown_once_and_the_cell_does_not_run(interrupted):
    errors = [o.ename for o in interrupted[2].outputs if o.output_type == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert interrupted[3].outputs[0].data["text/plain"] == "(False, '_set_timer', 0)"
    assert interrupted[5].outputs[0].data["text/plain"] == "(8, [])"


@pytest.mark.parametrize("cell", [7, 9, 11, 14])
def test_an_interrupt_after_the_cell_costs_the_report_at_most_and_that_is_said(interrupted, cell):
    assert "Error in callback" not in str(interrupted[cell].outputs)
    assert kinds(interrupted[cell])[-1] == "profnb"
    said = interrupted[cell].outputs[-1].data["text/plain"]
    assert said.startswith("Interrupted while the result was being shown")
    assert kinds(interrupted[12])[:2] == ["profnb", "javascript"]
    assert interrupted[16].outputs[0].data["text/plain"] == "8"


def test_a_variable_that_hides_ipythons_own_name_does_not_fail_the_cell(interrupted):
    assert kinds(interrupted[18])[0] == "profnb"
    assert interrupted[19].outputs[0].data["text/plain"] == "('a name of mine', 8, ['%%tfprofile --no-live -o shadowed'])"
    assert "error" not in kinds(interrupted[20])
    assert interrupted[23].outputs[0].data["text/plain"] == "8"


TERMINAL = """
%load_ext profnb
import keras, numpy as np
x = np.ones((64, 6), "float32"); y = np.zeros(64, "int64")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
get_ipython().run_cell("%%tfprofile\\nmodel.fit(x, y, batch_size=8, verbose=0);")
"""


@pytest.mark.long
def test_a_terminal_is_given_plain_text(tmp_path):
    import os
    import subprocess
    import sys

    script = tmp_path / "session.ipy"
    script.write_text(TERMINAL)
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "IPYTHONDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", str(script)], env=env, capture_output=True, text=True)
    assert steps_told(run.stdout) in (6, 7)
    assert "Mean step\nhost compute" in run.stdout
    assert "<div" not in run.stdout
