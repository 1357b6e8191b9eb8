"""A module imports only what stands to its right in the house's order; read from the syntax tree."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gnnbench"
FILES = sorted(PACKAGE.rglob("*.py"))
LEANING = re.compile(r"(The same|The other|What|Whether|Of|Those|That|As|Its)\b")  # on the docstring before

# What the rooms that hold the substance may import of the others, and no more.
RIGHT: dict[str, set[str]] = {
    "errors": set(),
    "stats": {"errors"},
    "registry": {"errors"},
    "units": set(),
    "stopping": set(),
    "documents": {"errors"},
    "config": {"documents", "registry", "errors", "units"},
    "graph": {"errors"},
    "ops": {"graph", "registry", "errors"},
    "results": {"stats", "errors"},
    "convs": {"ops", "graph", "results", "registry", "errors"},
    "messages": {"convs", "ops", "graph", "results", "errors"},
    "models": {"config", "registry", "errors"},
    "datasets": {"graph", "config", "results", "registry", "errors", "units"},
    "measure": {"config", "results", "stats", "units", "errors"},
    "launch": {"stopping", "measure", "datasets", "results", "errors"},
    "store": {"measure", "ops", "graph", "results", "errors"},
    "backends": {"messages", "convs", "ops", "graph", "measure", "config", "results", "registry", "errors"},
    "partition": {"measure", "backends", "ops", "datasets", "graph", "config", "results", "errors"},
    "sample": {"backends", "graph", "errors"},
    "patch": {"sample", "messages", "backends", "convs", "ops", "graph", "errors"},
}
# The rooms that orchestrate them: each may import those after it, and all of the above.
ORDER = (
    "__main__",
    "cli",
    "api",
    "doctor",
    "history",
    "kinds",
    "papers",
    "sweeps",
    "cells",
    "tuning",
    "inference",
    "benchmarks",
    "comparison",
    "profiling",
    "report",
    "trackers",
    "training",
    "__init__",
)
UP = {"backends/patched.py": {"patch"}}  # a backend that is the drop-in itself; nothing imports it by name
PURE_PYG = ("backends/pyg.py", "backends/pyg_compile.py", "backends/pyg_sparse.py")
LIGHT = (
    "config.py",
    "documents.py",
    "errors.py",
    "registry.py",
    "api/",
    "cli/",
    "launch/",
    "datasets/",
    "results/",
    "stats.py",
)
HEAVY = {"torch", "torch_geometric", "ogb", "scipy", "matplotlib"}
# Modules of datasets that import PyTorch with their first line; light files import these, too, in functions only.
LATE = r"gnnbench\.datasets\._(describe|own|prepare|prepare_graphs|reorder)(\.|$)"
CONV = re.compile(r"[A-Z]\w+Conv")
COMPILED = "gnnbench.backends.isplib._(?!base|compiled)"


def unit(path: Path) -> str:
    """Return its room; the store of tuned choices, which runs read, lies further right than the tuner."""
    return "store" if name(path) == "tuning/store.py" else path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def within(modules: dict[str, Path], imported: str) -> str | None:
    """The module of this package that an import reaches; none for a compiled one or another package."""
    if re.match(COMPILED, imported):
        return None
    while imported and imported not in modules:
        imported = imported.rpartition(".")[0]
    return imported if imported != "gnnbench" else None


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path, *, everywhere: bool = True, types: bool = False) -> Iterator[str]:
    """Dotted names that a file imports; at module level only if not `everywhere`."""
    todo: list[ast.AST] = [*parsed(path).body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.body if types else []
        elif everywhere or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += ast.iter_child_nodes(node)


def ours(path: Path) -> set[str]:
    """Units of this package that a file imports, in functions too."""
    found = [imported.split(".") for imported in imports(path) if imported.startswith("gnnbench.")]
    return {"store" if parts[1:3] == ["tuning", "store"] else parts[1] for parts in found}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_to_the_right(path: Path) -> None:
    allowed = RIGHT[unit(path)] if unit(path) in RIGHT else {*ORDER[ORDER.index(unit(path)) :], *RIGHT}
    assert ours(path) <= allowed | {unit(path), "__version__"} | UP.get(name(path), set())


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = {dotted(path): path for path in FILES}
    edges = {
        module: {
            found for found in (within(modules, text) for text in imports(path)) if found not in (None, module)
        }
        for module, path in modules.items()
    }
    assert list(TopologicalSorter(edges).static_order())


@pytest.mark.parametrize("path", sorted({path.parent for path in FILES}), ids=name)
def test_every_room_opens_with_a_map(path: Path) -> None:
    """Name all of its files, but for those that a registry finds by their names."""
    text = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
    found = {file.stem for file in path.glob("*.py")} - {"__init__"}
    registries = "convs models datasets backends papers kinds api batching families trackers"
    registered = path.name in registries.split()
    assert [
        stem for stem in found if not re.search(rf"\b{stem}\b", text) and not (registered and stem[0] != "_")
    ] == []


def test_every_unit_has_its_place() -> None:
    assert {unit(path) for path in FILES} <= {*ORDER, *RIGHT}


@pytest.mark.parametrize("path", [PACKAGE / file for file in PURE_PYG], ids=name)
def test_the_pyg_backends_know_nothing_of_our_ops(path: Path) -> None:
    others = {imported for imported in imports(path) if imported.startswith("gnnbench.backends.")}
    assert not ours(path) & {"ops", "convs", "patch", "graph"}
    assert others <= {"gnnbench.backends.base"}


@pytest.mark.parametrize("path", [path for path in FILES if name(path).startswith(LIGHT)], ids=name)
def test_torch_is_imported_in_functions_only(path: Path) -> None:
    """So that `--help` and validating a configuration stay fast; modules themselves are loaded late."""
    if re.match(LATE, dotted(path)):
        return
    found = {*imports(path, everywhere=False)}
    assert not {imported.split(".")[0] for imported in found} & HEAVY
    assert [imported for imported in found if re.match(LATE, imported)] == []


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        (
            "torch_geometric",
            (
                "convs/",
                "models/",
                "datasets/",
                "backends/dgl.py",
                "backends/pyg",
                "benchmarks/draws.py",
                "benchmarks/peers.py",
                "benchmarks/collate.py",
                "graph/cache.py",
                "patch/",
                "messages/",
                "sample/",
                "measure/environment.py",
                "training/batching/_pyg",
            ),
        ),
        ("triton", ("backends/cuda/_triton.py",)),
        ("time", ("measure/clock.py", "benchmarks/dgl_child.py")),  # which another interpreter runs
        (COMPILED, ()),  # but `_compiled.load`, by name
        ("gnnbench.cli", ("__main__.py", "cli/")),
    ],
)
def test_only_these_files_import(package: str, allowed: tuple[str, ...]) -> None:
    users = [name(path) for path in FILES if any(re.match(package, found) for found in imports(path))]
    assert [user for user in users if not user.startswith(allowed)] == []


def test_a_conv_is_named_in_files_of_its_own_only() -> None:
    """Beside PyG's own code as a baseline; a new conv is one file."""
    allowed = ("convs/", "models/", "backends/dgl.py", "backends/pyg_sparse.py", "benchmarks/peers.py")
    for path in FILES:
        nodes = [*ast.walk(parsed(path))]
        used = {getattr(node, "id", None) or getattr(node, "attr", "") for node in nodes}
        used |= {text.rpartition(".")[2] for text in imports(path)}
        convs = [each for each in used if CONV.fullmatch(each)]
        assert not convs or name(path).startswith(allowed), f"{name(path)} names {convs}"


def test_no_file_is_too_long_to_read() -> None:
    assert {name(path): lines for path in FILES if (lines := len(path.read_text().splitlines())) > 450} == {}


def test_a_docstring_can_be_read_without_the_one_before() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for path in (*FILES, *sorted(Path(__file__).parent.rglob("*.py"))):
        texts = [ast.get_docstring(node) or "" for node in ast.walk(parsed(path)) if isinstance(node, kinds)]
        leaning = [text for text in texts if LEANING.match(text)]
        assert not leaning, f"{path}: begin with a verb, not with {leaning[0]!r}"
