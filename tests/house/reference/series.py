"""docs/reference/metrics.md: the series that the hook records, and that rules can read."""

from collections.abc import Mapping

from tests.house.reference.docstrings import table

from runwatch.series import METRIC_SPECS, STAT_SPECS, SeriesSpec

HEAD = """# Metrics and stats

Made from the code by `make docs`. A rule reads them by these names; so do the page, the API and
`runwatch_hooks.reading`. What Prometheus is shown of them is in [metrics.md](../metrics.md). Your
own numbers, given to `watch.step` and `watch.log`, keep the names that you give them.

## Of each layer: stats

{stats}

## Of the run: metrics

{metrics}
"""


def rendered() -> str:
    return HEAD.format(stats=_table("stat", STAT_SPECS), metrics=_table("metric", METRIC_SPECS))


def _table(kind: str, specs: Mapping[str, SeriesSpec]) -> str:
    return table([kind, "what it is"], [[f"`{name}`", spec.text] for name, spec in specs.items()])
