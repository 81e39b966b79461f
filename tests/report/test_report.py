"""The report: values, then words, HTML and figures; hostile names stay text."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.subjects.study import Study
from profnb.profile import Profile
from profnb.trace.files import read_trace
from profnb.report.step_chart import (
    chart_caption,
    chart_figure,
    step_chart,
    step_figure,
    step_table,
)
from profnb.drawing.markup import html_table
from profnb.drawing.markup import plain_table
from profnb.report.text import answer_text, fact_rows, headline_text, run_facts

pytestmark = pytest.mark.versions

HOSTILE = '</table><script>alert(1)</script><img src=x onerror="alert(2)">\'"&<b>'


def marker(begin, end, number, name="train"):
    return event(name, begin, end - begin, _r=1, step_num=number)


def profile_of(*planes, **rest):
    return Profile(read(*planes, **rest))


def steps_of(count, name="train"):
    return host(
        line(
            "python",
            *(
                e
                for i in range(count)
                for e in (marker(i * 10, i * 10 + 8, i, name), event(f"op{i % 3}:Op", i * 10, 4))
            ),
        )
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.handlers, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.handlers += [(k, v) for k, v in attrs if k.startswith("on")]

    def handle_data(self, data):
        self.text.append(data)


def parse(html):
    tags = Tags()
    tags.feed(html.replace("\u00a0", " "))  # what keeps a number and its unit on a line
    return tags


def test_the_report_of_a_real_trace_as_text(cpu_trace_path):
    text = profnb.load(cpu_trace_path).summary()
    assert text.startswith("8 train steps, median ")
    assert "host compute" in text
    assert "batch size 32" in text
    assert "sequential_1/conv2d_1/Relu" in text
    assert "StatefulPartitionedCall" not in text


def test_the_answer_says_most_only_of_more_than_half():
    def answer(busy):
        trace = read(
            host(
                line(
                    "p", marker(0, 100, 0), event("a:Op", 0, busy), event("IteratorGetNext", 60, 30)
                )
            )
        )
        return Profile(trace).summary().split(". ")[1]

    assert answer(60).startswith("Most of it is host compute, 60.0 %")
    assert answer(45).startswith("The largest part is host compute, 45.0 %")


def test_that_nothing_could_explain_the_time_is_said_only_of_what_nothing_explains_where_no_host_was_recorded():
    def answer(busy, has_host):
        study = Study(
            read(host(line("p", marker(0, 100, 0))), gpu(line("Stream #1", event("k", 0, busy))))
        )
        return answer_text(study.summary, has_host=has_host)

    nothing = "nothing that could explain it was recorded"
    assert nothing in answer(10, has_host=False)
    assert nothing not in answer(10, has_host=True)
    assert answer(90, has_host=False) == answer(90, has_host=True)
    assert answer(90, has_host=False).startswith("Most of it is device compute, 90.0 %")


def test_the_text_is_a_short_read(cpu_trace_path):
    lines = profnb.load(cpu_trace_path).summary().splitlines()
    assert len(lines) < 48
    assert max(map(len, lines)) < 160


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_charts_of_none_one_and_many_steps_are_valid_plotly_figures(count):
    go = pytest.importorskip("plotly.graph_objects")
    study = Study(read(steps_of(count)))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    figure = step_figure(chart)
    go.Figure({"data": figure["data"], "layout": figure["layout"]})
    assert len(chart.labels) <= 120
    assert len(json.dumps(figure)) < 60_000


def test_the_bars_of_a_chart_add_up_to_step_and_gap():
    study = Study(read(steps_of(6)))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    for row, total in enumerate(chart.total_ms):
        parts = sum(v[row] for name, v in chart.stacks if name != "between steps")
        assert parts == pytest.approx(total, abs=1e-3)


def test_many_steps_are_averaged_and_the_slowest_is_still_shown():
    events = [marker(i * 1000, i * 1000 + (900 if i == 77 else 100), i) for i in range(480)]
    study = Study(read(host(line("python", *events))))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert len(chart.labels) == 120
    assert chart.labels[0] == "train 0 to 3 (mean of 4)"
    assert chart_caption(chart) == "Each bar is the mean of several steps."
    assert max(chart.slowest_ms) == pytest.approx(900 / 1e9, abs=1e-4)


def test_a_bar_never_mixes_phases_or_warm_up():
    events = [marker(i * 10, i * 10 + 5, i, "test" if i % 2 else "train") for i in range(10)]
    study = Study(read(host(line("python", *events))), warmup_steps=1)
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert chart.labels[:2] == ["train 0, warm-up", "test 1, warm-up"]
    assert chart.is_warmup == [True, True] + [False] * 8


def test_a_long_warm_up_step_does_not_flatten_the_chart():
    events = [
        marker(0, 10**12, 0),
        *(marker(10**12 + i * 10**9, 10**12 + i * 10**9 + 9 * 10**8, i) for i in range(1, 9)),
    ]
    study = Study(read(host(line("python", *events))), warmup_steps=1)
    layout = step_figure(step_chart(study.steps, study.breakdown, study.gaps))["layout"]
    assert layout["yaxis"]["range"][1] < 2
    assert layout["annotations"][0]["text"] == "▲ 1.00 s"


def chart_of(durations_ms, **options):
    """The chart of steps that follow each other without a gap."""
    ends = np.cumsum([0, *durations_ms]) * 10**9
    study = Study(
        read(
            host(
                line(
                    "python",
                    *(marker(int(a), int(b), at) for at, (a, b) in enumerate(zip(ends, ends[1:]))),
                )
            )
        ),
        **options,
    )
    return step_chart(study.steps, study.breakdown, study.gaps)


def test_the_twelve_slowest_steps_stand_in_a_table_in_the_order_of_time():
    cells = parse(step_table(chart_of([at * 7 % 20 + 1 for at in range(20)]))).text
    assert cells[:2] == ["slowest steps", "step time"]
    assert cells[2:-1:3] == [f"train {at}" for at in (2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19)]
    assert cells[4:-1:3] == [
        f"{ms} ms"
        for ms in (
            "15.0",
            "9.00",
            "16.0",
            "10.0",
            "17.0",
            "11.0",
            "18.0",
            "12.0",
            "19.0",
            "13.0",
            "20.0",
            "14.0",
        )
    ]
    assert cells[-1] == "and 8 faster ones"


def test_bars_of_the_table_are_of_the_slowest_step_past_warm_up():
    cells = parse(step_table(chart_of([100] + [10] * 10 + [5], warmup_steps=1))).text
    assert [len(bar) for bar in cells[3::3]] == [24] * 11 + [12]
    assert cells[2] == "train 0, warm-up"
    assert cells[-1] == "5.00 ms"  # these are all


@pytest.mark.parametrize(
    ("durations", "top", "said"),
    [
        ([5], 5, "Each bar is a step."),
        (
            [100, 10, 10],
            10,
            "Each bar is a step; faint ones are warm-up; ▲ marks 1 longer than the axis.",
        ),
        (
            [10] * 99 + [70, 80],
            10,
            "Each bar is a step; ▲ marks 2 longer than the axis.",
        ),  # 98 % of the bars fit
    ],
)
def test_the_axis_of_the_steps_ends_at_their_98th_percentile_and_what_is_longer_is_marked(
    durations, top, said
):
    chart = chart_of(durations, warmup_steps=int(100 in durations))
    assert chart_caption(chart) == said
    layout = step_figure(chart)["layout"]
    assert layout["yaxis"]["range"] == [0, pytest.approx(top * 1.12)]
    assert [note["text"] for note in layout["annotations"]] == [
        f"▲ {ms:.1f} ms" if ms < 100 else "▲ 100 ms" for ms in durations if ms > 11
    ]


@pytest.mark.parametrize(("slow", "written"), [(3, 3), (6, 6), (8, 6)])
def test_six_steps_of_warm_up_at_most_have_their_time_written_where_they_are_cut_off(slow, written):
    layout = step_figure(chart_of([100] * slow + [10] * 10, warmup_steps=slow))["layout"]
    assert [note["text"] for note in layout["annotations"]] == ["▲ 100 ms"] * written


def test_a_chart_of_several_steps_a_bar_has_their_slowest_too():
    drawn = chart_figure(chart_of([10] * 480))["data"]
    assert {trace["type"] for trace in drawn} == {"bar", "scatter"}
    assert not any(
        "opacity" in trace["marker"] for trace in drawn if trace["type"] == "bar"
    )  # nothing is faint
    faint = chart_figure(chart_of([10] * 5, warmup_steps=1))["data"]
    assert [trace["marker"]["opacity"] for trace in faint] == [[0.4, 1, 1, 1, 1]] * len(faint)


def test_what_a_bar_is_stands_once_and_not_with_each_category():
    figure = chart_figure(chart_of([10] * 5))
    assert figure["layout"]["labels"] == [f"train {at}" for at in range(5)]
    assert not any("customdata" in trace for trace in figure["data"])


def test_a_chart_can_be_of_some_steps():
    ms = 10**9
    events = [marker(at * 10 * ms, (at * 10 + 1 + at) * ms, at) for at in range(6)]
    study = Study(read(host(line("python", *events))))
    chart = step_chart(study.steps, study.breakdown, study.gaps, np.array([1, 3, 4]))
    assert (chart.labels, chart.ticks, chart.total_ms) == (
        ["train 1", "train 3", "train 4"],
        ["1", "3", "4"],
        [2.0, 4.0, 5.0],
    )


@pytest.mark.parametrize(("count", "shown"), [(5, 5), (12, 12), (13, 7), (24, 12)])
def test_the_axis_of_the_steps_has_twelve_numbers_at_most(count, shown):
    axis = step_figure(chart_of([10] * count))["layout"]["xaxis"]
    assert len(axis["tickvals"]) == len(axis["ticktext"]) == shown


def test_the_bars_of_a_chart_by_hand():
    """Steps of 8 ms every 10, the first 4 ms of each an op: 4 idle, 4 of compute, 2 to the next step."""
    ms = 10**9
    events = [
        one
        for at in range(3)
        for one in (
            marker(at * 10 * ms, (at * 10 + 8) * ms, at),
            event("op:Op", at * 10 * ms, 4 * ms),
        )
    ]
    study = Study(read(host(line("python", *events))))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert chart.stacks == [
        ("all others", [4.0] * 3),
        ("host compute", [4.0] * 3),
        ("between steps", [2.0, 2.0, 0.0]),
    ]
    assert (chart.labels, chart.ticks) == (["train 0", "train 1", "train 2"], ["0", "1", "2"])
    assert (chart.total_ms, chart.slowest_ms, chart.ceiling_ms) == (
        [8.0] * 3,
        None,
        pytest.approx(10 * 1.12),
    )
    layout = step_figure(chart)["layout"]
    assert (layout["xaxis"]["tickvals"], layout["xaxis"]["ticktext"], layout["annotations"]) == (
        [0, 1, 2],
        ["0", "1", "2"],
        [],
    )


def test_the_step_chart_shows_what_was_done_in_the_gaps_as_the_headline_does():
    """Steps of 4 of every 10 ms; in the gap the device runs for 3 ms and the thread waits for its input for 2."""
    ms = 10**9
    steps = [marker(at * 10 * ms, (at * 10 + 4) * ms, at) for at in range(3)]
    waits = [event("IteratorGetNext", (at * 10 + 8) * ms, 2 * ms) for at in range(2)]
    kernels = [event("k", (at * 10 + 5) * ms, 3 * ms) for at in range(2)]
    study = Study(read(host(line("python", *steps, *waits)), gpu(line("Stream #1", *kernels))))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert dict(chart.stacks) == {
        "device compute": [3, 3, 0],
        "input": [2, 2, 0],
        "between steps": [1, 1, 0],
        "all others": [4, 4, 4],
    }
    assert chart.ceiling_ms == pytest.approx(10 * 1.12)
    shares = {share.category: share.mean_ps * 3 / ms for share in study.summary.shares}
    assert shares == {name: pytest.approx(sum(values)) for name, values in chart.stacks}


def test_every_bar_of_several_steps_has_its_slowest_marked():
    """240 steps are 120 bars of two; of the last two one takes 3 ms and one 1."""
    ms = 10**9
    events = [marker(at * 5 * ms, (at * 5 + (3 if at == 239 else 1)) * ms, at) for at in range(240)]
    study = Study(read(host(line("python", *events))))
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert (len(chart.labels), chart.labels[-1]) == (120, "train 238 to 239 (mean of 2)")
    assert (chart.total_ms[-2:], chart.slowest_ms[-2:]) == ([1.0, 2.0], [1.0, 3.0])
    assert dict(chart.stacks)["between steps"][-2:] == [
        4.0,
        2.0,
    ]  # after the last one nothing comes
    figure = step_figure(chart)
    [slowest] = [trace for trace in figure["data"] if trace["type"] == "scatter"]
    assert (slowest["name"], slowest["y"][-2:]) == ("slowest step", [1.0, 3.0])
    assert figure["layout"]["xaxis"]["tickvals"] == list(range(0, 120, 10))


def test_the_headline_of_one_step_of_a_window_and_of_nothing():
    def headline(*events):
        return headline_text(Study(read(host(line("p", *events)))))

    assert headline(marker(0, 2000, 0)) == "1 train step, 2.00 ns"
    assert (
        headline(marker(0, 2000, 0, "step"), marker(3000, 5000, 1, "step"))
        == "2 steps, median 2.00 ns"
    )
    assert headline(event("a", 0, 7000)) == "No steps found; 7.00 ns of activity in one window"
    assert headline() == "Nothing was recorded"


def test_the_figures_of_the_headline_by_hand():
    """Two steps of warm-up, 9 and 5 ns, then 1, 2, 3 and 4 ns with a gap of 1 ns each."""
    sizes, events, at = [9, 5, 1, 2, 3, 4], [], 0
    for number, size in enumerate(sizes):
        events.append(marker(at * 1000, (at + size) * 1000, number))
        at += size + 1
    study = Study(read(host(line("p", *events))), warmup_steps=2)
    facts = {fact.name: (fact.value, fact.remark) for fact in fact_rows(study, 5 * 10**9)}
    assert facts == {
        "step time, median": ("2.50 ns", "middle half 1.75 ns to 3.25 ns"),
        "between steps": ("1.00 ns", "median"),
        "warm-up": ("14.0 ns", "2 left out of averages; first step 9.00 ns"),
        "steps traced": (
            "6 of 6",
            "all traced, so what tracing costs is unknown; starting and saving took 5.00 ms",
        ),
    }
    everything = {
        fact.name for fact in fact_rows(Study(read(host(line("p", *events))), warmup_steps=6), None)
    }
    assert "warm-up" not in everything  # nothing but warm-up: it is what the averages are of
    assert fact_rows(Study(read(host(line("p", event("a", 0, 5))))), None) == []


def test_how_far_runs_are_apart_is_from_the_fastest_to_the_slowest():
    runs = [
        np.array([1.0, 3.0, 5.0]) * 1e9,
        np.array([]),
        np.array([7.0, 9.0]) * 1e9,
        np.array([4.0]) * 1e9,
    ]
    [fact] = run_facts(runs)
    assert (fact.value, fact.remark) == (
        "4.00 ms",
        "median steps of 3 untraced runs, 3.00 ms to 8.00 ms",
    )
    assert run_facts(runs[:2]) == []
    [of_two] = run_facts(runs[:3])
    assert of_two.remark == "median steps of 2 untraced runs, 3.00 ms to 8.00 ms"


def test_text_columns_align_left_and_numbers_right():
    rows = [("op", "1", "x"), ("longer", "100", "y")]
    assert plain_table(rows, (False, True, False)) == "op        1  x\nlonger  100  y"
    assert plain_table([], (False,)) == ""


def test_names_from_a_trace_are_text_everywhere():
    report = profile_of(
        host(
            line(
                HOSTILE,
                marker(0, 10, 0, HOSTILE), marker(20, 30, 1, HOSTILE),
                event(f"{HOSTILE}:", 0, 5), event("a/b:Op", 5, 2),
            )
        ),
        gpu(line("Stream #1", event(HOSTILE, 1, 3))),
        hostnames=[HOSTILE], errors=[HOSTILE],
    )  # fmt: skip
    tags = parse(report._repr_mimebundle_()["text/html"])
    assert tags.handlers == []
    assert set(tags.seen) <= {"div", "span", "b", "ul", "li", "table", "tr", "td", "a", "code"}
    assert "<script>" not in json.dumps(report._report.figures["Steps"])


def test_names_cannot_command_a_terminal():
    name = "\x1b]0;pwned\x07\n\nfake line"
    text = profile_of(
        host(line("p", marker(0, 10, 0, name), event(f"{name}:", 0, 5))), errors=[name]
    ).summary()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\nfake line" not in text


def test_a_page_closes_no_script_early(tmp_path, cpu_trace_path):
    page = profnb.load(cpu_trace_path).to_html(tmp_path / "r.html").read_text("utf-8")
    assert (
        page.count("<script>") == page.count("</script>") == 2
    )  # the report's and the timeline's: nothing of this trace can be zoomed into
    assert re.findall(r'http-equiv="?([^" >]*)', page) == ["Content-Security-Policy"]
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', page)


def test_without_style_and_script_the_tables_still_read():
    html = profile_of(steps_of(4))._repr_mimebundle_()["text/html"]
    text = " ".join(part.strip() for part in parse(html).text if part.strip())
    assert "4 train steps, median 8.00 ps" in text
    assert "█" in text
    assert "function" not in text  # no program text


@pytest.mark.long
def test_the_payload_is_bounded_for_a_trace_with_very_many_ops():
    events = [event(f"{'long/' * 100}op{i}:Type", i, 1) for i in range(5000)]
    html = profile_of(host(line("p", *events)))._repr_mimebundle_()["text/html"]
    assert len(html) < 500_000
    assert "and 4,995 more" in html


def test_the_op_table_sums_shares_up_per_side():
    trace = read(
        host(line("a", event("f:F", 0, 60), event("g:G", 60, 40))),
        gpu(line("Stream #1", event("k", 0, 7), event("m", 8, 3))),
    )
    html = Profile(trace)._repr_mimebundle_()["text/html"].partition('data-tab="Steps"')[0]
    cells = [c for c in parse(html).text if "%" in c]
    assert cells[-8:] == [
        "60.0 %",
        "60.0 %",
        "40.0 %",
        "100.0 %",
        "70.0 %",
        "70.0 %",
        "30.0 %",
        "100.0 %",
    ]


def test_table_cells_keep_their_text_whole():
    html = html_table(("op",), [[("a/bC<", "", "Mat<Mul")]], (False,))
    assert "".join(parse(html).text) == "opa/bC< Mat<Mul"


@pytest.mark.parametrize("path", every_shared_trace())
def test_every_shared_trace_gives_a_report_within_its_byte_budget(path):
    result = Profile(read_trace(path))
    html = result._repr_mimebundle_()["text/html"]
    assert "script" not in parse(html).seen
    assert len(html) < 500_000
    assert result.summary()
    assert len(result.steps) > 0
    assert len(result.events) == len(result.trace.events)


def device_trace():
    from traces import ref

    us = 10**6
    shape = ref("regs:16 static_shared:0 dynamic_shared:0 grid:9,1,1 block:32,1,1")
    return read(
        host(line("python", event("train", 0, 100 * us, step_num=0, _r=1), event("IteratorGetNext:IteratorGetNext", 0, 20 * us))),
        gpu(line("Stream #1",
            event("MemcpyH2D", 20 * us, 10 * us, memcpy_details=ref("kind_src:pageable kind_dst:device size:20000 dest:0")),
            event("void sgemm<float, <script>>(float*)", 30 * us, 30 * us, tf_op=ref("a/MatMul:MatMul"), kernel_details=shape),
            event("s884gemm", 60 * us, 10 * us, tf_op=ref("b/MatMul:MatMul")))),
    )  # fmt: skip


def test_a_device_has_its_idle_time_kernels_and_copies_in_the_report():
    text = Profile(device_trace()).summary()
    assert "/device:GPU:0 was idle 50.0 % of the time, mostly Python in the step." in text
    assert re.search(r"waiting for input +1 +20.0 µs +40.0 % +20.0 µs", text)
    assert (
        "2 kernels, 40.0 µs in all: 25.0 % in tensor cores, 75.0 % in matrix products and convolutions without tensor cores."
        in text
    )
    assert re.search(
        r"a · MatMul  sgemm<float, <script>> +1 +30.0 µs +75.0 % +30.0 µs +not used", text
    )
    assert re.search(r"b · MatMul  s884gemm +1 +10.0 µs +25.0 % +10.0 µs +used", text)
    assert re.search(r"host to device +pageable to device +1 +10.0 µs +20.0 kB +2.00 GB/s", text)


def test_device_tables_stand_in_the_html_escaped_and_only_with_a_device():
    html = Profile(device_trace())._repr_mimebundle_()["text/html"]
    for title in ("Device/Idle time of the device", "Kernels/Kernels", "Kernels/Copies"):
        assert f'data-part="{title}"' in html
    assert "<script" not in html
    plain = Profile(
        read(host(line("python", event("train", 0, 100, step_num=0, _r=1))))
    )._repr_mimebundle_()["text/html"]
    assert "Kernels" not in plain and "Idle time" not in plain


def test_figures_are_plotlys_and_an_unknown_one_names_those_there_are(cpu_trace_path):
    go = pytest.importorskip("plotly.graph_objects")
    figures = profnb.load(cpu_trace_path).figures
    assert list(figures) == ["Steps", "Layers"]
    assert all(isinstance(figure, go.Figure) for figure in figures.values())
    assert sum(figures["Steps"].data[-1].y) >= 0
    with pytest.raises(KeyError, match="'Steps', 'Layers'"):
        figures["steps"]
    assert "'Steps'" in repr(figures)


def test_every_figure_of_a_shared_trace_is_in_the_table_of_the_docstring():
    said = Profile.figures.__doc__
    for title in (
        "Steps",
        "Layers",
        "Input pipeline",
        "Buffers",
        "Queues",
        "Idle time of the device",
        "XLA ops",
        "Roofline",
        "Roofline of ops",
        "Memory",
        "Python",
    ):
        assert f'"{title}"' in said
    for path in every_shared_trace():
        path = getattr(path, "values", [path])[0]
        if path is not None and "cnn-batch512" in str(path):
            assert set(Profile(read_trace(path)).figures) <= set(re.findall('"([^"]+)"', said))


def test_a_profile_alone_is_its_report_in_a_notebook_with_its_script_and_text_in_a_terminal(
    cpu_trace_path, monkeypatch
):
    from types import SimpleNamespace

    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(sorted(data)))
    registry = SimpleNamespace(registry={})
    shell = SimpleNamespace(kernel=None, magics_manager=registry)
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    result = profnb.load(cpu_trace_path)
    with pytest.raises(NotImplementedError):  # IPython then takes the text
        result._ipython_display_()
    shell.kernel = object()
    shell.magics_manager.registry["ProfnbMagics"] = SimpleNamespace(live=False)
    result._ipython_display_()
    assert shown == [["text/html", "text/plain"], ["application/javascript", "text/plain"]]
    assert result._mime_() == ("text/html", result._repr_mimebundle_()["text/html"])
