"""Settings: read in one place, refused with their name."""

from pathlib import Path

import pytest

from runwatch.policy import PolicyLimits
from runwatch_server.errors import SettingsError
from runwatch_server.settings import Settings


def test_the_environment_sets_what_is_not_given() -> None:
    variables = {"RUNWATCH_PORT": "9000", "RUNWATCH_DATA_DIR": "/a", "RUNWATCH_POLICY": "ask"}

    settings = Settings.from_env(variables, given={"port": 9001})

    assert (settings.port, settings.data_dir, settings.policy) == (9001, Path("/a"), "ask")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORT", "many"),
        ("PORT", "70000"),
        ("POLICY", "yolo"),
        ("STALL_S", "nan"),
        ("RAW_DAYS", "-1"),
        ("MAX_ROLLBACKS", "-1"),
        ("MIN_LR_SCALE", "nan"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"(?i){name}"):
        Settings.from_env({f"RUNWATCH_{name}": text})


def test_an_address_that_others_can_reach_needs_tls_or_a_proxy() -> None:
    with pytest.raises(SettingsError, match=r"0\.0\.0\.0"):
        Settings(host="0.0.0.0")

    assert Settings(host="0.0.0.0", behind_proxy=True).host == "0.0.0.0"


def test_the_limits_of_the_policy_can_be_set() -> None:
    variables = {"RUNWATCH_MAX_ROLLBACKS": "1", "RUNWATCH_COOLDOWN_S": "5"}

    limits = Settings.from_env(variables).policy_limits

    assert limits == PolicyLimits(max_rollbacks=1, cooldown_s=5.0)


def test_limits_that_are_not_set_are_those_of_the_policy_itself() -> None:
    assert Settings().policy_limits == PolicyLimits()
