"""Texts that Python warned of are read again without a word, and without an exception where warnings are errors."""

import ast
import linecache
import warnings

import pytest

from profnb.capture import cell
from profnb.capture.source import layer_lines, user_code
from profnb.core.parsing import parse_again
from profnb.tf1 import gap_watch

# A layer, a function, and what Python warns of: by the parser, and by the compiler.
TEXT = '''class Any:
    def head(self, x):
        assert (x, "always")
        return Dense(3, name="head")(x) if x is "\\d" else "\\d"
'''


class Shell:
    def transform_cell(self, text):
        return text


def calls_of_layers(file):
    layer_lines._calls_in.cache_clear()
    assert [call.line for calls in layer_lines.calls_in_files({"Dense"}) for call in calls if call.file == file] == [4]


def scopes(file):
    user_code._scopes.cache_clear()
    assert user_code._scopes(tuple(TEXT.splitlines())) == [1, 2, 2, 2]


def names(file):
    assert "x" in cell.names_of(Shell(), TEXT)[0]


def tree_of_a_file(file):
    assert gap_watch.Source(file).tree is not None


@pytest.fixture
def file():
    name = "<ipython-input-1-of-a-text>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    yield name
    del linecache.cache[name]


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("read", [calls_of_layers, scopes, names, tree_of_a_file])
def test_nothing_is_said_of_a_text_that_is_read_again(file, read, action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        with pytest.raises(SyntaxError) if action == "error" else warnings.catch_warnings():
            compile(TEXT, "x", "exec")  # the text is one that is warned of
        seen.clear()
        read(file)
    assert seen == []


def test_a_text_gives_the_same_tree_and_the_same_errors():
    assert ast.dump(parse_again("x = 1")) == ast.dump(ast.parse("x = 1"))
    with pytest.raises(SyntaxError):
        parse_again("x = = 1")
    with pytest.raises((ValueError, SyntaxError)):
        parse_again("\0")


def test_a_file_is_read_once_as_long_as_it_stays(monkeypatch):
    """However many there are, and whichever layers are looked for: a project of a hundred modules is the same at each capture."""
    read = []

    def parse(text):
        read.append(text)
        return parse_again(text)

    def write(number, text):
        monkeypatch.setitem(linecache.cache, f"<ipython-input-{number}-of-many>", (len(text), None, text.splitlines(keepends=True), ""))

    def found(*names):
        read.clear()
        calls = [call for calls in layer_lines.calls_in_files(names) for call in calls if call.file.endswith("-of-many>")]
        return [(call.name, call.line, call.positional, call.keywords) for call in calls], sum("of_many" in text for text in read)

    monkeypatch.setattr(layer_lines, "parse_again", parse)
    for number in range(200):
        write(number, f"of_many = 1\nkeras.layers.Wide({number}, x, units=3)(Narrow(name=y))\n" if number else "of_many = 2\n")
    wide = [("Wide", 2, (number,), (("units", 3),)) for number in range(199, 0, -1)]
    assert found("Wide") == (wide, 199)
    assert found("Wide") == (wide, 0)
    both, count = found("Wide", "Narrow")
    assert (both[:2], count) == ([wide[0], ("Narrow", 2, (), ())], 0)
    write(7, "of_many = 3\n\nWide(7)")
    assert found("Wide") == ([*wide[:192], ("Wide", 3, (7,), ()), *wide[193:]], 1)
    assert found("Nothing") == ([], 0)
