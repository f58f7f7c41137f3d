"""Which logs are of a training whose loss has no level of its own."""

import pytest

from runwatch_server.importing.moving_targets import mark
from runwatch_server.importing.run_log import Entry


def marked(*names: str) -> float | None:
    (entry,), _ = mark([Entry("line 2", 1, None, dict.fromkeys(names, 0.5))])
    return entry.values.get("alternating")


@pytest.mark.parametrize(
    "names",
    [
        ("train/loss", "rollout/ep_rew_mean"),
        ("loss", "mean 100 episode reward"),
        ("Loss", "Reward_Mean"),
        ("loss", "episode_return"),
        ("d_loss", "g_loss"),
        ("Loss_D", "Loss_G"),
        ("Generator_Loss", "Discriminator_Loss"),
        ("train/actor_loss", "train/critic_loss"),
    ],
)
def test_a_policy_and_two_that_play_against_each_other_are_marked(names: tuple[str, ...]) -> None:
    assert marked(*names) == 1.0


@pytest.mark.parametrize(
    "names",
    [
        ("loss", "val_loss"),
        ("loss", "rewards/chosen", "rewards/accuracies"),
        ("loss", "loss_dice", "loss_giou"),
        ("loss", "d_loss"),
    ],
)
def test_a_loss_with_a_level_is_not(names: tuple[str, ...]) -> None:
    assert marked(*names) is None


def test_the_hooks_own_word_stands() -> None:
    entries = [Entry("line 2", 1, None, {"reward": 1.0, "alternating": 0.0})]

    assert mark(entries) == (entries, ())
