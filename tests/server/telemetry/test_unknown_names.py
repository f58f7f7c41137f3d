"""However many names a run has, and whatever is asked for, what is told stays short."""

from runwatch_server.telemetry.unknown_names import unknown_name


def test_of_many_names_the_first_are_told_and_how_many_more_there_are() -> None:
    known = [f"blocks.{index}.weight" for index in range(3000)]

    told = unknown_name("series_not_found", "layer", "blocks.7.wight", known).detail

    assert "(nearest: blocks.7.weight)" in told
    assert told.endswith("blocks.11.weight and 2988 more, as /metrics of the run lists them.")


def test_of_a_long_name_the_beginning_is_told() -> None:
    assert len(unknown_name("metric_not_found", "metric", "x" * 60_000, ["loss"]).detail) < 400


def test_a_run_without_any_is_told_so() -> None:
    told = unknown_name("metric_not_found", "metric", "loss", []).detail

    assert told == "The run has no metric 'loss'. It has none yet."
