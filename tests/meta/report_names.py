"""Prints how functions and classes are named. A report, not a gate.

Wanted: fewer than 45 % of functions named by one word, fewer than 2 % by a participle, no class name defined twice.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for src in ("src", "rehearsal/src") for path in (ROOT / src).rglob("*.py") if not path.is_symlink()]
PARTICIPLE = re.compile(r"\w{2,}(?:ed|aid|ade|ound|iven|ept|orn|own|ilt|eld|oken|itten|aken)")
NO_PARTICIPLES = frozenset(("need", "feed", "seed", "speed", "embed", "exceed", "proceed", "fade", "grade", "round"))


def read_definitions() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Every function, method and class of both packages."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node


def main() -> None:
    """Print the report."""
    definitions = list(read_definitions())
    functions = [node.name.strip("_") for node in definitions if not isinstance(node, ast.ClassDef)]
    functions = [name for name in functions if name and name not in ("init", "call", "enter", "exit")]
    classes = Counter(node.name for node in definitions if isinstance(node, ast.ClassDef))
    single = sum("_" not in name for name in functions)
    participles = [name for name in functions if PARTICIPLE.fullmatch(name) and name not in NO_PARTICIPLES]
    twice = sorted(name for name, count in classes.items() if count > 1)
    lines = [line for path in SOURCES for line in path.read_text().split("\n")]
    skips = sum("# fmt: skip" in line for line in lines)
    shares = [count / len(functions) for count in (single, len(participles))]
    print(f"{len(functions):,} functions: {shares[0]:.0%} named by one word, {shares[1]:.1%} by a participle")
    print(f"{len(classes):,} class names, {len(twice)} defined more than once: {', '.join(twice)}")
    print(f"formatter switched off {1000 * skips / len(lines):.1f} times in 1,000 lines")


if __name__ == "__main__":
    main()
