"""Builds the kernels side by side; pyproject.toml says all the rest."""

from Cython.Build import cythonize
from setuptools import setup
from setuptools.command.build_ext import build_ext


class BuildKernels(build_ext):
    """A C compiler per processor, after Cython, which does not run in threads."""

    def build_extensions(self) -> None:
        for extension, translated in zip(self.extensions, cythonize(self.extensions), strict=True):
            extension.sources = translated.sources
        self.parallel = True
        super().build_extensions()


setup(cmdclass={"build_ext": BuildKernels})
