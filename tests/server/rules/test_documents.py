"""YAML that is none, or wants more than a rule file can: refused with its line, in no time."""

import pytest
import yaml

from runwatch.errors import RuleError
from runwatch_server.rules.documents import LOADER, parse_yaml

LOADERS = pytest.mark.parametrize("loader", dict.fromkeys([LOADER, yaml.SafeLoader]))


@LOADERS
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a: 1\nb: !!int ""', "line 2, file: found the tag tag:yaml.org,2002:int, wanted none"),
        (
            "!!timestamp soon",
            "line 1, file: found the tag tag:yaml.org,2002:timestamp, wanted none",
        ),
        ("a: !!set {b}", "line 1, file: found the tag tag:yaml.org,2002:set, wanted none"),
        ("a: &b 1\nc: *b", "line 2, file: found the alias *b, wanted none"),
        ("when: 2026-02-30", "file: found invalid YAML: day is out of range for month"),
        (f"for: 1{200 * ':00'}.0", "file: found invalid YAML: int too large to convert to float"),
    ],
)
def test_what_no_rule_file_holds_is_named(
    text: str, told: str, loader: type[yaml.SafeLoader]
) -> None:
    with pytest.raises(RuleError) as refused:
        parse_yaml(text, loader)

    assert str(refused.value) == told


@LOADERS
@pytest.mark.parametrize("escape", [r"\ud800", r"\U00110000", r"\UFFFFFFFF"])
def test_an_escape_of_no_character_is_refused(escape: str, loader: type[yaml.SafeLoader]) -> None:
    with pytest.raises(RuleError, match="found invalid YAML"):
        parse_yaml(f'summary: "{escape}"', loader)


@LOADERS
@pytest.mark.parametrize("opening", ["[", "[\n", "{a: ", "- ", "? ", "[? a, "])
def test_depth_is_refused_before_it_is_followed(
    opening: str, loader: type[yaml.SafeLoader]
) -> None:
    with pytest.raises(RuleError, match="33 deep, wanted at most 32"):
        parse_yaml(opening * (200_000 // len(opening)), loader)


@LOADERS
def test_each_place_has_its_line(loader: type[yaml.SafeLoader]) -> None:
    document, lines = parse_yaml("a:\n- 1\n- b: 2\n", loader)

    assert document == {"a": [1, {"b": 2}]}
    assert lines == {"": 1, "a": 2, "a[0]": 2, "a[1]": 3, "a[1].b": 3}


@LOADERS
def test_an_empty_text_holds_nothing(loader: type[yaml.SafeLoader]) -> None:
    assert parse_yaml("# nothing\n", loader) == (None, {})
