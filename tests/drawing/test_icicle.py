"""Blocks to a figure: the one icicle of layers, XLA and Python."""

from profnb.core.block import Block
from profnb.drawing.figures import icicle_figure

COLOURS = {"whole": "#111111", "part": "#222222"}
BLOCKS = [
    Block(0, 0.0, 1.0, "net", "net: 4 ms", "whole"),
    Block(2, 0.0, 0.25, "dense", "net/<dense>: 1 ms", "part", "net/dense/"),
    Block(2, 0.25, 0.01, "activation", "net/activation: 40 µs", "part"),
]


def test_blocks_are_bars_under_bars_in_percent_and_empty_levels_are_left_out():
    figure = icicle_figure(BLOCKS, COLOURS, title="t", of_what="the time")
    upper, lower = figure["data"]
    assert (upper["base"], upper["x"], upper["text"], upper["marker"]["color"]) == ([0.0], [100.0], ["net"], ["#111111"])
    assert (lower["base"], lower["x"], lower["y"]) == ([0.0, 25.0], [25.0, 1.0], ["level 1"] * 2)
    assert figure["layout"]["yaxis"]["categoryarray"] == ["level 1", "level 0"]  # plotly counts upwards
    assert figure["layout"]["xaxis"]["title"]["text"] == "% of the time"


def test_a_label_is_cut_to_the_room_it_has_and_the_hover_has_it_all():
    _, lower = icicle_figure(BLOCKS, COLOURS, title="t", of_what="the time")["data"]
    assert lower["text"] == ["dense", ""]
    assert lower["customdata"][0] == ["net/&lt;dense&gt;: 1 ms", "net/dense/", "ops"]


def test_without_words_to_search_for_a_click_means_nothing():
    (bar,) = icicle_figure(BLOCKS[:1], COLOURS, title="t", of_what="the time")["data"]
    assert bar["customdata"] == [["net: 4 ms"]]


def test_levels_can_have_names():
    figure = icicle_figure(BLOCKS, COLOURS, title="t", of_what="the time", levels=("program", "XLA op", "framework op"))
    assert [data["name"] for data in figure["data"]] == ["program", "framework op"]
    assert figure["layout"]["margin"]["l"] > 12


def test_words_are_black_or_white_by_the_colour_they_stand_on():
    _, lower = icicle_figure(BLOCKS, {"whole": "#111111", "part": "#fb4e16"}, title="t", of_what="the time")["data"]
    assert lower["insidetextfont"]["color"] == ["#000", "#000"]
    upper, _ = icicle_figure(BLOCKS, {"whole": "#111111", "part": "#fb4e16"}, title="t", of_what="the time")["data"]
    assert upper["insidetextfont"]["color"] == ["#fff"]
