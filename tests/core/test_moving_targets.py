"""Which names are of a training whose loss has no level of its own."""

import pytest

from runwatch.moving_targets import signs_of


@pytest.mark.parametrize(
    "names",
    [
        ("train/loss", "rollout/ep_rew_mean"),
        ("loss", "mean 100 episode reward"),
        ("Loss", "Reward_Mean"),
        ("loss", "episode_return"),
        ("loss", "charts/episodic_return"),
        ("d_loss", "g_loss"),
        ("Loss_D", "Loss_G"),
        ("Generator_Loss", "Discriminator_Loss"),
        ("train/actor_loss", "train/critic_loss"),
        ("loss", "return", "policy_loss"),
        ("loss", "sim/train/return", "sim/episodes"),
        ("loss", "Mean_Return", "Episode"),
        ("loss", "eval/returns", "train/policy_gradient_loss"),
    ],
)
def test_a_policy_and_two_that_play_against_each_other_are_told(names: tuple[str, ...]) -> None:
    assert signs_of(names)


@pytest.mark.parametrize(
    "names",
    [
        ("loss", "val_loss"),
        ("loss", "rewards/chosen", "rewards/accuracies"),
        ("loss", "reward_model_loss", "reward_accuracy", "reward_margin"),
        ("loss", "loss_dice", "loss_giou"),
        ("loss", "d_loss"),
        ("loss", "return", "sharpe"),
        ("loss", "policy_loss", "episode"),
        ("loss", "returned_tokens", "episode"),
    ],
)
def test_a_loss_with_a_level_is_not(names: tuple[str, ...]) -> None:
    assert signs_of(names) == []
