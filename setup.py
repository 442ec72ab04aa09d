"""Build the one compiled module; everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("connector.records.kernels", ["connector/records/kernels.py"], extra_compile_args=["-O3", "-g0"])],
        language_level=3,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
        build_dir="build/cython",
    )
)
