"""A program whose steps are counted, to be killed while it is captured: ``dying.py [fork | child | nested]``.

Of each step it says, by its own clock, when it ended.
"""

import os
import signal
import sys
import time

from profnb.capture.session import Capture
from profnb.capture.step_records import CALL, KINDS
from profnb.core.options import CaptureOptions


def take_steps(capture: Capture, how: str) -> None:
    log = capture.recorder.log
    while True:
        begin = time.perf_counter_ns()
        time.sleep(0.001)
        if how == "nested":  # inside of each step one, which goes as it ends
            log.end_step(len(log), begin, time.perf_counter_ns(), "inner", KINDS.index(CALL), 0, 0, 1, 0, 0)
            time.sleep(0.001)
            log.end_step(len(log) - 1, begin, time.perf_counter_ns(), "outer", KINDS.index(CALL), 0, 0, 1, 0, 0)
        else:
            log.end_step(len(log), begin, time.perf_counter_ns(), "train", KINDS.index(CALL), 0, 0, 1, 0, 0)
        os.write(1, b"%d %d\n" % (len(log), time.perf_counter_ns()))


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    capture = Capture(CaptureOptions(), traces=False)
    capture.start()
    if how == "fork" and not os.fork():
        capture.finish()
        capture.journal.remove()
        os._exit(0)
    if how == "child" and not os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    take_steps(capture, how)


if __name__ == "__main__":
    main()
