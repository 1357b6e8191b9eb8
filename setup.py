"""The kernels: a module for each `cython_kernels/*.pyx`; pyproject.toml says all the rest."""

import re
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("cython_kernels")
SLOWEST = ("attention", "spmm")  # to compile, so that they are to begin first
MAC = sys.platform == "darwin"  # whose clang has no OpenMP: kernels run on one thread there
ONE_FOR_ALL: dict[str, Any] = {"py_limited_api": True, "define_macros": [("Py_LIMITED_API", "0x030A0000")]}
if sysconfig.get_config_var("Py_GIL_DISABLED"):  # such a Python has no limited API
    ONE_FOR_ALL = {}
FAMILY = """\
#define FAMILY(name) KERNEL({0}_##name)
#include "families/{0}.inc"
#include "attention_passes.inc"
"""

STRUCT = re.compile(r"^struct (\w+) {\n(.*?)^};", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^    ((?:const )?)(struct )?(\w+) ([^;[]+);[ \t]*(?:/\*(.*?)\*/)?", re.DOTALL | re.MULTILINE)
LENGTHS = re.compile(
    r"\s*\[((?:[^][]|\[[^]]*\])+)\]"
)  # `[rows, width]`; one may be an element, as in `[rowptr[rows]]`
ELEMENTS = {
    "void": "REAL",
    "double": "FLOAT + 64",
    "int64_t": "INT + 64",
    "uint64_t": "INT + 64",
    "int32_t": "INT + 32",
    "uint16_t": "UNSIGNED + 16",
}  # by the type in C; of others, bytes are counted
FILL = """

cdef int fill_{0}({0}_task *s, dict fields) except -1:
    cdef Filling f
    memset(&f, 0, sizeof(f))
    memset(s, 0, sizeof(s[0]))
{1}    return all_taken("{0}", fields, &f, {2})
"""


class BuildKernels(build_ext):
    """A C compiler per processor, after Cython, which does not run in threads."""

    def build_extensions(self) -> None:
        from Cython.Build import cythonize  # which only a build has

        for stale in Path("gnnbench/backends/isplib").glob("_*.cpython-*.so") if ONE_FOR_ALL else ():
            stale.unlink()  # which Python would prefer
        list_families()
        for header in sorted(SOURCES.glob("*.h")):
            write_border(header)
        for extension, translated in zip(self.extensions, cythonize(self.extensions), strict=True):
            extension.sources = translated.sources
        self.parallel = True
        super().build_extensions()


def list_families() -> None:
    """Write `families.inc`, by which attention has every family in `families/`: C cannot list a folder."""
    names = sorted(path.stem for path in (SOURCES / "families").glob("*.inc"))
    path, every = SOURCES / "families.inc", " ".join(f"of({name})" for name in names)
    write(path, "".join(map(FAMILY.format, names)) + f"#define FAMILIES(of) {every}\n")


def write_border(header: Path) -> None:
    """Write `NAME_fields.pxi`, which declares the structs of `NAME.h` to Cython and fills them by name.

    A pointer whose comment begins with `[rows, width]` is a tensor of so many elements, `or NULL` one that may be
    missing; a pointer without is the kernel's own. Lengths are of numbers, and of tensors that stand before and
    may not be missing.
    """
    declared, filled = [f'cdef extern from "{header.name}":\n'], []
    for struct, body in STRUCT.findall(header.read_text()):
        fields = [
            Field(const, kind + "_task" if is_struct else kind, name, comment)
            for const, is_struct, kind, names, comment in FIELD.findall(body)
            for name in re.sub(r"(\*?)\s+", r"\1", names).split(",")  # as a formatter may have broken the line
        ]
        declared += [f'    struct {struct}_task "{struct}":\n']
        declared += [f"        {field.const}{field.kind} {field.name}\n" for field in fields]
        if any(field.lengths for field in fields):
            filled += [filling(struct, fields)]
    write(header.with_name(f"{header.stem}_fields.pxi"), "".join(declared + filled))


class Field(NamedTuple):
    """A number of a struct, or a pointer, whose name begins with a star."""

    const: str
    kind: str
    name: str
    comment: str

    @property
    def lengths(self) -> list[str]:
        """Expressions of C, in the order of dimensions; none for what is no tensor."""
        found = LENGTHS.match(self.comment) if self.name.startswith("*") else None
        return re.split(r",\s*", found[1]) if found else []

    @property
    def optional(self) -> bool:
        return "or NULL" in self.comment


def filling(struct: str, fields: list[Field]) -> str:
    """A function that sets the fields of a struct, numbers first."""
    sizes = {word for field in fields for length in field.lengths for word in re.findall(r"[a-z]\w*", length)}
    if unsure := [field.name for field in fields if field.name[1:] in sizes and field.optional]:
        raise ValueError(f"struct {struct}: {unsure[0]} may be missing, but lengths follow from it")
    lines = [
        f'    s.{field.name} = number("{struct}", "{field.name}", fields, &f, {field.name in sizes})\n'
        for field in fields
        if not field.name.startswith("*")
    ]
    for field in fields:
        if lengths := [re.sub(r"([a-z]\w*)", r"s.\1", length).replace("/", "//") for length in field.lengths]:
            name, kind = field.name[1:], ELEMENTS.get(field.kind, "ANY")
            count = f"{len(lengths)}, {lengths[0]}, {' * '.join(f'({length})' for length in lengths)}"
            value = f'tensor("{struct}", "{name}", fields, &f, {kind}, {field.optional}, {count})'
            lines.append(f"    s.{name} = <{field.const}{field.kind} *>{value}\n")
    return FILL.format(struct, "".join(lines), tuple(field.name.lstrip("*") for field in fields))


def write(path: Path, text: str) -> None:
    """Write a file, unless it is as it should be: its time tells what to compile again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def kernel(source: Path) -> Extension:
    """Optional: without a compiler the package still installs, and `gnnbench doctor` says what is missing.

    OpenMP is not linked: the runtime is that of torch, whatever its file is called, which is loaded before.
    """
    return Extension(
        f"gnnbench.backends.isplib._{source.stem}",
        [source.as_posix()],
        depends=sorted(path.as_posix() for path in SOURCES.rglob("*") if path.suffix in (".h", ".inc", ".pxi")),
        # Python's own -g would double the time; by chance of where loops lie, sums of short rows took 16 to 28 us.
        extra_compile_args=["-O3", "-g0", "-falign-functions=64", *([] if MAC else ["-fopenmp"])],
        extra_link_args=[] if MAC else ["-Wl,-z,now"],  # so that without OpenMP the import fails, and no call
        optional=True,
        **ONE_FOR_ALL,
    )


sources = sorted(SOURCES.glob("*.pyx"), key=lambda path: (path.stem not in SLOWEST, path.stem))
setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[kernel(source) for source in sources],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if ONE_FOR_ALL else {},
)
