"""How often do the built-in rules speak about trainings that are well?

Made-up runs of many shapes, all of them healthy: each kind is a way in which real losses and norms
look that a rule about spikes, levels or standing still could take for a fault. What is made is
what a trainer would log: steps, the loss, sometimes the gradient's norm or the rate.

    python -m benchmarks.healthy_series --seeds 10
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.detection import WITH_WARNINGS
from benchmarks.harness import markdown_table
from benchmarks.rules import built_in_rules
from numpy.random import Generator
from numpy.typing import NDArray

from runwatch.alerts import AlertState
from runwatch.nonfinite import ABSENT_64
from runwatch.rules import Evaluator, Rows, Rule

Values = NDArray[np.float64]
"""(T,): a metric, a value a row."""
Kind = Callable[[Generator], Mapping[str, Values]]
"""A run's metrics by name; `step`, where it is not 0, 1, 2, ..."""

NUM_ROWS: Final = 1500
SECONDS_A_STEP: Final = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    num_seeds = parser.parse_args().seeds
    rules = built_in_rules()
    table: list[tuple[str, str, str, str]] = []
    warned_in_all = paged_in_all = 0
    for name, kind in KINDS.items():
        spoke: Counter[str] = Counter()
        warned = paged = 0
        for seed in range(num_seeds):
            told = judge(rules, with_rate(kind(np.random.default_rng(seed))))
            warned += any(severity == "warning" for severity in told.values())
            paged += any(severity == "critical" for severity in told.values())
            spoke.update(told.keys())
        warned_in_all, paged_in_all = warned_in_all + warned, paged_in_all + paged
        if spoke:
            shares = (f"{warned / num_seeds:.1f}", f"{paged / num_seeds:.1f}")
            table.append((name, *shares, ", ".join(rule for rule, _ in spoke.most_common())))
    print(markdown_table(("kind", "warned", "paged", "by"), table))
    num_series = len(KINDS) * num_seeds
    print(
        f"{len(KINDS)} kinds, {num_series} series: "
        f"warned {warned_in_all / num_series:.3f}, paged {paged_in_all / num_series:.3f}"
    )


def with_rate(metrics: Mapping[str, Values]) -> Mapping[str, Values]:
    """Beside a constant learning rate, where a kind has none of its own: without one some rules
    are silent."""
    return {"lr": np.full(len(metrics["loss"]), 1e-3), **metrics}


def judge(rules: tuple[Rule, ...], metrics: Mapping[str, Values]) -> dict[str, str]:
    """The rules that warned or paged, with their severity."""
    names = tuple(name for name in metrics if name != "step")
    num_rows = len(metrics[names[0]])
    steps_T = metrics.get("step", np.arange(num_rows)).astype(np.int64)
    rows = Rows(
        steps=steps_T,
        times=(steps_T * SECONDS_A_STEP).astype(np.float64),
        metric_names=names,
        metrics=np.column_stack([metrics[name] for name in names]),
        layer_names=(),
        stat_names=(),
        stats=np.empty((num_rows, 0, 0), np.float32),
    )
    return {
        told.rule: told.severity.value
        for told in Evaluator(rules).observe(rows)
        if told.state is AlertState.FIRING and told.severity.value in WITH_WARNINGS
    }


def steps(num_rows: int = NUM_ROWS, every: int = 1) -> Values:
    return np.arange(num_rows, dtype=np.float64) * every


def decay(steps_T: Values, start: float, end: float, half_life: float) -> Values:
    return end + (start - end) * 0.5 ** (steps_T / half_life)


def noisy(rng: Generator, loss_T: Values, share: float) -> Values:
    """Each value times a factor of which the logarithm has this standard deviation."""
    return loss_T * np.exp(rng.normal(0.0, share, loss_T.shape))


def running_mean(values_T: Values, weight: float = 0.98) -> Values:
    out = np.empty_like(values_T)
    held = values_T[0]
    for index, value in enumerate(values_T):
        held = weight * held + (1 - weight) * value
        out[index] = held
    return out


def loss_alone(make: Callable[[Generator], Values]) -> Kind:
    return lambda rng: {"loss": make(rng)}


