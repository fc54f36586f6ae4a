# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The shape of the source: floors, sizes, headers and words that do not belong in it. Reads, imports nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CORE = "gym_objstore"


class Floor(NamedTuple):
    """A module may import its own floor and those below. A name without ``*`` beats a pattern."""

    name: str
    what: str
    modules: str


FLOORS = (
    Floor("words", "errors, ids, names and keys know nothing else", "errors ids names keys run_keys"),
    Floor("frames", "what zstd works with, a set for each thread", "frames"),
    Floor("programs", "real servers for tests and demos need only errors", "testing.processes testing.servers"),
    Floor(
        "bytes",
        "what is recorded and hashed knows no store",
        """digests records sealing fingerprint responses stamps codec wire_* staging_digests reasons portable bodies
        correlation calls calls_* capture_record sse sse_* reassembly redaction attachment routed_experts
        staged_attachments staged_chains staged_columns staged_rows staged_tensors""",
    ),
    Floor("store", "a store knows objects, not what they mean", "store store.* observing"),
    Floor("flow", "operations and the drivers that play them on a store", "flow operations threads computing"),
    Floor(
        "domain",
        "flows only: what is stored where, in which order, and what follows from a listing",
        """objects index packs tokens lineage retirement trajectories captures captures_* staging staging_rows
        staged_calls ledger ledger_* manifests receipts receipts_* linearize terminal retention sweeping
        admission commit checking references garbage guards runs run_removal usage copying proofs checking_objects
        gym_rows importing exporting""",
    ),
    Floor(
        "faces",
        "where flows meet a store, a clock and a user",
        """settings cache writer spill replaying connection capture_store sinks ledgers staging_sinks installed
        rollout_capture observers observing_* metrics preflight
        gym_folder gym_pieces gym_import gym_export reading parquet
        client client_* control_* external_* http http_*
        middleware middleware_* proxy proxy.* proxy_* diagnosis demo demo.* cli cli.* __main__ __init__""",
    ),
    Floor("testing", "kits for tests may use everything and are used by nothing", "testing testing.*"),
)

# What only one floor may touch, and why.
FOREIGN = {
    "domain": (
        "a flow does no I/O and knows no clock, chance, lock or log: the explorer could not play it otherwise",
        """asyncio concurrent datetime logging multiprocessing os pathlib queue random secrets shutil socket
        subprocess tempfile threading time uuid""",
    ),
    "bytes": (
        "what is hashed depends on its input alone",
        "logging random secrets socket subprocess threading time uuid",
    ),
    "words": (
        "keys depend on ids alone",
        "logging random secrets socket subprocess threading time uuid",
    ),
}
CLIENTS = {"aioboto3", "aiobotocore", "boto3", "botocore", "fsspec", "obstore", "s3fs"}
CLIENTS_ALLOWED = {
    "store.*": "backends translate their client's exceptions, so nobody else may see them",
    "diagnosis": "asks about the bucket's administration, where a refusal is an answer",
    "testing.servers": "makes buckets without any code of ours",
    "testing.store_suite.*": "looks behind the store's back",
}

MODULE_LINES = 300
BODY_LINES = 30
POSITIONAL = 5
LONG_MODULES: dict[str, str] = {}
LONG_BODIES: dict[str, str] = {}
MANY_PARAMETERS = {
    "gym_objstore/cli/*": "typer reads a command's options from its parameters",
}

HEADER = "# SPDX-FileCopyrightText: 2026 the gym_objstore authors\n# SPDX-License-Identifier: Apache-2.0\n"
TREES = (
    "gym_objstore",
    "adapters",
    "tests",
    "benchmarks",
    "examples",
    "docs",
    "terraform",
    ".ci",
    "Makefile",
    "pyproject.toml",
)
SOURCE = ("*.py", "*.toml", "*.tf", "*.sh", "*.yaml", "*.yml", "Makefile", "run")
TEXT = (*SOURCE, "*.md", "*.json", "*.txt")
# Written so that they do not find themselves.
UNWANTED = {
    r"(?<![\w>}])/(?:root|work|opt|tmp/[a-z])/": "a path of one machine",
    r"pypi\.(?:org)|python(?:hosted)|(?:index|registry)\.docker": "the host of a registry",
    r"\b(?:TOD[O]|FIXM[E]|XX[X])\b": "unfinished work",
    r"type: (?:ignore)(?!\[)": "a silenced type error that does not say which",
}


