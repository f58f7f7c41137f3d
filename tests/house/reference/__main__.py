"""`make docs`: writes the pages of docs/reference."""

import sys

from tests.house.reference.pages import FOLDER, PAGES


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
