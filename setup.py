"""The kernels: a module for each `cython_kernels/*.pyx`; pyproject.toml says all the rest."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("cython_kernels")
SLOWEST = ("attention", "spmm")  # to compile, so that they are to begin first


class BuildKernels(build_ext):
    """A C compiler per processor, after Cython, which does not run in threads."""

    def build_extensions(self) -> None:
        for extension, translated in zip(self.extensions, cythonize(self.extensions), strict=True):
            extension.sources = translated.sources
        self.parallel = True
        super().build_extensions()


def kernel(source: Path) -> Extension:
    """Optional: without a compiler the package still installs, and `gnnbench doctor` says what is missing."""
    return Extension(
        f"gnnbench.backends.isplib._{source.stem}",
        [source.as_posix()],
        depends=sorted(path.as_posix() for kind in ("*.h", "*.inc", "*.pxi") for path in SOURCES.glob(kind)),
        extra_compile_args=["-O3", "-g0", "-fopenmp"],  # Python's own -g would double the time
        extra_link_args=["-fopenmp"],
        optional=True,
    )


sources = sorted(SOURCES.glob("*.pyx"), key=lambda path: (path.stem not in SLOWEST, path.stem))
setup(cmdclass={"build_ext": BuildKernels}, ext_modules=[kernel(source) for source in sources])
