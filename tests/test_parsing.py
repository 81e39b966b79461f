"""Texts that Python warned of are read again without a word, and without an exception where warnings are errors."""

import ast
import linecache
import warnings

import pytest

from profnb.capture import cell
from profnb.capture.source import kept_source, layer_lines
from profnb.core.parsing import parse_again
from profnb.tf1 import inlined, statements

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
    assert [call.line for call in layer_lines._calls_in(file, TEXT, frozenset({"Dense"}))] == [4]


def scopes(file):
    assert kept_source._scopes(TEXT.splitlines()) == [1, 2, 2, 2]


def names(file):
    assert "x" in cell.names_of(Shell(), TEXT)[0]


def tree_of_a_file(file):
    assert statements.Source(file).tree is not None


def a_method_with_something_put_around_it(file):
    with warnings.catch_warnings():  # the user's own compiling, which may warn
        warnings.simplefilter("ignore")
        exec(compile(TEXT, file, "exec"), namespace := {"Dense": None})
    assert inlined.copy_inside(namespace["Any"].head, lambda *_: None, ()) is not None


@pytest.fixture
def file():
    name = "<ipython-input-1-of-a-text>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    yield name
    del linecache.cache[name]


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("read", [calls_of_layers, scopes, names, tree_of_a_file, a_method_with_something_put_around_it])
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
