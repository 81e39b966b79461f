import pytest

from profnb.core.units import (
    PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US, bar_text, bytes_text, count_text, duration_text, examples_text, metric_text, percent_text, rate_text, signed_text,
)  # fmt: skip


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0 ms"), (1, "1.00 ps"), (5, "5.00 ps"), (1500, "1.50 ns"), (12_345_000, "12.3 µs"),
        (999_960_000, "1.00 ms"), (4.86e9, "4.86 ms"), (123.4e9, "123 ms"), (2.5e12, "2.50 s"),
        (1.234e15, "1,234 s"), (None, "—"), (float("nan"), "—"), (-2e9, "-2.00 ms"),
    ],
)  # fmt: skip
def test_a_duration_has_three_digits_and_the_unit_a_person_would_choose(picoseconds, text):
    assert duration_text(picoseconds) == text


@pytest.mark.parametrize(("picoseconds", "text"), [(1.2e9, "+1.20 ms"), (-1.2e9, "-1.20 ms"), (1, "+1.00 ps"), (-1, "-1.00 ps"), (0, "0 ms")])
def test_a_difference_has_its_sign_and_none_has_none(picoseconds, text):
    assert signed_text(picoseconds) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.0005, "0.1 %"), (-0.0001, "-0.0 %"), (0.621, "62.1 %"), (1, "100.0 %"), (None, "—")],
)
def test_a_small_share_is_not_called_zero(fraction, text):
    assert percent_text(fraction) == text


def test_counts():
    assert count_text(1204) == "1,204"
    assert count_text(2.5) == "2.50"
    assert count_text(None) == count_text(float("nan")) == "—"


def test_a_unit_has_as_many_picoseconds_as_its_text_says():
    assert [duration_text(unit) for unit in (PS_PER_S, PS_PER_MS, PS_PER_US, PS_PER_NS)] == ["1.00 s", "1.00 ms", "1.00 µs", "1.00 ns"]


@pytest.mark.parametrize(
    ("fraction", "bar"), [(0, ""), (0.5, "██"), (1, "████"), (2, "████"), (-1, ""), (1e-6, "▏"), (0.53125, "██▏"), (23 / 32, "██▉"), (None, "")]
)
def test_a_bar_is_clipped_and_never_hides_what_is_there(fraction, bar):
    assert bar_text(fraction, 4) == bar


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (512, "512 B"), (999.6, "1.00 kB"), (999_499, "999 kB"), (999_500, "1.00 MB"), (6_291_456, "6.29 MB"), (5.04e9, "5.04 GB"), (None, "—"), (float("nan"), "—")])
def test_bytes_are_written_in_decimal_units(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1.31e15, "1.31 Pflop/s"), (2.5e12, "2.50 Tflop/s"), (3.2e9, "3.20 Gflop/s"), (4e6, "4.00 Mflop/s"), (5e3, "5.00 kflop/s"), (999.5, "1.00 kflop/s"), (999.4, "999 flop/s"), (0, "0 flop/s"), (None, "—"), (float("nan"), "—")],
)  # fmt: skip
def test_a_rate_has_the_prefix_that_fits(rate, text):
    assert rate_text(rate, "flop/s") == text


@pytest.mark.parametrize(
    ("value", "is_score", "text"),
    [(0.876, True, "87.6 %"), (0, True, "0.0 %"), (1, True, "100.0 %"), (1.5, True, "1.5"), (-0.5, True, "-0.5"), (0.8765, False, "0.8765"), (12.3456, False, "12.35"), (None, True, "—")],
)  # fmt: skip
def test_a_score_is_a_percentage_and_a_loss_a_number(value, is_score, text):
    assert metric_text(value, is_score=is_score) == text


@pytest.mark.parametrize(("rate", "text"), [(1, "1 example/s"), (0.47, "0.47 examples/s"), (2.43, "2.43 examples/s"), (1166.7, "1,167 examples/s")])
def test_examples_a_second_are_whole_where_there_are_many(rate, text):
    assert examples_text(rate) == text
