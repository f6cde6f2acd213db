"""Python as it is where only the base install is: importing what training needs is an error."""

import subprocess
import sys

SERVING_LACKS = (
    "torch",
    "transformers",
    "sklearn",
    "scipy",
    "pyarrow",
    "google",
    "optuna",
    "peft",
    "datasets",
    "starlette",
    "uvicorn",
)


def run_bare(code: str, *arguments: str) -> str:
    """What a piece of Python prints there."""
    refuse = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVING_LACKS!r}:
            raise ModuleNotFoundError(name + " is not installed", name=name)
sys.meta_path.insert(0, Refuse())
"""
    done = subprocess.run(
        [sys.executable, "-c", refuse + code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
