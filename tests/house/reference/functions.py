"""docs/reference/rule-functions.md: what a rule's condition may call, and with what."""

from tests.house.reference.docstrings import table

from runwatch.rules.functions import FUNCTIONS, Function, Parameter

HEAD = """# Functions of rules

Made from the code by `make docs`. What each is worth, and how windows are counted, is in
[rules.md](../rules.md#what-a-condition-may-say).

{functions}
"""


def rendered() -> str:
    rows = [
        [f"`{name}`", ", ".join(_said(one) for one in function.parameters), _smallest(function)]
        for name, function in FUNCTIONS.items()
    ]
    heading = ["function", "its arguments, in order", "smallest window"]
    return HEAD.format(functions=table(heading, rows))


def _said(parameter: Parameter) -> str:
    return parameter.value


def _smallest(function: Function) -> str:
    has_window = Parameter.SIZE in function.parameters
    return str(function.smallest) if has_window else ""
