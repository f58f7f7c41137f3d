"""The rules that judge a run, as one value: the built-in pack, overridden by people's rules."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Final

import msgspec

from runwatch.rules import Rule, load_rules
from runwatch_server.rules.documents import parse_yaml

BUILTIN: Final = "builtin:"
"""With its name after it, the id of a built-in rule."""


@dataclass(frozen=True, slots=True)
class FiledRule:
    """A rule, and the document of a file with this rule alone."""

    rule: Rule
    file: Mapping[str, object]

    @property
    def text(self) -> str:
        """The file as canonical JSON, in which it is stored and compared."""
        return msgspec.json.encode(self.file, order="sorted").decode()


@dataclass(frozen=True)
class RuleSet:
    """Rules in the order in which they are evaluated."""

    filed: tuple[FiledRule, ...]

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(filed.rule for filed in self.filed)

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """The rules' documents, by the rule's name."""
        return {rule.name: rule.hash for rule in self.rules}

    def hashes_since(self, before: "RuleSet") -> dict[str, str]:
        """The hashes of rules that judge as they did in `before`, by their hashes there. Of these
        rules nothing but the texts has changed."""
        known = {rule.verdict_hash: rule.hash for rule in before.rules}
        return {
            known[rule.verdict_hash]: rule.hash for rule in self.rules if rule.verdict_hash in known
        }

    @property
    def documents(self) -> list[object]:
        return [dict(filed.file) for filed in self.filed]

    @cached_property
    def hash(self) -> str:
        """SHA-256 in hexadecimal; equal for the same rules in the same order."""
        texts = "\n".join(filed.text for filed in self.filed)
        return hashlib.sha256(texts.encode()).hexdigest()

    @classmethod
    def of_documents(cls, documents: Sequence[object]) -> "RuleSet":
        """The set whose `documents` these are."""
        return cls(tuple(filed for document in documents for filed in split_file(document)))


def split_file(document: object) -> tuple[FiledRule, ...]:
    """The rules of a file's document, each with a document of its own. Raises RuleError."""
    rules = load_rules(document)
    metrics = msgspec.convert(document, _Announced).metrics
    return tuple(FiledRule(rule, _file_of(rule, metrics)) for rule in rules)


class _Announced(msgspec.Struct):
    """The metrics that a rule file announces; `load_rules` has checked the file."""

    metrics: list[str] = []


@cache  # reading takes a tenth of a second, and several parts need it
def load_builtin() -> tuple[FiledRule, ...]:
    """The built-in rules."""
    text = (files("runwatch_server.rules") / "builtin.yaml").read_text("utf-8")
    document, _ = parse_yaml(text)
    return split_file(document)


def layered(*layers: Mapping[str, FiledRule | None]) -> RuleSet:
    """The rules of several layers by name: a later layer's rule replaces an earlier one's, and None
    removes it."""
    merged: dict[str, FiledRule | None] = {}
    for layer in layers:
        merged.update(layer)
    return RuleSet(tuple(filed for filed in merged.values() if filed is not None))


def _file_of(rule: Rule, metrics: object) -> dict[str, object]:
    group = {"name": rule.group or "rules", "rules": [dict(rule.document)]}
    return {"version": 1, "metrics": metrics, "groups": [group]}
