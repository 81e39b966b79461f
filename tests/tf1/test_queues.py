"""Queues of TensorFlow 1: what each held, when steps found it empty, and what limits it."""

import contextlib
import threading
import time
from array import array
from dataclasses import fields, replace

import numpy as np
import pytest

import profnb
from profnb.capture.recording import Recording
from profnb.capture.recording import GapRecords, QueueRecord, SessionRecords
from profnb.report.notes import notes_of
from profnb.subjects.input.pipeline import BUFFERS
from profnb.subjects.input.section import input_sections
from profnb.subjects.study import Study

from advised import advised
from traces import event, host, line, read

MS, NS = 1_000_000_000, 1_000_000
EPOCH_NS = 1_700_000_000_000_000_000
CLOCK_NS = 5_000_000_000  # what the clock of what is put in says as the trace begins
STEPS = 10


def study(take_ms, puts_ms, *, run_ms=19, taken=2, op="take:QueueDequeueManyV2", begins=None, threads=None, **facts):
    """Ten runs of 20 ms, each beginning with a dequeuing op; elements come at the given times."""
    runs = [event("session_run", row * 20 * MS, run_ms * MS, step_num=row, _r=1) for row in range(STEPS)]
    ops = [event(op, row * 20 * MS, int(take_ms * MS)) for row in range(STEPS)]
    ops += [event("m:MatMul", row * 20 * MS + int(take_ms * MS), MS) for row in range(STEPS)]
    trace = replace(read(host(line("python", *runs), line("ops", *ops, line_id=2))), epoch_ns=EPOCH_NS)
    end = array("q", [CLOCK_NS + int(at * NS) for at in puts_ms])
    begin = array("q", [CLOCK_NS + int(at * NS) for at in begins]) if begins else array("q", [CLOCK_NS, *end[:-1]])
    defaults = {"name": "q", "op_type": "FIFOQueueV2", "capacity": 6, "sources": ("PyFunc",)}
    queue = QueueRecord(
        **defaults | {"dequeues": {op.partition(":")[0]: taken}, "enqueues": {"put": 1}} | facts,
        begin_ns=begin, end_ns=end, elements=array("i", [1] * len(end)), thread=array("i", threads or [0] * len(end)),
    )  # fmt: skip
    return Study(trace, recording=Recording(sessions=SessionRecords(EPOCH_NS - CLOCK_NS, queues=[queue]), graph_versions=[3] * STEPS))


SLOW = [20 * row + at for row in range(STEPS) for at in (5, 15)]  # the second one ends the wait, which takes 15 ms


def test_a_queue_that_keeps_steps_waiting_was_empty_and_its_filling_is_the_limit():
    starved = study(15, SLOW)
    (use,) = starved.input.queues
    assert (use.dequeued, use.found_empty, use.threads) == (10, 10, 1)
    assert use.steps_empty == starved.summary.counted.size
    assert use.busy_fraction == pytest.approx(1.0)
    assert use.made_per_second == pytest.approx(20 / 0.195, rel=0.01)
    frame = BUFFERS.frame(starved.input.buffer_samples)
    assert set(frame.iterator) == {"q"}
    assert set(frame.capacity) == {6} and set(frame.min_after_dequeue) == {0}
    assert frame[frame.is_empty].time_ms.tolist() == [20.0 * row for row in range(STEPS)]
    assert frame.buffered_elements.tolist() == [0] * len(frame)
    advice, *_ = advised(starved).values()
    assert advice.rule == "python-input"
    assert "steps found too few elements in queue q. 1 thread adds 103 elements a second by put" in advice.evidence
    assert "Each element runs a Python function (PyFunc). Filling takes 100.0 % of the time" in advice.evidence
    assert advice.bound_fraction == pytest.approx(0.75, abs=0.05)
    assert "waiting-for-input" not in advised(starved)
    assert not any("tf.data iterator" in note for note in notes_of(starved))


def test_a_shuffling_queue_keeps_its_share_and_is_empty_above_it():
    use = study(15, SLOW, op_type="RandomShuffleQueueV2", min_after_dequeue=3).input.queues[0]
    assert use.held[use.is_empty].tolist() == [3] * 10
    frame = BUFFERS.frame(study(15, SLOW, min_after_dequeue=3).input.buffer_samples)
    assert set(frame.min_after_dequeue) == {3}


def test_a_full_queue_limits_nothing():
    full = [20 * row + at for row in range(STEPS) for at in (0.2, 0.3)]
    use = study(0.1, full).input.queues[0]
    assert use.found_empty == use.steps_empty == 0
    begins = np.isin(use.time_ps, [20 * MS * row for row in range(1, STEPS)])
    assert use.held[begins].tolist() == [6] * 9
    assert use.held.min() == 4  # as two were taken
    assert not {"input-bound", "python-input", "waiting-for-input"} & set(advised(study(0.1, full)))


