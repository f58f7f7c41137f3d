"""What `runwatch doctor` says of the environment."""

from runwatch.findings import Verdict
from runwatch_server.cli.setting_checks import check_settings, check_sqlite


def told(**variables: str) -> list[tuple[str, Verdict, str]]:
    return [(one.name, one.verdict, one.advice) for one in check_settings(variables)]


def test_an_sqlite_that_can_damage_its_wal_is_noted_here_and_nowhere_else() -> None:
    old, safe = check_sqlite((3, 40, 1)), check_sqlite((3, 51, 3))

    assert (old.verdict, safe.verdict) == (Verdict.NOTE, Verdict.GOOD)
    assert old.found == "3.40.1 can damage its WAL when another process writes at a checkpoint"
    assert "SQLite 3.51.3 or newer" in old.advice


def test_a_clean_environment_is_good() -> None:
    assert told() == [("settings of a service", Verdict.GOOD, "")]


def test_each_setting_is_looked_at_by_itself() -> None:
    found = told(RUNWATCH_PORT="eighty", RUNWATCH_STALL_S="60", RUNWATCH_TOKEN="x")

    assert found == [
        ("RUNWATCH_PORT", Verdict.WRONG, ""),
        ("RUNWATCH_STALL_S", Verdict.GOOD, ""),
    ]


def test_a_mistyped_name_is_wrong_and_a_foreign_one_is_told() -> None:
    found = told(RUNWATCH_POLCY="auto", RUNWATCH_TEAM_COLOUR="blue")

    assert found[0] == ("RUNWATCH_POLCY", Verdict.WRONG, "did you mean RUNWATCH_POLICY?")
    assert found[1][1] is Verdict.NOTE


def test_settings_that_do_not_go_together_are_wrong() -> None:
    assert told(RUNWATCH_TLS_CERT="cert.pem")[-1][1] is Verdict.WRONG
    assert told(RUNWATCH_HOST="0.0.0.0")[-1][1] is Verdict.WRONG
    together = told(RUNWATCH_HOST="0.0.0.0", RUNWATCH_BEHIND_PROXY="1")
    assert {verdict for _, verdict, _ in together} == {Verdict.GOOD}


def test_no_secret_is_told() -> None:
    found = str(list(check_settings({"RUNWATCH_TOKEN": "runwatch_secret"})))

    assert "secret" not in found