def language_model(rng: Generator, share: float = 0.02, num_rows: int = NUM_ROWS) -> Values:
    return noisy(rng, decay(steps(num_rows), 10.8, 3.2, num_rows / 8), share)


def sparse(every: int, num_rows: int) -> Kind:
    return lambda rng: {
        "step": steps(num_rows, every),
        "loss": noisy(rng, decay(steps(num_rows), 9.0, 2.8, num_rows / 6), 0.03),
    }


def power_law(rng: Generator) -> Values:
    return noisy(rng, 1.8 + 9.0 * (1.0 + steps()) ** -0.35, 0.02)


def warm_up_hump(rng: Generator) -> Values:
    """A loss that first rises a little while the rate warms up, and then falls."""
    t = steps()
    return noisy(rng, decay(t, 6.0, 2.5, 250) + 0.4 * np.exp(-(((t - 40) / 25) ** 2)), 0.02)


def late_breakthrough(rng: Generator) -> Values:
    """Stands at a plateau, above chance, and falls at last."""
    return noisy(rng, 0.6 + 1.4 / (1.0 + np.exp((steps() - 700) / 40)), 0.03)


def two_falls(rng: Generator) -> Values:
    t = steps()
    return noisy(rng, 1.0 + 2.0 / (1 + np.exp((t - 200) / 30)) + 1.5 * 0.5 ** (t / 600), 0.03)