def test_what_a_queue_held_that_never_was_empty_nor_full_is_not_known():
    resting = [20 * row + at for row in range(STEPS) for at in (0.2, 0.3)]
    begins = [at - 0.05 for at in resting]  # its threads pause in between
    frame = BUFFERS.frame(study(0.1, resting, begins=begins).input.buffer_samples)
    assert frame.buffered_elements.isna().all()
    assert not frame.is_empty.any()
    frame = BUFFERS.frame(study(15, SLOW, taken=0).input.buffer_samples)  # how many it takes is not known
    assert frame.buffered_elements.tolist() == [0] * 10  # but it was empty
    assert frame.is_empty.all()


@pytest.mark.parametrize(
    ("sources", "begins", "rule", "words"),
    [
        (("DecodeJpeg", "ReaderReadV2"), None, "input-bound", "DecodeJpeg"), (("ReaderReadV2",), None, "input-bound", "ReaderReadV2"),
        (("RandomUniform",), None, "input-bound", "ms each. Filling"), (("PyFunc",), [at - 1 for at in SLOW], "input-bound", "10.3 % of the time"),
    ],
)  # fmt: skip
def test_the_cause_is_in_what_fills_it(sources, begins, rule, words):
    advice, *_ = advised(study(15, SLOW, sources=sources, begins=begins)).values()
    assert advice.rule == rule
    assert words in advice.evidence
    assert ("PyFunc" in advice.evidence) is False


def test_files_that_are_read_whole_are_counted_and_measured():
    made = study(15, SLOW, sources=("ReaderReadV2", "WholeFileReaderV2"))
    made.recording.sessions.queues.append(QueueRecord("names", "FIFOQueueV2", files=600, file_bytes=128))
    advice, *_ = advised(made).values()
    assert "Each element runs ReaderReadV2, one file for each element, 600 files of 128 B on average. Filling" in advice.evidence
    assert "TFRecords" in advice.code


def test_a_queue_that_keeps_up_is_no_input_of_unknown_making():
    use = study(2, [20 * row + at for row in range(STEPS) for at in (8, 9)])
    assert use.input.queues[0].found_empty == 0
    assert "waiting-for-input" not in advised(use)


def test_a_queue_of_another_program_is_none_of_these():
    assert study(15, SLOW, dequeues={"other": 2}).input.queues == []
    assert input_sections(study(15, SLOW, dequeues={"other": 2})) == []


def test_the_chart_marks_the_steps_that_waited():
    (section,) = input_sections(study(15, SLOW, min_after_dequeue=2))
    held, marks, kept = section.figure["data"]
    assert marks["x"] == [20.0 * row for row in range(STEPS)]
    assert kept["y"] == [2, 2]
    assert section.rows[0] == ("q", "6", "2", "2.0", "10 of 10 times", "1", "9.75 ms", "100.0 %")


def test_a_large_share_kept_back_is_said_and_so_is_a_long_first_filling():
    notes = notes_of(study(15, SLOW, min_after_dequeue=5000, element_bytes=600_000))
    assert any("5,000 elements of 600 kB: 3.00 GB of memory" in note for note in notes)
    assert not any("of memory" in note for note in notes_of(study(15, SLOW, min_after_dequeue=5, element_bytes=600_000)))


@pytest.mark.parametrize("op", ["stage:Unstage", "r:ReaderReadV2", "r:ReaderReadUpToV2", "q:QueueDequeueV2"])
def test_taking_staged_or_read_elements_is_input(op):
    waits = study(15, [], op=op, dequeues={})
    shares = {share.category: share.fraction for share in waits.summary.shares}
    assert shares["input"] == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("cores", "gap_ms", "sources", "is_said"),
    [("1", 0.1, ("PyFunc",), True), ("2", 0.1, ("PyFunc",), False), ("1", 4, ("PyFunc",), False), ("1", 0.1, ("DecodeJpeg",), False)],
)  # fmt: skip
def test_runs_that_wait_for_a_thread_held_by_python_are_said(cores, gap_ms, sources, is_said):
    made = study(15, SLOW, run_ms=16, sources=sources)
    made.recording.environment["CPU cores"] = cores
    made.recording.sessions.gaps = GapRecords(STEPS, gaps=STEPS - 1, gap_ns=int((STEPS - 1) * gap_ms * NS))
    notes = [note for note in notes_of(made) if "inside of Session.run" in note]
    assert len(notes) == is_said
    if is_said:
        assert notes[0].startswith("Each step spends 3.50 ms inside of Session.run")
        assert "1 threads" not in notes[0]


# Real queues.


def kept_waiting(record, threads):
    """What is known of a real queue, in ten made runs that wait 15 ms for their elements; its threads do nothing but put them in."""
    (taken,) = record.dequeues.values()
    puts = [20 * row + 15 * (at + 1) / taken for row in range(STEPS) for at in range(taken)]
    begins = [0] * threads + puts[:-threads]
    times = {"begin_ns", "end_ns", "elements", "thread"}
    facts = {field.name: getattr(record, field.name) for field in fields(record) if field.name not in times}
    return study(15, puts, begins=begins, threads=[at % threads for at in range(len(puts))], **facts)


