"""The kernels: a module for each `cython_kernels/*.pyx`; pyproject.toml says all the rest."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("cython_kernels")
SLOWEST = ("attention", "spmm")  # to compile, so that they are to begin first
FAMILY = """\
#define FAMILY(name) KERNEL({0}_##name)
#include "families/{0}.inc"
#include "attention_passes.inc"
"""


class BuildKernels(build_ext):
    """A C compiler per processor, after Cython, which does not run in threads."""

    def build_extensions(self) -> None:
        from Cython.Build import cythonize  # which only a build has

        list_families()
        for extension, translated in zip(self.extensions, cythonize(self.extensions), strict=True):
            extension.sources = translated.sources
        self.parallel = True
        super().build_extensions()


def list_families() -> None:
    """Write `families.inc`, by which attention has every family in `families/`: C cannot list a folder."""
    names = sorted(path.stem for path in (SOURCES / "families").glob("*.inc"))
    path, every = SOURCES / "families.inc", " ".join(f"of({name})" for name in names)
    text = "".join(map(FAMILY.format, names)) + f"#define FAMILIES(of) {every}\n"
    if not path.exists() or path.read_text() != text:  # whose time tells what to compile again
        path.write_text(text)


def kernel(source: Path) -> Extension:
    """Optional: without a compiler the package still installs, and `gnnbench doctor` says what is missing."""
    return Extension(
        f"gnnbench.backends.isplib._{source.stem}",
        [source.as_posix()],
        depends=sorted(path.as_posix() for path in SOURCES.rglob("*") if path.suffix in (".h", ".inc", ".pxi")),
        extra_compile_args=["-O3", "-g0", "-fopenmp"],  # Python's own -g would double the time
        extra_link_args=["-fopenmp"],
        optional=True,
    )


sources = sorted(SOURCES.glob("*.pyx"), key=lambda path: (path.stem not in SLOWEST, path.stem))
setup(cmdclass={"build_ext": BuildKernels}, ext_modules=[kernel(source) for source in sources])
