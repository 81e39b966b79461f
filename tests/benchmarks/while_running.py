"""What is shown and looked at while a cell runs, as shares of the cell's wall time: `python tests/benchmarks/while_running.py`.

A kernel runs twenty seconds of small steps under the magic; the two threads tell how much of a processor they took.
"""

import nbclient
import nbformat

CELLS = [
    """
%load_ext profnb
import time
import tensorflow as tf
from profnb.capture.machine.machine_watch import MachineWatch
from profnb.report.progress import LiveLine
made = {}
for kind in (LiveLine, MachineWatch):
    def remember(self, *arguments, _begin=kind.__init__, **keywords):
        made[type(self).__name__] = self
        _begin(self, *arguments, **keywords)
    kind.__init__ = remember
double = tf.function(lambda x: 2 * x)
x = tf.ones(10)
""",
    """%%tfprofile -n 50
end = time.perf_counter() + 20
while time.perf_counter() < end: double(x)
""",
    """
wall_s = _tfprofile.recording.wall_ns / 1e9
for name, one in made.items():
    print(f"{name}: {100 * one.took_s / wall_s:.3f} % of {wall_s:.1f} s")
""",
]

if __name__ == "__main__":
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
    print(notebook.cells[-1].outputs[0].text, end="")