class Asked:
    """Elements that a step has asked for: each is made a while later, however long what comes before the step took."""

    def __init__(self, elements=0):
        self._elements = threading.Semaphore(elements)

    def ask(self, elements):
        self._elements.release(elements)

    def wait(self):
        self._elements.acquire()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("begins_first", [True, False], ids=["runners run already", "runners begin in the cell"])
def test_a_queue_that_python_fills_slowly(begins_first):
    """Four elements, and four more for each run, which the queue's two threads make two by two."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1

    asked = Asked(4)  # what is left after a dequeue
    together = threading.Barrier(2)

    def slow():
        asked.wait()
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait()
        return np.ones(4, np.float32)

    with tf.Graph().as_default() as graph:
        item = v1.py_func(slow, [], tf.float32)
        item.set_shape([4])
        queue = tf.queue.RandomShuffleQueue(32, 4, [tf.float32], [[4]], name="slowly")
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(item, name="put")] * 2))
        with tf.control_dependencies([v1.py_func(lambda: asked.ask(4), [], [])]):
            total = tf.reduce_sum(queue.dequeue_many(4, name="take"))
        kept = v1.Session._call_tf_sessionrun
        # Threads of its own, as some of them wait in Python for what others ask.
        own = v1.ConfigProto(inter_op_parallelism_threads=8, use_per_session_threads=True)
        with v1.Session(graph=graph, config=own) as session:
            stop = v1.train.Coordinator()
            profile = profnb.profile(max_seconds=300)
            if begins_first:
                threads = v1.train.start_queue_runners(session, stop)
            wall_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
            with profile as p:
                if not begins_first:
                    threads = v1.train.start_queue_runners(session, stop)
                for _ in range(10):
                    assert session.run(total) == 16
            least_ns, most_ns = wall_ns - time.perf_counter_ns(), time.time_ns() - clock_ns
            stop.request_stop()
            together.abort()
            asked.ask(100)
            stop.join(threads)
    assert v1.Session._call_tf_sessionrun is kept
    assert least_ns <= p.recording.sessions.epoch_ns <= most_ns
    (record,) = p.recording.sessions.queues
    assert (record.name, record.capacity, record.min_after_dequeue) == ("slowly", 32, 4)
    assert (record.element_bytes, record.dequeues, record.enqueues) == (16, {"take": 4}, {"put": 1})
    assert "PyFunc" in record.sources
    # The last of each thread may end too late, the first four and those that each thread is at as the cell begins began too early.
    assert 44 - 2 - (6 if begins_first else 0) <= len(record.end_ns) <= 44
    assert set(record.thread) == {0, 1} and set(record.elements) == {1}
    assert np.subtract(record.end_ns, record.begin_ns).min() >= 20 * NS
    (use,) = p.study.input.queues
    assert use.dequeued == 10 and use.steps_empty <= use.found_empty
    assert not ((use.held < 0) | (use.held > 32)).any()
    assert p.buffers.is_empty.sum() == use.found_empty
    starved = kept_waiting(record, threads=2)
    (use,) = starved.input.queues
    assert (use.dequeued, use.found_empty, use.steps_empty, use.threads) == (10, 10, starved.summary.counted.size, 2)
    assert use.enqueue_ps >= 7 * MS and use.held[use.is_empty].tolist() == [4] * 10
    advice, *_ = advised(starved).values()
    assert advice.rule == "python-input"
    assert "10 of 10 steps found too few elements in queue slowly" in advice.evidence and "2 threads add" in advice.evidence
    assert "Each element runs a Python function (PyFunc)" in advice.evidence


@pytest.mark.slow
@pytest.mark.tensorflow
def test_threads_of_the_code_that_feed_a_queue_are_seen():
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        value = v1.placeholder(tf.float32, [], name="value")
        queue = tf.queue.FIFOQueue(8, [tf.float32], [[]], name="fed")
        asked = Asked()
        put = queue.enqueue([value])
        with tf.control_dependencies([v1.py_func(lambda: asked.ask(1), [], [])]):
            take = queue.dequeue(name="take")
        with v1.Session(graph=graph) as session:

            def feed():
                for number in range(6):
                    asked.wait()
                    session.run(put, {value: number})

            feeder = threading.Thread(target=feed)
            with profnb.profile(max_seconds=300) as p:
                feeder.start()
                assert [session.run(take) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
                feeder.join()
    (use,) = p.study.input.queues
    assert use.dequeued == 6
    assert list(use.record.thread) == [0] * 6
    assert len(use.record.end_ns) == 6
    (use,) = kept_waiting(use.record, threads=1).input.queues
    assert (use.record.name, use.threads, use.dequeued, use.found_empty) == ("fed", 1, 10, 10)
