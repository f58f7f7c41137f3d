"""Names that are cut are still told apart."""

from runwatch_server.cut_names import cut_name


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert cut_name("x" * 20, 20) == "x" * 20


def test_names_that_begin_alike_are_cut_to_two() -> None:
    first, second = (cut_name("x" * 40 + end, 20) for end in "ab")

    assert first != second
    assert {len(first), len(second)} == {20}
    assert first.startswith("x" * 11 + "…")


def test_a_name_is_cut_alike_at_all_times() -> None:
    assert cut_name("x" * 40, 20) == "xxxxxxxxxxx…bd913ff6"
