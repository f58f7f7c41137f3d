"""Programs beside `runwatch` that the documents name are there: targets, extras, benchmarks."""

import re
import tomllib
from pathlib import Path

import pytest
from tests.house import documents
from tests.house.documents import ROOT

PAGES = documents.pages()


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_of_make_is_one(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    shown = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.M))

    assert shown <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_extra_is_one(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = re.findall(r"(?:runwatch|\.)\[([a-z,]+)\]", page.read_text(encoding="utf-8"))

    assert {extra for one in shown for extra in one.split(",")} <= set(
        project["optional-dependencies"]
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_benchmark_is_one_and_takes_its_options(page: Path) -> None:
    for module, options in re.findall(
        r"(?:python -m |`)(benchmarks(?:\.\w+)+)([^`\n]*)", page.read_text(encoding="utf-8")
    ):
        source = source_of(module)
        for option in re.findall(r"--[a-z][a-z-]*", options):
            assert f'"{option}"' in source, f"{name_of(page)}: {module} {option}"


def source_of(module: str) -> str:
    place = ROOT.joinpath(*module.split("."))
    file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    return file.read_text(encoding="utf-8")
