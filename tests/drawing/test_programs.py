"""Programs of a page: joined of files without comments, and packed so that a notebook carries a third of them."""

import re
import zlib
from base64 import b64decode

from profnb.drawing.programs import packed
from profnb.report.report import report_script
from profnb.timeline.element import timeline_script


def test_a_program_has_all_its_code_and_none_of_its_comments():
    for program in (report_script(), timeline_script()):
        assert "/**" not in program
        assert not re.search(r"^\s*//|^\s|\n\n", program, re.MULTILINE)
    assert "class ReportTable {" in report_script()
    assert "class Marks {" in timeline_script()
    assert "https://" not in report_script()  # nothing that a comment's end could be taken for


def test_a_packed_program_is_the_program_and_says_what_it_is():
    program = report_script()
    carried = packed(program)
    first, *_ = carried.split("\n")
    assert first.startswith("// The program of this output")
    (data,) = re.findall(r"[A-Za-z0-9+/]{200,}={0,2}", carried)
    assert zlib.decompress(b64decode(data)).decode() == program
    assert len(carried) < len(program) / 2
