"""A module imports only what stands to its right in the house's order; read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gnnbench"
FILES = sorted(PACKAGE.rglob("*.py"))

# What the units that hold the substance may import of the others, and no more.
RIGHT: dict[str, set[str]] = {
    "errors": set(),
    "stats": {"errors"},
    "registry": {"errors"},
    "binding": set(),
    "units": set(),
    "config": {"registry", "errors", "units"},
    "handles": {"errors"},
    "graph": {"handles", "errors"},
    "adjacency": {"graph", "errors"},
    "ops": {"graph", "handles", "errors"},
    "convs": {"ops", "graph", "handles", "binding", "registry", "errors"},
    "models": {"config", "registry", "errors"},
    "datasets": {"graph", "config", "registry", "errors", "units"},
    "results": {"stats", "errors"},
    "memory": {"config", "units", "errors"},
    "environment": {"memory"},
    "tuned": {"results", "environment", "datasets", "ops", "graph", "errors"},
    "backends": {
        "tuned",
        "dropin",
        "convs",
        "ops",
        "graph",
        "datasets",
        "config",
        "binding",
        "registry",
        "errors",
    },
    "dropin": {"convs", "adjacency", "ops", "graph", "errors"},
    "patch": {"backends", "dropin", "convs", "errors"},
}
# The units that orchestrate them: each may import those after it, and all of the above.
ORDER = (
    *("__main__", "cli", "cli_ops", "cli_reproduce", "options", "doctor", "reproduce", "tune", "bench", "compare"),
    *("child", "report", "plots", "comparison", "parity", "run", "advice"),
    *("checkpoint", "capture", "train", "measure", "describe", "__init__"),
)
PURE_PYG = ("backends/pyg.py", "backends/pyg_compile.py", "backends/pyg_sparse.py")
LIGHT = (
    "config.py",
    "errors.py",
    "registry.py",
    "cli.py",
    "cli_ops.py",
    "cli_reproduce.py",
    "options.py",
    "models/",
    "datasets/",
    "results.py",
    "stats.py",
)


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path, *, everywhere: bool = True, types: bool = False) -> Iterator[str]:
    """Dotted names that a file imports; at module level only if not `everywhere`."""
    tree = ast.parse(path.read_text())
    todo: list[ast.AST] = [*tree.body]
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
    found = (imported.split(".") for imported in imports(path) if imported.startswith("gnnbench."))
    return {parts[1] for parts in found}


@pytest.mark.parametrize("path", [path for path in FILES if unit(path) in RIGHT], ids=name)
def test_imports_point_to_the_right(path: Path) -> None:
    assert ours(path) <= RIGHT[unit(path)] | {unit(path), "__version__"}


@pytest.mark.parametrize("path", [path for path in FILES if unit(path) in ORDER], ids=name)
def test_orchestration_has_no_cycles(path: Path) -> None:
    after = ORDER[ORDER.index(unit(path)) :]
    assert ours(path) <= {*after, *RIGHT, "__version__"}


def test_every_unit_has_its_place() -> None:
    assert {unit(path) for path in FILES} <= {*ORDER, *RIGHT}


@pytest.mark.parametrize("path", [PACKAGE / file for file in PURE_PYG], ids=name)
def test_the_pyg_backends_know_nothing_of_our_ops(path: Path) -> None:
    others = {imported for imported in imports(path) if imported.startswith("gnnbench.backends.")}
    assert not ours(path) & {"ops", "convs", "patch", "graph"}
    assert others <= {"gnnbench.backends.base"}


@pytest.mark.parametrize("path", [path for path in FILES if name(path).startswith(LIGHT)], ids=name)
def test_torch_is_imported_in_functions_only(path: Path) -> None:
    """So that `--help` and validating a configuration stay fast; `models/_stack.py` is itself loaded late."""
    heavy = {imported.split(".")[0] for imported in imports(path, everywhere=False)}
    if name(path) != "models/_stack.py":
        assert not heavy & {"torch", "torch_geometric", "ogb", "scipy", "matplotlib"}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        (
            "torch_geometric",
            (
                "convs/",
                "models/",
                "datasets/",
                "backends/pyg",
                "bench/peers.py",
                "adjacency.py",
                "dropin/",
                "patch.py",
                "environment.py",
            ),
        ),
        ("triton", ("backends/cuda/_triton.py",)),
        ("time", ("measure.py", "bench/dgl_child.py")),  # which another interpreter runs
        ("gnnbench.backends._isplib", ("backends/isplib/_compiled.py",)),
        ("gnnbench.cli.", ("__main__.py",)),
    ],
)
def test_only_these_files_import(package: str, allowed: tuple[str, ...]) -> None:
    users = [name(path) for path in FILES if any(found.startswith(package) for found in imports(path))]
    assert [user for user in users if not user.startswith(allowed)] == []


def test_no_file_is_too_long_to_read() -> None:
    assert {name(path): lines for path in FILES if (lines := len(path.read_text().splitlines())) > 330} == {}
