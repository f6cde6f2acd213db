"""Writes CycloneDX bills of materials into dist/: of the wheel with what it installs, and of the serving image.

Run by `make sbom`. Both are read from an environment into which the wheel was installed as the image installs it; the
packages of the image's base are listed by its maker, so that the image itself stands for them, by digest.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tagline.images import dockerfiles, wheels

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def main() -> None:
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        listed = list_packages(install_wheel(Path(directory)))
    write("tagline-wheel.cdx.json", listed)
    write("tagline-serving-image.cdx.json", describe_image(listed))


def install_wheel(directory: Path) -> Path:
    """An environment with the wheel and the versions that the serving image has; returns its Python."""
    wheel = wheels.build_wheel()
    (directory / wheel.file).write_bytes(wheel.content)
    (directory / "requirements.txt").write_text("\n".join(wheels.list_pins()) + "\n")
    run(sys.executable, "-m", "venv", directory / "environment", "--without-pip")
    python = directory / "environment" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(*pip, "--requirement", directory / "requirements.txt")
    run(*pip, "--no-deps", "--no-index", directory / wheel.file)
    return python


def list_packages(python: Path) -> dict[str, Any]:
    """What is installed in an environment, as CycloneDX."""
    command = (Path(sys.executable).parent / "cyclonedx-py", "environment", python, "--output-reproducible")
    listed: dict[str, Any] = json.loads(run(*command, "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library"))
    listed["metadata"]["component"]["version"] = wheels.build_wheel().version
    return listed


def describe_image(listed: dict[str, Any]) -> dict[str, Any]:
    """The same packages inside the serving image, on its base."""
    name, _, digest = dockerfiles.BASE.partition("@")
    base: dict[str, Any] = {"type": "container", "bom-ref": dockerfiles.BASE, "name": name}
    if digest:
        base["hashes"] = [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]
    image = {
        "type": "container",
        "bom-ref": dockerfiles.NAME,
        "name": dockerfiles.NAME,
        "version": wheels.build_wheel().version,
    }
    wheel = listed["metadata"]["component"]
    depends = {"ref": dockerfiles.NAME, "dependsOn": [dockerfiles.BASE, wheel["bom-ref"]]}
    return listed | {
        "metadata": listed["metadata"] | {"component": image},
        "components": [*listed["components"], wheel, base],
        "dependencies": [*listed["dependencies"], depends],
    }


def write(name: str, bill: dict[str, Any]) -> None:
    (DIST / name).write_text(json.dumps(bill, indent=2) + "\n")
    sys.stdout.write(f"wrote dist/{name}: {len(bill['components'])} components\n")


def run(*command: str | Path) -> str:
    """What a command prints; it must succeed."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
