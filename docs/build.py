"""Writes the generated pages, or with --check says which are out of date."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

import tagline
from tagline import registry
from tagline import spec as specs
from tagline.cli import app
from tagline.data import checks
from tagline.evaluation.schema import Report
from tagline.jobs.plans import Plan, PlannedPrice, PlannedUpload
from tagline.runs import events
from tagline.spec import SECTIONS, toml_values
from tagline.storage.file_models import FileModel
from vertex_rehearsal.cloud_storage.methods import list_storage_methods
from vertex_rehearsal.other_services import routes
from vertex_rehearsal.protocol import registry as services

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "tagline"
REFERENCE = ROOT / "docs" / "reference"
FILES_HEADING = "Files, in the order of their imports:"


def main() -> None:
    pages = {
        ROOT / "ARCHITECTURE.md": architecture(),
        REFERENCE / "spec.md": spec_page(),
        REFERENCE / "spec.schema.json": json.dumps(specs.json_schema(), indent=2) + "\n",
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "python.md": python_page(),
        REFERENCE / "plan.md": plan_page(),
        REFERENCE / "checks.md": checks_page(),
        REFERENCE / "report.md": report_page(),
        REFERENCE / "events.md": events_page(),
        REFERENCE / "rehearsal.md": rehearsal_page(),
        **room_docstrings(),
    }
    if "--check" in sys.argv:
        stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
        if stale:
            sys.exit(f"out of date: {', '.join(str(path.relative_to(ROOT)) for path in stale)}; run: make docs")
        return
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


def architecture() -> str:
    """The hand-written page with the maps between its marks made anew from the modules' docstrings."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for mark, tree in zip(("map", "map of the emulator"), trees(), strict=True):
        lines = "\n".join(map_lines(tree))
        text = re.sub(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", f"```\n{lines}\n```\n", text, flags=re.S)
    return text


def map_lines(tree: Any) -> Iterator[str]:
    """One line a room, in the order of imports."""
    for name in tree.rooms:
        path = tree.src / f"{name}.py"
        is_file = path.exists()
        where = path if is_file else tree.src / name / "__init__.py"
        yield f"{name + ('.py' if is_file else '/'):<16}{sentence(where)}"


def trees() -> tuple[Any, Any]:
    """Tagline and the emulator, their rooms and files in the order that a test enforces."""
    sys.path.insert(0, str(ROOT / "tests" / "meta"))
    module = importlib.import_module("test_import_order")
    return module.TAGLINE, module.EMULATOR


def room_docstrings() -> dict[Path, str]:
    """The `__init__` of every room and of every package in one, its docstring with a list of the files made anew."""
    return {
        path: with_file_list(path.parent, tree)
        for tree in trees()
        for path in tree.src.rglob("__init__.py")
        if path.parent != tree.src
    }


def with_file_list(package: Path, tree: Any) -> str:
    """A package's `__init__.py` whose docstring ends with its files and packages, in the order of imports."""
    source = (package / "__init__.py").read_text()
    node = ast.parse(source).body[0]
    said = (ast.get_docstring(ast.parse(source)) or "").partition(f"\n\n{FILES_HEADING}")[0]
    entries = []
    for path in files_in_order(package, tree):
        name = f"{path.name}/" if path.is_dir() else path.name
        line = f"- {name}: {sentence(path / '__init__.py' if path.is_dir() else path)}"
        entries += textwrap.wrap(line, 116, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    listed = "\n".join(["", "", FILES_HEADING, "", *entries, ""]) if entries else ""
    lines = source.split("\n")
    return "\n".join([f'"""{said}{listed}"""', *lines[node.end_lineno or 1 :]])


def files_in_order(package: Path, tree: Any) -> list[Path]:
    """The files and packages in a package: as the order of imports has them, else by name."""
    room, *inside = package.relative_to(tree.src).parts
    prefix = "".join(f"{part}." for part in inside)
    listed = [name.removeprefix(prefix).split(".")[0] for name in tree.rooms[room].split() if name.startswith(prefix)]
    names = dict.fromkeys(listed) or dict.fromkeys(sorted(path.stem for path in package.glob("[!_]*.py")))
    found = (package / name if (package / name).is_dir() else package / f"{name}.py" for name in names)
    return [path for path in found if path.name != "__init__.py"]


def sentence(path: Path) -> str:
    """A module's line on the map: the first line of its docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


SPEC_PREFACE = """# The spec

A spec is a TOML file. Only `data.train` is needed; everything else has a default, and the columns are guessed from the
file where they are not named. `tagline init DATA` writes a complete one. Any setting can be changed on the command line
as `section.key=value`. An unknown name, a wrong type or a value out of range is refused, all problems at once.
[spec.schema.json](spec.schema.json) is for editors.
"""


def spec_page() -> str:
    """Every setting, its default and its meaning."""
    lines = [SPEC_PREFACE]
    for name in specs.Spec.model_fields:
        parts = (
            {name: SECTIONS[name]}
            if name != "model"
            else {f"model]` for family `{family}": specs.options_of(family) for family in registry.list_names("models")}
        )
        for title, section in parts.items():
            heading = f"## `[{title}]`" if name != "model" else f"## `[{title}`"
            lines += [heading, "", (section.__doc__ or "").split("\n")[0], "", *rows(section)]
    return "\n".join(lines)


def rows(section: type) -> list[str]:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for key, field in section.model_fields.items():  # type: ignore[attr-defined]
        default = "(needed)" if field.is_required() else f"`{toml_values.format_value(field.default)}`"
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{key}` | {default} | {meaning} |")
    return [*lines, ""]


COMMANDS_PREFACE = """# The commands

As `--help` prints them. Exit codes: 0 done, 1 a check failed, 2 spec or usage, 3 data, 4 bundle or run, 5 place, 70 a
bug of ours, 130 interrupted, 143 told to stop.
"""


def command_names(command: Any, name: str = "") -> Iterator[str]:
    """A command and all below it, as they are typed after `tagline`, in the order that they were added in."""
    yield name
    for part, below in getattr(command, "commands", {}).items():
        yield from command_names(below, f"{name} {part}".strip())


def commands_page() -> str:
    """The help of every command, as the command prints it."""
    lines = [COMMANDS_PREFACE]
    environment = {"COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}  # these commands, whichever are installed
    for command in command_names(typer.main.get_command(app)):
        arguments = [sys.executable, "-m", "tagline", *command.split(), "--help"]
        text = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment).stdout
        lines += [f"## `tagline {command}".rstrip() + "`", "", "```", text.strip(), "```", ""]
    return "\n".join(lines)


PYTHON_PREFACE = """# The Python functions

`import tagline` is quick: each name is imported when it is first used. Examples that run:
[how-to/python.md](../how-to/python.md).
"""


NAMESPACES = ("runs", "jobs")
"""Packages that have the sub-commands of a command as functions."""


def python_page() -> str:
    """Every public name with its signature and what it says of itself."""
    lines = [PYTHON_PREFACE]
    for name in sorted(set(tagline.__all__) - {"__version__", *NAMESPACES}, key=lambda name: (name[0].isupper(), name)):
        value = getattr(tagline, name)
        form = "" if inspect.isclass(value) else signature(value)
        lines += [f"## `tagline.{name}{form}`", "", inspect.getdoc(value) or "", ""]
        if inspect.isclass(value) and not issubclass(value, Exception):
            lines += [*members(value), ""]
    for package in NAMESPACES:
        for name in importlib.import_module(f"tagline.{package}").COMMANDS:
            value = getattr(importlib.import_module(f"tagline.{package}"), name)
            lines += [f"## `tagline.{package}.{name}{signature(value)}`", "", inspect.getdoc(value) or "", ""]
    return "\n".join(lines)


PLAN_PREFACE = """# The plan

What `tagline train SPEC --on PLACE --plan --json` prints, and `tagline.plan` returns as a `tagline.Plan`: the job
that would be submitted, its price, and what has to be there first. Nothing is submitted, and no service is asked.
"""


def plan_page() -> str:
    """Every key of a plan and its meaning."""
    lines = [PLAN_PREFACE]
    for title, model in (("The document", Plan), ("`price`", PlannedPrice), ("Each of `uploads`", PlannedUpload)):
        lines += [
            f"## {title}",
            "",
            (model.__doc__ or "").split("\n")[0],
            "",
            "| key | type | meaning |",
            "|---|---|---|",
        ]
        properties = model.model_json_schema()["properties"]
        for key, field in model.model_fields.items():
            name = field.alias or key
            lines.append(f"| `{name}` | {json_type(properties[name])} | {field.description} |")
        lines.append("")
    return "\n".join(lines)


def json_type(schema: dict[str, Any]) -> str:
    """A JSON schema's type in a word or two."""
    if "anyOf" in schema:
        return " or ".join(json_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {json_type(schema['items'])}s"
    return str(schema.get("type", "object"))


def members(value: type) -> Iterator[str]:
    """A line for each public property and method."""
    for name, raw in vars(value).items():
        function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
        if not name.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
            form = "" if isinstance(raw, property) else signature(function)
            yield f"- `{name}{form}`: {first_line(function)}"


def signature(function: object) -> str:
    text = str(inspect.signature(function))  # type: ignore[arg-type]
    text = re.sub(r"<function \S+ at 0x[0-9a-f]+>", "...", text)  # a default that is a function has an address
    text = re.sub(r"numpy\.ndarray\[.*?\]\]", "ndarray", text)
    text = re.sub(r"(?:tagline|pathlib|collections\.abc|typing)\.(?:\w+\.)*", "", text)
    return text.replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(").replace("'", "")


def first_line(function: object) -> str:
    return (inspect.getdoc(function) or "").split("\n")[0]


CHECKS_PREFACE = """# What the checks look for

`tagline check` shows each finding with rows to look at and what to do. Errors stop `tagline train`; warnings are said
and written into the report.
"""


def checks_page() -> str:
    """What `tagline check` looks for."""
    sought = [first_line(check).removeprefix("Find ") for check in checks.CHECKS]
    return "\n".join([CHECKS_PREFACE, *(f"- {text[0].upper()}{text[1:]}" for text in sought), ""])


REPORT_PREFACE = """# report.json

What a run has measured, as JSON: `runs/<name>/report.json`, `tagline runs report --json`, `tagline evaluate --json`. In
Python `run.report()` and `tagline.evaluate` return it as a `Report`: `report.test.macro_f1`, or by the names in the
file, `report["test"]["macro_f1"]`; `report.to_dict()` is the JSON. A key with a `?` may be missing: it does not apply,
or an earlier version wrote the file. Later versions add keys; `format` changes if one is taken away or means something
else. [What the report says](../how-to/reports.md).
"""


def report_page() -> str:
    """Every key of report.json, its type and its meaning."""
    return "\n".join([REPORT_PREFACE, *(line for model in models_of(Report) for line in model_section(model))])


EVENTS_PREFACE = """# events.jsonl

What happens in a run, a JSON object a line: `runs/<name>/events.jsonl`, in Python `run.events()`. `event` says of which
kind a line is. A key with a `?` may be missing: it does not apply, or an earlier version wrote the line. Later versions
and other packages add kinds and keys: pass over those that you do not know. A run that is resumed forgets what came
after its last checkpoint, since it happens again.
"""

SHOWN_PREFACE = """## Shown and not written

Whoever watches a training sees these beside them.
"""


def events_page() -> str:
    """Every kind of event, with its keys."""
    of_report = models_of(Report)
    lines: list[str] = []
    for preface, kinds in ((EVENTS_PREFACE, events.WRITTEN), (SHOWN_PREFACE, events.SHOWN)):
        lines.append(preface)
        for kind, event in kinds.items():
            lines += model_section(event, title=f"`{kind}`")
            for part in models_of(event)[1:]:
                lines += model_section(part) if part not in of_report else []
    text = "\n".join(lines)
    for part in of_report:
        text = text.replace(f"](#{part.__name__.lower()})", f"](report.md#{part.__name__.lower()})")
    return text


def models_of(model: type[FileModel]) -> list[type[FileModel]]:
    """A model and those it is made of, each once, in the order in which they are met."""
    found = {model: None}
    for field in model.model_fields.values():
        for part in models_in(field.annotation):
            found |= dict.fromkeys(models_of(part))
    return list(found)


def models_in(annotation: Any) -> Iterator[type[FileModel]]:
    """The models that a type names."""
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def model_section(model: type[FileModel], title: str = "") -> list[str]:
    """A model's keys as a table."""
    lines = [f"## {title or model.__name__}", "", inspect.getdoc(model) or "", ""]
    lines += ["| key | type | meaning |", "|---|---|---|"]
    for key, field in model.model_fields.items():
        is_kind = key == "event" and issubclass(model, events.Event)
        mark = "" if field.is_required() or is_kind else "?"
        lines.append(f"| `{key}{mark}` | {type_name(field.annotation, field.metadata)} | {field.description} |")
    return [*lines, ""]


PLAIN_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null", Any: "any"}


def type_name(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """A type as a reader of JSON knows it."""
    arguments = get_args(annotation)
    if annotation in PLAIN_TYPES:
        return PLAIN_TYPES[annotation]
    if get_origin(annotation) is Annotated:
        return type_name(arguments[0], arguments[1:])
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if get_origin(annotation) is list:
        is_pair = "max_length=2" in repr(metadata)
        return f"list of {'two ' if is_pair else ''}{plural(type_name(arguments[0]))}"
    if get_origin(annotation) is dict:
        return f"object of {plural(type_name(arguments[1]))} by name"
    if get_origin(annotation) in (Union, UnionType):
        names = [type_name(part) for part in arguments if not (part is int and float in arguments)]
        return " or ".join(names)
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})"


def plural(name: str) -> str:
    """The name of a type, of several."""
    if name in ("whole number", "number", "text"):
        return f"{name}s"
    return name.replace("list of", "lists of", 1) if name.startswith("list") else name


REHEARSAL_PREFACE = """# What the rehearsal plays

Every method of the APIs that `tagline rehearsal start` answers to, made from the code: *played* as Google documents it,
*partly* with what is missing, or not. What is not played answers UNIMPLEMENTED over gRPC and 501 over HTTP, with the
method's name. [How it is used](../how-to/rehearsal.md).
"""


STORAGE_PREFACE = """## Cloud Storage

The JSON API. The XML API has objects (read, write, copy, delete, resumable and multipart uploads), lists and buckets,
with preconditions, ranges, checksums, predefined access control lists and customer-supplied keys; parts of a bucket or
an object that are addressed by a parameter (`?acl`, `?lifecycle`) and uploads by HTML forms answer 501 by their name.
"""
OTHER_SERVICES_PREFACE = """## Other services

At `/-/SERVICE/PATH`, where SERVICE is the first part of the name below. What else these services have is not played.
"""


def rehearsal_page() -> str:
    """Each RPC of the played APIs: played, partly, or not."""
    by_service: dict[str, list[services.EmulatedMethod]] = {}
    for known in services.build_method_table().values():
        by_service.setdefault(known.method.service, []).append(known)
    lines = [REHEARSAL_PREFACE]
    counts = [known.extent for methods in by_service.values() for known in methods]
    lines += [
        f"{len(counts)} methods: " + ", ".join(f"{counts.count(e)} {e}" for e in ("played", "partly", "not")) + ".",
        "",
    ]
    for service, methods in sorted(
        by_service.items(), key=lambda one: (all(m.extent == "not" for m in one[1]), one[0])
    ):
        lines += [f"## {service}", ""]
        done = [known for known in methods if known.part]
        if done:
            lines += ["| method | | what is missing |", "|---|---|---|"]
            lines += [f"| {known.method.name} | {known.extent} | {known.limit} |" for known in done]
            lines.append("")
        if left := sorted(known.method.name for known in methods if not known.part):
            lines += [f"Not played: {', '.join(left)}.", ""]
    lines += storage_section()
    lines += [OTHER_SERVICES_PREFACE, "| method | | what is missing |", "|---|---|---|"]
    lines += [f"| {method.id} | {method.extent} | {method.limit} |" for method in routes.methods()]
    return "\n".join([*lines, ""])


def storage_section() -> list[str]:
    """The methods of Cloud Storage's JSON API: played, partly, or not."""
    methods = list(list_storage_methods())
    lines = [STORAGE_PREFACE, "| method | | what is missing |", "|---|---|---|"]
    lines += [f"| {method.id} | {method.extent} | {method.limit} |" for method in methods if method.is_played]
    left = ", ".join(method.id for method in methods if not method.is_played)
    return [*lines, "", f"Not played: {left}.", ""]


if __name__ == "__main__":
    main()