class Module(NamedTuple):
    path: Path
    name: str
    tree: ast.Module
    lines: int

    @property
    def file(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def modules(top: str) -> Iterator[Module]:
    for path in sorted((ROOT / top).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT / top).with_suffix("").parts
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        yield Module(path, dotted, ast.parse(text), text.count("\n"))


CORE_MODULES = {module.name: module for module in modules(CORE)}
ADAPTER_MODULES = {module.name: module for module in modules("adapters")}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full names that a tree imports, at any depth and for types alone too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(module: Module) -> set[str]:
    """Return the names of the core's own modules that a module imports."""
    found = set()
    for name in imported(module.tree):
        parts = name.split(".")
        if parts[0] == CORE:
            inner = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
            found.add(next((one for one in inner if one in CORE_MODULES), "__init__"))
    return found - {module.name}


def matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def floors_of(name: str) -> list[int]:
    exact = [level for level, floor in enumerate(FLOORS) if name in floor.modules.split()]
    return exact or [level for level, floor in enumerate(FLOORS) if matches(name, floor.modules)]


def floor_of(name: str) -> Floor:
    """Return a module's floor; the top one where it has none, which is another test's to say."""
    return FLOORS[min(floors_of(name), default=len(FLOORS) - 1)]


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module.file}:{node.name}", node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a body from its first statement after the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def unexplained(found: dict[str, str], reasons: dict[str, str]) -> list[str]:
    """Return what has no reason, and the reasons that nothing needs any more."""
    needless = [
        f"{pattern}: listed here, needed nowhere"
        for pattern in reasons
        if not any(matches(one, pattern) for one in found)
    ]
    return [
        f"{one}: {why}" for one, why in found.items() if not any(matches(one, pattern) for pattern in reasons)
    ] + needless


def texts(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for top in TREES:
        entry = ROOT / top
        for path in [entry] if entry.is_file() else sorted(entry.rglob("*")):
            if path.is_file() and any(fnmatchcase(path.name, name) for name in names):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def listed(wrong: list[str]) -> str:
    return "\n".join(["", *wrong])


def test_every_module_stands_on_exactly_one_floor() -> None:
    wrong = {
        name: [FLOORS[level].name for level in floors_of(name)] for name in CORE_MODULES if len(floors_of(name)) != 1
    }
    assert wrong == {}, "add the module to one floor of FLOORS"


def test_imports_go_down_only() -> None:
    wrong = [
        f"{module.file} imports {name} of the floor {floor_of(name).name}, but {floor_of(module.name).what}"
        for module in CORE_MODULES.values()
        for name in sorted(imported_modules(module))
        if FLOORS.index(floor_of(name)) > FLOORS.index(floor_of(module.name))
    ]
    assert not wrong, listed(wrong)


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {
        name: imported_modules(module) - {"__init__"} for name, module in CORE_MODULES.items() if name != "__init__"
    }
    circle = None
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle is None


def test_the_core_does_not_know_its_adapters() -> None:
    wrong = [
        f"{module.file} imports {name}"
        for module in CORE_MODULES.values()
        for name in imported(module.tree)
        if name.startswith(f"{CORE}_") or name.split(".")[0] in {"megatron", "nemo_gym", "ray", "torch", "vllm"}
    ]
    assert not wrong, listed(wrong)


def test_each_floor_leaves_alone_what_belongs_to_others() -> None:
    wrong = []
    for module in CORE_MODULES.values():
        why, banned = FOREIGN.get(floor_of(module.name).name, ("", ""))
        taken = {name.split(".")[0] for name in imported(module.tree)} & set(banned.split())
        wrong += [f"{module.file} imports {name}: {why}" for name in sorted(taken)]
    assert not wrong, listed(wrong)


def test_storage_clients_are_seen_by_backends_only() -> None:
    wrong = [
        f"{module.file} imports {client}: {CLIENTS_ALLOWED['store.*']}"
        for module in CORE_MODULES.values()
        for client in sorted({name.split(".")[0] for name in imported(module.tree)} & CLIENTS)
        if not any(fnmatchcase(module.name, pattern) for pattern in CLIENTS_ALLOWED)
    ]
    assert not wrong, listed(wrong)


def test_modules_are_short() -> None:
    every = [*CORE_MODULES.values(), *ADAPTER_MODULES.values()]
    long = {module.file: f"{module.lines} lines" for module in every if module.lines > MODULE_LINES}
    assert not (wrong := unexplained(long, LONG_MODULES)), listed(wrong)


def test_functions_are_short() -> None:
    every = [*CORE_MODULES.values(), *ADAPTER_MODULES.values()]
    bodies = {name: body_lines(function) for module in every for name, function in functions(module)}
    long = {name: f"{lines} lines" for name, lines in bodies.items() if lines > BODY_LINES}
    assert not (wrong := unexplained(long, LONG_BODIES)), listed(wrong)


def test_functions_take_few_parameters_by_position() -> None:
    every = [*CORE_MODULES.values(), *ADAPTER_MODULES.values()]
    counts = {
        name: len([one for one in (*function.args.posonlyargs, *function.args.args) if one.arg not in {"self", "cls"}])
        for module in every
        for name, function in functions(module)
    }
    many = {name: f"{count} positional parameters" for name, count in counts.items() if count > POSITIONAL}
    assert not (wrong := unexplained(many, MANY_PARAMETERS)), listed(wrong)


def test_every_source_file_names_its_licence() -> None:
    bare = [name for name, text in texts(SOURCE) if not re.sub(r"\A#!.*\n", "", text).startswith(HEADER)]
    assert not bare, listed(bare)


def test_no_file_says_what_belongs_to_one_machine_or_is_unfinished() -> None:
    wrong = [
        f"{name}: {match.group()!r} is {why}"
        for name, text in texts(TEXT)
        for pattern, why in UNWANTED.items()
        for match in re.finditer(pattern, text)
    ]
    assert not wrong, listed(wrong)
