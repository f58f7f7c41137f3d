"""The interface that is committed is the one that there is."""

import json

from tests.house.interface import PAGE, rendered


def test_the_description_of_the_interface_is_of_this_commit() -> None:
    assert rendered() == PAGE.read_text(encoding="utf-8"), "the interface changed: run `make docs`"


def test_what_is_deleted_is_answered_with_nothing() -> None:
    paths = json.loads(PAGE.read_text(encoding="utf-8"))["paths"]
    deletions = [methods["delete"] for methods in paths.values() if "delete" in methods]
    answers = {status for one in deletions for status in one["responses"] if status < "300"}

    assert answers == {"204"}


def test_every_field_of_a_body_says_what_it_means() -> None:
    paths = json.loads(PAGE.read_text(encoding="utf-8"))["paths"]
    bodies = {
        f"{method} {path}": content["schema"].get("properties", {})
        for path, methods in paths.items()
        for method, operation in methods.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    }
    silent = [
        f"{body}: {name}"
        for body, fields in bodies.items()
        for name, facts in fields.items()
        if "description" not in facts
    ]

    assert "post /api/v1/silences" in bodies
    assert silent == []
