"""Rule documents, as parsed from YAML or JSON, into rules; all faults are found at once."""

from collections.abc import Collection

from runwatch.rules.rule import Rule


def load_rules(document: object, *, metrics: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules of a whole document. Raises RuleError with every fault in it.

    `metrics` are names of the user's own metrics, beside those that the document lists.
    """
    raise NotImplementedError((document, metrics))