def rate_drops(rng: Generator) -> Mapping[str, Values]:
    """By ten each time, and the loss falls at once."""
    t = steps()
    stages = [t < 500, t < 1000]
    level_T, above_T = np.select(stages, [1.6, 1.1], 0.9), np.select(stages, [0.9, 0.5], 0.2)
    loss_T = noisy(rng, level_T + above_T * 0.5 ** ((t % 500) / 60), 0.05)
    return {"loss": loss_T, "lr": 0.1 * 0.1 ** (t // 500)}


def cyclic(rng: Generator) -> Mapping[str, Values]:
    t = steps()
    rate_T = 1e-3 * (0.55 + 0.45 * np.cos(2 * np.pi * t / 250))
    return {"loss": noisy(rng, decay(t, 4.0, 1.5, 300) + 150 * rate_T, 0.03), "lr": rate_T}


def warm_restarts(rng: Generator) -> Mapping[str, Values]:
    t = steps()
    rate_T = 5e-4 * (1.0 + np.cos(np.pi * (t % 300) / 300))
    return {"loss": noisy(rng, decay(t, 4.0, 1.5, 300) + 120 * rate_T, 0.03), "lr": rate_T}


def epoch_means(rng: Generator) -> Values:
    return noisy(rng, decay(steps(60), 2.3, 0.4, 12), 0.03)


def mean_since_epoch(rng: Generator) -> Values:
    """As progress bars show it: the mean since the epoch began, which jumps at each new one."""
    loss_T = noisy(rng, decay(steps(), 2.3, 0.8, 400), 0.25)
    epochs = np.split(loss_T, range(150, NUM_ROWS, 150))
    return np.concatenate([np.cumsum(part) / (1 + np.arange(len(part))) for part in epochs])


def epochs_of_one_set(rng: Generator) -> Values:
    """Falls by a step at each epoch's beginning, for each sample has been seen once more."""
    return noisy(rng, 2.4 * 0.8 ** (steps() // 250), 0.05)


def two_lengths(rng: Generator) -> Values:
    """Batches of two lengths in turn by chance, whose losses differ by half."""
    is_long_T = rng.random(NUM_ROWS) < 0.1
    return noisy(rng, decay(steps(), 6.0, 2.0, 300), 0.03) * np.where(is_long_T, 1.5, 1.0)


def mixture(rng: Generator) -> Values:
    """Each batch from one of four sets of data, each with a level of its own."""
    level_T = np.array([0.8, 1.0, 1.15, 1.3])[rng.integers(0, 4, NUM_ROWS)]
    return noisy(rng, decay(steps(), 5.0, 2.0, 300) * level_T, 0.05)


def sorted_by_length(rng: Generator) -> Values:
    """Within each epoch from short to long texts."""
    return noisy(rng, decay(steps(), 5.0, 2.0, 300) * (0.9 + 0.2 * (steps() % 300) / 300), 0.03)


def hard_batch_in_each_epoch(rng: Generator) -> Values:
    loss_T = noisy(rng, decay(steps(), 5.0, 1.5, 300), 0.04)
    loss_T[199::200] *= 1.35
    return loss_T


def small_batches(rng: Generator) -> Values:
    return rng.gamma(2.0, 0.5, NUM_ROWS) * decay(steps(), 2.5, 1.0, 300)


def long_tails(rng: Generator) -> Values:
    return decay(steps(), 2.5, 1.0, 300) + np.abs(rng.standard_t(3, NUM_ROWS)) * 0.15


def policy(rng: Generator) -> Values:
    """Of a policy gradient: takes both signs, means nothing by itself."""
    return rng.normal(0.0, 0.05, NUM_ROWS) + 0.02 * np.sin(steps() / 90)


def value_of_growing_rewards(rng: Generator) -> Values:
    """A critic's squared error, which grows with the rewards as the policy gets better."""
    return noisy(rng, 0.5 + steps() / 300, 0.25)


def temporal_difference(rng: Generator) -> Values:
    wander_T = np.cumsum(rng.normal(0.0, 0.02, NUM_ROWS))
    return noisy(rng, np.exp(0.5 * np.tanh(wander_T)) * 0.3, 0.3)


def adversarial(rng: Generator) -> Values:
    """Up and down with the skill of an opponent."""
    slow_T = np.cumsum(rng.normal(0.0, 0.03, NUM_ROWS))
    return noisy(rng, 1.2 + 0.8 * np.tanh(slow_T) + 0.2 * np.sin(steps() / 60), 0.12)


def wasserstein(rng: Generator) -> Values:
    return -decay(steps(), 20.0, 2.0, 300) + rng.normal(0.0, 0.8, NUM_ROWS)


def likelihood_below_zero(rng: Generator) -> Values:
    return decay(steps(), 3.0, -4.0, 250) + rng.normal(0.0, 0.15, NUM_ROWS)


def through_zero(rng: Generator) -> Values:
    return 1.5 - steps() / 500 + rng.normal(0.0, 0.1, NUM_ROWS)


def near_zero(rng: Generator) -> Values:
    return noisy(rng, decay(steps(), 0.5, 1e-4, 80), 0.3)


def to_machine_precision(rng: Generator) -> Values:
    return noisy(rng, decay(steps(), 1.0, 1e-9, 50), 0.4)


def annealed_weight(rng: Generator) -> Values:
    """A variational autoencoder's: its second part is given weight over the first 600 steps."""
    return noisy(rng, decay(steps(), 90.0, 40.0, 150) + 12 * np.minimum(1.0, steps() / 600), 0.03)


def physics(rng: Generator) -> Values:
    return noisy(rng, 10.0 ** (1.0 - 5.0 * (steps() / NUM_ROWS) ** 0.5), 0.15)


def rounded(rng: Generator) -> Values:
    return np.round(noisy(rng, decay(steps(), 2.3, 0.45, 250), 0.06), 2)


def rounded_mean(rng: Generator) -> Values:
    return np.round(running_mean(noisy(rng, decay(steps(), 2.3, 0.8, 300), 0.1)), 4)


def overfits(rng: Generator) -> Mapping[str, Values]:
    """One that fits its training set to the last digit; that the other loss stands is no fault."""
    seen_T = np.full(NUM_ROWS, ABSENT_64)
    seen_T[99::100] = noisy(rng, decay(steps(15), 1.8, 1.1, 3), 0.01)
    return {"loss": noisy(rng, decay(steps(), 2.0, 0.01, 200), 0.1), "val_loss": seen_T}


def fine_tuning(rng: Generator) -> Values:
    """Begins near where it ends."""
    return noisy(rng, decay(steps(400), 1.15, 0.95, 60), 0.12)


def short_run(rng: Generator) -> Values:
    return noisy(rng, decay(steps(25), 2.3, 1.2, 6), 0.08)


def transformer_norms(rng: Generator) -> Mapping[str, Values]:
    """A norm within a factor of two, and clipped where it is above one."""
    norm_T = decay(steps(), 6.0, 0.7, 60) * rng.lognormal(0.0, 0.25, NUM_ROWS)
    return {"loss": language_model(rng), "grad_norm": norm_T}


def norms_with_laplace_tails(rng: Generator) -> Mapping[str, Values]:
    norm_T = np.abs(1.0 + rng.laplace(0.0, 0.6, NUM_ROWS)) * np.exp(rng.laplace(0, 0.4, NUM_ROWS))
    return {"loss": language_model(rng), "grad_norm": norm_T}


def norms_that_grow(rng: Generator) -> Mapping[str, Values]:
    """As a loss with momentum and weight decay shows late in training."""
    norm_T = (0.3 + steps() / 2000) * rng.lognormal(0.0, 0.2, NUM_ROWS)
    return {"loss": language_model(rng), "grad_norm": norm_T}


def norms_in_warm_up(rng: Generator) -> Mapping[str, Values]:
    t = steps()
    norm_T = (0.5 + 12 * np.exp(-(((t - 15) / 10) ** 2)) + 2 * 0.5 ** (t / 100)) * rng.lognormal(
        0.0, 0.2, NUM_ROWS
    )
    rate_T = 3e-4 * np.minimum(1.0, (t + 1) / 100)
    return {"loss": language_model(rng), "grad_norm": norm_T, "lr": rate_T}


KINDS: Final[Mapping[str, Kind]] = {
    "language model": loss_alone(language_model),
    "language model, small batches": loss_alone(lambda rng: language_model(rng, 0.08)),
    "language model, ten thousand rows": loss_alone(lambda rng: language_model(rng, 0.03, 10_000)),
    "logged every 500 steps": sparse(500, 120),
    "logged every 10 steps": sparse(10, 800),
    "power law": loss_alone(power_law),
    "a hump in the warm-up": loss_alone(warm_up_hump),
    "a late breakthrough": loss_alone(late_breakthrough),
    "two falls": loss_alone(two_falls),
    "the rate drops in stages": rate_drops,
    "cyclic rate": cyclic,
    "warm restarts": warm_restarts,
    "means of epochs": loss_alone(epoch_means),
    "mean since the epoch began": loss_alone(mean_since_epoch),
    "falls at each epoch": loss_alone(epochs_of_one_set),
    "batches of two lengths": loss_alone(two_lengths),
    "a mixture of data": loss_alone(mixture),
    "sorted by length": loss_alone(sorted_by_length),
    "a hard batch in each epoch": loss_alone(hard_batch_in_each_epoch),
    "batches of a few samples": loss_alone(small_batches),
    "tails of Student's t": loss_alone(long_tails),
    "running mean": loss_alone(lambda rng: running_mean(language_model(rng, 0.1))),
    "policy": loss_alone(policy),
    "value of growing rewards": loss_alone(value_of_growing_rewards),
    "temporal difference": loss_alone(temporal_difference),
    "adversarial": loss_alone(adversarial),
    "Wasserstein critic": loss_alone(wasserstein),
    "likelihood below zero": loss_alone(likelihood_below_zero),
    "through zero": loss_alone(through_zero),
    "near zero": loss_alone(near_zero),
    "to machine precision": loss_alone(to_machine_precision),
    "annealed weight": loss_alone(annealed_weight),
    "physics-informed": loss_alone(physics),
    "rounded to two digits": loss_alone(rounded),
    "rounded running mean": loss_alone(rounded_mean),
    "fits its training set": overfits,
    "fine-tuning": loss_alone(fine_tuning),
    "twenty-five rows": loss_alone(short_run),
    "norms of a transformer": transformer_norms,
    "norms with Laplace tails": norms_with_laplace_tails,
    "norms that grow": norms_that_grow,
    "norms in the warm-up": norms_in_warm_up,
}


if __name__ == "__main__":
    main()
