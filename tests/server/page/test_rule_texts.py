"""Rules as people read and write them."""

import pytest
from tests.server.harness import Api

from runwatch_server.page.rule_texts import NEW_RULE, as_yaml, changes, line_of
from runwatch_server.rules.documents import parse_yaml
from runwatch_server.rules.pack import split_file


@pytest.mark.anyio
async def test_what_is_written_out_is_read_back_as_the_same_rule(api: Api) -> None:
    for filed in api.services.rules.builtin:
        document, _ = parse_yaml(as_yaml(filed.file))

        (again,) = split_file(document)
        assert again.rule.hash == filed.rule.hash, filed.rule.name


@pytest.mark.anyio
async def test_a_condition_stands_on_one_line(api: Api) -> None:
    for filed in api.services.rules.builtin:
        when = line_of("", filed.file, source="builtin").when

        assert when in as_yaml(filed.file) or when.startswith("no step for"), filed.rule.name


def test_the_example_is_a_good_rule_and_keeps_its_order() -> None:
    document, _ = parse_yaml(NEW_RULE)
    (filed,) = split_file(document)

    lines = as_yaml(filed.file).splitlines()
    assert lines[0] == "version: 1"
    assert lines[4] == "  - alert: GradNormHigh"


def test_changes_tell_what_another_version_made_of_a_text() -> None:
    assert changes("a\nb\nc", "a\nx\nc") == [
        ("@", "@ -1,3 +1,3 @@"),
        *((" ", "a"), ("-", "b"), ("+", "x"), (" ", "c")),
    ]
