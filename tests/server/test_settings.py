"""Settings: read in one place, refused with their name."""

import traceback
from pathlib import Path

import pytest

from runwatch.policy import PolicyLimits
from runwatch_server.db import make_store
from runwatch_server.errors import SettingsError
from runwatch_server.objects import make_objects
from runwatch_server.settings import Settings
from runwatch_server.signing import open_key_ring


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


SECRET = "S3CRET"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DATABASE_URL", f"postgres//u:{SECRET}@h/x"),
        ("DATABASE_URL", f"mysql://u:{SECRET}@h/x"),
        ("DATABASE_URL", f"postgresql://u:a/{SECRET}@h/x"),
        ("DATABASE_URL", f"postgresql://u:a#{SECRET}@h/x"),
        ("DATABASE_URL", f"postgresql://u:a?{SECRET}@h/x"),
        ("DATABASE_URL", f"postgresql://u:[{SECRET}@h/x"),
        ("DATABASE_URL", f"postgresql://u:{SECRET}@h:port/x"),
        ("DATABASE_URL", f"postgresql://u:{SECRET}\u2100@h/x"),
        ("DATABASE_URL", f"postgresql://u:{SECRET}"),
        ("OBJECTS_URL", f"https://u:{SECRET}@h/p"),
        ("OBJECTS_URL", f"s3://AKID:{SECRET}@bucket/p"),
        ("OBJECTS_URL", f"s3://AKID:[{SECRET}@bucket/p"),
        ("OBJECTS_URL", f"s3://bucket/p?secret_access_key={SECRET}"),
        ("OBJECTS_URL", f"file://u:{SECRET}@h/p"),
        ("EXTERNAL_URL", f"https://u:{SECRET}@h"),
        ("EXTERNAL_URL", f"ftp://u:{SECRET}@h"),
        ("ALLOWED_HOSTS", f"https://u:{SECRET}@h"),
        ("SECRET", SECRET),
    ],
)
def test_a_setting_with_a_password_is_refused_without_a_word_of_it(
    name: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=f"(?i){name}: found") as refused:
        open_parts(Settings.from_env({f"RUNWATCH_{name}": text}), tmp_path)

    assert SECRET not in "".join(traceback.format_exception(refused.value))


def open_parts(settings: Settings, folder: Path) -> None:
    """The parts of a service that settings with a password are for."""
    make_store(folder, settings.database_url)
    make_objects(settings.objects_url)
    open_key_ring(settings, is_shared=True)


def test_settings_are_shown_without_what_is_secret() -> None:
    settings = Settings(
        database_url=f"postgresql://u:{SECRET}@h/x", objects_url=f"s3://{SECRET}", secret=SECRET
    )

    assert SECRET not in repr(settings)
    assert SECRET not in repr(make_store(Path(), settings.database_url))
