"""The one table of series is consistent in itself."""

from collections import Counter

import pytest

from runwatch.series import METRIC_SPECS, STAT_SPECS, Join, SeriesSpec, Source

ALL = (*METRIC_SPECS.values(), *STAT_SPECS.values())


def test_no_name_means_two_series() -> None:
    names = Counter(name for spec in METRIC_SPECS.values() for name in spec.names)

    assert {name for name, number in names.items() if number > 1} == set()


@pytest.mark.parametrize("spec", STAT_SPECS.values(), ids=lambda spec: spec.name)
def test_what_a_stat_leaves_out_is_counted_by_a_stat_of_the_same_source(spec: SeriesSpec) -> None:
    if spec.counted_by:
        counter = STAT_SPECS[spec.counted_by]
        assert counter.is_count
        assert counter.source is spec.source


@pytest.mark.parametrize("spec", STAT_SPECS.values(), ids=lambda spec: spec.name)
def test_each_stat_of_a_tensor_says_how_its_shards_join(spec: SeriesSpec) -> None:
    assert (spec.join is None) == (spec.source is Source.ACTIVATION)


def test_a_metric_joins_its_layers_as_their_stat_joins_its_shards() -> None:
    joined = {spec.name: spec.join for spec in METRIC_SPECS.values() if spec.join}

    assert joined.pop("layers_with_grad") is Join.SUM
    assert joined == {name: STAT_SPECS[name].join for name in joined}


def test_a_guarded_metric_has_a_noun_for_its_alert() -> None:
    guarded = [spec for spec in METRIC_SPECS.values() if spec.is_guarded]

    assert guarded
    assert all(spec.noun for spec in guarded)


def test_every_series_has_a_text() -> None:
    assert all(spec.text.endswith((".", ";")) for spec in ALL)
