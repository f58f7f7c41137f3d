"""Which logs are of a training whose loss has no level of its own."""

from runwatch_server.importing.moving_targets import mark
from runwatch_server.importing.run_log import Entry


def test_a_log_with_rewards_is_marked_in_each_row() -> None:
    entries = [Entry("line 2", 1, None, {"loss": 0.5, "reward": 1.0})]
    entries += [Entry("line 3", 2, None, {"loss": 0.4}), Entry("line 4", 3, None, {})]

    marked, notices = mark(entries)

    assert [entry.values.get("alternating") for entry in marked] == [1.0, 1.0, None]
    assert notices == ("reward: the loss is not judged by its level",)


def test_a_log_without_is_left_as_it_is() -> None:
    entries = [Entry("line 2", 1, None, {"loss": 0.5, "val_loss": 0.6})]

    assert mark(entries) == (entries, ())


def test_the_hooks_own_word_stands() -> None:
    entries = [Entry("line 2", 1, None, {"reward": 1.0, "alternating": 0.0})]

    assert mark(entries) == (entries, ())
