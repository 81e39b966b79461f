"""Headings in plain words, each with a sentence of help; columns in which nothing stands are left out of the report alone."""

import re

import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.core.glossary import GLOSSARY, explain
from profnb.drawing.section import Section, section_text, without_empty_columns
from profnb.profile import Profile
from profnb.report.text import share_rows
from profnb.steps.summary import Share
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN

HEAD = re.compile(r"<t[dh]([^>]*)>(?:<b>)?(.*?)(?:</b>)?</t[dh]>")


def helpless(profile):
    """Headings of the report's tables that have no sentence under the pointer."""
    found = set()
    for section in profile._report.sections:
        html = str(section.html)
        row = html[html.index("<tr>") : html.index("</tr>")]
        found |= {(section.title, heading) for told, heading in HEAD.findall(row) if heading and 'title="' not in told}
    return found


def device_profile():
    work = [event(name, at * 100 + begin, 20) for at in range(6) for name, begin in (("kernel_a", 10), ("MemcpyH2D", 40))]
    steps = [event("train", at * 100, 90, step_num=at, _r=1) for at in range(6)]
    ops = [event(f"net/dense_{at}/MatMul:MatMul", at * 100 + 5, 40) for at in range(6)]
    return Profile(read(host(line("python", *steps, *ops)), gpu(line("Stream #1", *work))))


def test_every_heading_has_a_sentence_of_help():
    assert len(device_profile()._report.sections) > 3
    assert helpless(device_profile()) == set()


@pytest.mark.parametrize("path", every_shared_trace())
def test_every_heading_of_real_traces_has_a_sentence_of_help(path):
    assert helpless(profnb.load(path)) == set()


def test_help_says_what_is_meant_and_names_are_terms_of_one_glossary():
    assert explain("own time") == explain("self time")
    assert explain("all others") == "No op is active: mostly Python."
    assert explain("running total").startswith("The share that a row has together")
    headings = [name for terms in GLOSSARY.values() for term, one in terms.items() for name in (term, *one.headings)]
    assert len(headings) == len(set(headings))  # one meaning for one word


def test_without_the_thread_of_the_steps_nobody_knows_what_did_not_run(shared_traces):
    assert "nothing that could explain it was recorded" in profnb.load(shared_traces / "gpu-v100x8-bert").summary()


def columns(*cells):
    return [(f"r{at}", *row) for at, row in enumerate(zip(*cells, strict=True))]


def table(rows, **rest):
    count = len(rows[0])
    return Section(
        title="T", sentence="", headings=("", *(f"h{at}" for at in range(1, count))), rows=rows, numbers=(False,) * count, colours=["red"] * len(rows), tab="X",
        meanings=tuple(f"m{at}" for at in range(count)), **rest,
    )  # fmt: skip


def test_columns_in_which_nothing_stands_are_left_out():
    section = table(columns(["a", "b"], ["—", "—"], ["", "—"], ["0", "—"], [("", "x:y"), ("", "x:y", "faint")]), sort_keys=[(1, 2, 3, 4, 5, 6)] * 2, sorted_by=4)
    left = without_empty_columns(section)
    assert left.headings == ["", "h1", "h4", "h5"]
    assert left.meanings == ["m0", "m1", "m4", "m5"]
    assert left.sort_keys == [[1, 2, 5, 6]] * 2
    assert left.sorted_by == 2
    assert left.rows[0][2] == "0"  # a zero is something
    assert "h2" not in section.html
    assert "h3" not in section_text(section)


def test_a_table_whose_columns_all_say_something_stays_the_same():
    full = table(columns(["a"], ["b"]))
    assert without_empty_columns(full) is full
    assert without_empty_columns(table(columns(["a", ""], ["", ""]), sorted_by=2)).sorted_by is None
    empty = Section("T", "", ("", "a"), [], (False, False), [], "X")
    assert without_empty_columns(empty) is empty


def test_the_dataframe_keeps_its_columns():
    steps = [event("train", at * 100, 90, step_num=at, _r=1) for at in range(6)]
    profile = Profile(read(host(line("python", *steps, *(event("net/dense/MatMul:MatMul", at * 100 + 5, 40) for at in range(6))))))
    assert profile.layers.parameters.isna().all()
    assert "parameters" in profile.layers
    layers = next(section for section in profile._report.sections if section.title == "Parts of a step")
    assert "achieved" not in layers.html
