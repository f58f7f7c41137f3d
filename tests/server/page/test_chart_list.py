"""Which metrics of a run are drawn together, and in what order."""

from runwatch_server.page.chart_list import charts_of
from runwatch_server.page.compare_api import differences


def test_the_loss_stands_first_and_larger_with_its_validation() -> None:
    charts = charts_of(["grad_norm", "loss", "val_loss"])

    assert [(chart.title, chart.metrics) for chart in charts] == [
        ("Loss", ("loss", "val_loss")),
        ("Gradient norm", ("grad_norm",)),
    ]
    assert [chart.is_main for chart in charts] == [True, False]


def test_a_loss_under_another_name_is_drawn_as_the_loss() -> None:
    (chart,) = charts_of(["val/loss", "Training Loss"])

    assert (chart.title, chart.metrics) == ("Loss", ("Training Loss", "val/loss"))


def test_metrics_of_the_run_itself_follow_by_name() -> None:
    titles = [chart.title for chart in charts_of(["zeta", "alpha", "lr"])]

    assert titles == ["Learning rate", "alpha", "zeta"]


def test_every_metric_is_drawn_once() -> None:
    names = ["loss", "lr", "lr_scale", "nonfinite", "clip_coef", "clipped", "custom"]

    drawn = [metric for chart in charts_of(names) for metric in chart.metrics]

    assert sorted(drawn) == sorted(names)


def test_a_run_without_metrics_has_no_chart() -> None:
    assert charts_of([]) == []


def test_settings_are_compared_where_they_stand() -> None:
    left = {"optimizer": {"lr": 0.1, "name": "sgd"}, "seed": 1}
    right = {"optimizer": {"lr": 0.2, "name": "sgd"}, "dtype": "bf16", "seed": 1}

    assert differences(left, right) == [("dtype", "–", "bf16"), ("optimizer.lr", "0.1", "0.2")]
