"""Advice as rows to act on: what is to be written is told from the words, and every row works without a script."""

import math
import re
import shlex
from html.parser import HTMLParser

import pytest
from traces import event, host, line, read

import profnb
from profnb.profile import Profile
from profnb.report.advice import advice_html, advice_section_text, again_line, code_pieces, name_in_notebook
from profnb.advice.proposals import Advice, saves_text

ONE = Advice("launch-bound", "Launch fewer kernels", "The device idled.", (686.0, 1372.0), 4000.0, "model.compile(..., jit_compile=True) fuses.", "https://www.tensorflow.org/xla", where="Cell [2]:14")


def chips(sentence):
    return [piece.text for piece in code_pieces(sentence) if piece.is_to_write]


@pytest.mark.parametrize(("sentence", "to_write"), [
    ("model.compile(..., jit_compile=True) fuses small kernels; steps_per_execution=16 queues several.", ["model.compile(..., jit_compile=True)", "steps_per_execution=16"]),
    ("os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private' before TensorFlow is imported.", ["os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'"]),
    ("dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step; tf.cast on the device.", ["dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))"]),
    ("Read it with tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8).batch(n).prefetch(2); then train.", ["tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8).batch(n).prefetch(2)"]),
    ("Put @tf.function over the function (model.run_eagerly must be False).", ["@tf.function"]),
    ("Put @tf.function over `train_step`.", ["@tf.function"]),
    ("`pip install 'tensorflow[and-cuda]'` brings them.", ["pip install 'tensorflow[and-cuda]'"]),
    ("model.optimizer.learning_rate = 1e-4.", ["model.optimizer.learning_rate = 1e-4"]),
    ("num_parallel_calls=tf.data.AUTOTUNE. Then measure.", ["num_parallel_calls=tf.data.AUTOTUNE"]),
    ("batch_size=1024; scale the learning rate with it.", ["batch_size=1024"]),
])  # fmt: skip
def test_what_is_to_be_written_is_told_from_the_words(sentence, to_write):
    assert chips(sentence) == to_write


@pytest.mark.parametrize("sentence", [
    "loss.item(), x.cpu() and torch.cuda.synchronize() wait for the device: do them every 100 steps.",
    "float(loss), loss.numpy() and print(loss) wait for the device.",
    "Else look for tf.device('/CPU:0'), CUDA_VISIBLE_DEVICES or set_visible_devices in the program.",
    "Leave arrays that fit there (memory_kind='device' in their shardings), and go on.",
    "Send uint8 (or float16), e.g. half the bytes (2 unless set; try 1).",
    "A larger batch per device, or gradient accumulation over several steps.",
    "an open bracket f(x and more",
    "",
])  # fmt: skip
def test_what_a_reader_has_already_is_no_code_to_copy(sentence):
    assert chips(sentence) == []


def test_the_pieces_say_the_sentence():
    sentence = "Look at `a b`: f(x=1) and tf.data, SOME_NAME = 3; f(."
    assert "".join(piece.text for piece in code_pieces(sentence)) == sentence.replace("`", "")


class Row(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.links, self.code, self.text, self.tags = [], [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "a":
            self.links.append(dict(attrs))
        if tag == "code":
            self.code.append("")

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")

    def handle_data(self, data):
        self.text += data
        if self.tags and self.tags[-1] == "code":
            self.code[-1] += data


def test_a_row_says_gain_what_where_and_how_without_a_script():
    row = Row(advice_html([ONE], "%%tfprofile --vs before"))
    assert "saves 686 ms to 1.37 s of 4.00 s" in row.text
    assert row.code == ["model.compile(..., jit_compile=True)", "%%tfprofile --vs before"]
    assert "at Cell [2]:14" in row.text
    assert [(link["href"], link["rel"]) for link in row.links] == [("https://www.tensorflow.org/xla", "noopener noreferrer")]
    assert "button" not in row.tags
    assert row.tags.count("li") == 1


def test_no_gain_is_said_where_none_is_known_and_no_line_where_the_result_has_no_name():
    unknown = Advice("larger-batch", "Use a larger batch", "Idle.", (math.nan, math.nan), math.nan, "batch_size=64.", "https://x.test")
    row = Row(advice_html([unknown]))
    assert "saves: not known" in row.text
    assert "%" not in row.text
    assert advice_html([]) == advice_html([], "%%tfprofile --vs a")
    assert "saves" not in advice_section_text([unknown])


@pytest.mark.parametrize(("saves", "words"), [
    ((0.0, 900.0), "up to 900 ms of 1.00 s"), ((410.0, 520.0), "410 to 520 ms of 1.00 s"), ((300.0, 300.0), "300 ms of 1.00 s"),
    ((0.5, 700.0), "up to 700 ms of 1.00 s"), ((math.nan, math.nan), ""), ((0.0, 990.0), ""),
])  # fmt: skip
def test_a_saving_is_said_as_a_range_of_the_wall_time(saves, words):
    assert saves_text(Advice("r", "t", "e", saves, 1000.0, "c", "")) == words


def test_seconds_of_a_saving_are_those_of_the_cell_without_profnb():
    advice = Advice("r", "t", "e", (410.0, 520.0), 1000.0, "c", "", own_ms=200.0)
    assert saves_text(advice) == "328 to 416 ms of 800 ms without profnb"
    later = advice.of_cell(1200.0)  # profnb made the page meanwhile: the same share of the same seconds
    assert (later.own_ms, saves_text(later)) == (400.0, saves_text(advice))


@pytest.mark.parametrize("address", ["javascript:alert(1)", "http://x.test", "data:text/html,x", "", "https:"])
def test_only_a_web_page_becomes_a_link(address):
    assert Row(advice_html([Advice("r", "t", "e", (0.0, 1.0), 2.0, "c", address)])).links == []


def test_hostile_names_stay_text():
    evil = "<img src=x onerror=alert(1)>`</code><script>"
    html = advice_html([Advice("r", evil, evil, (0.0, 1.0), 2.0, evil, f'https://x.test/"{evil}', where=evil)], f"%%tfprofile --vs '{evil}'")
    assert "<img" not in html
    assert "<script" not in html


def test_the_line_that_measures_has_the_name_that_the_result_has(monkeypatch):
    import IPython

    profile = Profile(read(host(line("python", *(event("train", at * 10, 8, step_num=at, _r=1) for at in range(4)), event("a:Op", 0, 5)))))
    names = {"_": profile, "_12": profile, "other": 1}
    shell = type("Shell", (), {"user_ns": names})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    assert name_in_notebook(profile) == ""  # no name that lasts
    names["_tfprofile"] = profile
    assert profile._report.again == "%%tfprofile --vs _tfprofile"
    names["before"] = profile
    assert profile._report.again == "%%tfprofile --vs before"
    del names["before"]
    names["_tfprofile"] = None
    assert profile._report.again == ""
    profile.opened_as = "my runs/a.pb"
    assert profile._report.again == "%%tfprofile --vs 'my runs/a.pb'"


def test_the_line_is_one_that_the_magic_understands():
    from IPython.core.magic_arguments import parse_argstring
    from profnb.magics import ProfnbMagics

    line_of = again_line("a b/it's").removeprefix("%%tfprofile ")
    assert shlex.split(line_of) == ["--vs", "a b/it's"]
    assert parse_argstring(ProfnbMagics.tfprofile_cell, again_line("before").removeprefix("%%tfprofile ")).vs == "before"
    assert parse_argstring(ProfnbMagics.tfprofile_cell, again_line("a b/c.pb").removeprefix("%%tfprofile ")).vs == "a b/c.pb"


def test_a_trace_of_pytorch_is_measured_by_a_cell_as_any_other(shared_traces):
    profile = profnb.load(shared_traces / "judged" / "kineto-h100-vit.json.gz")
    profile.opened_as = "x.json.gz"
    assert profile._report.again == "%%tfprofile --vs x.json.gz"


def test_no_word_of_ours_is_half_code():
    """Of every rule's words the code that is to be written has its brackets closed and no words beside it."""
    import ast
    from pathlib import Path

    found = 0
    package = Path(profnb.__file__).parent
    for path in (*package.glob("subjects/**/*advice.py"), *package.glob("advice/rules/*_rules.py")):
        tree = ast.parse(path.read_text("utf-8"))
        parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts]
        for text in texts:
            for code in chips(text) if "\n" not in text else []:
                found += 1
                assert code.count("(") == code.count(")"), code
                assert not re.search(r"[;:.,]$", code) or code.endswith("..."), code
    assert found > 10
