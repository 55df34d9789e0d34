"""Planting a fault in a package that is loaded already.

The file with the fault is run as a module of its own. Wherever a function or method of it differs,
the function that everybody holds gets its code and its defaults; constants of the file are replaced
wherever they were imported to. Nothing is written, so the checkout stays as it is, and nothing is
loaded again, so a fault costs milliseconds. It is meant for a process that ends afterwards.
"""

from __future__ import annotations

import sys
import types
from functools import cached_property

import torch
from tests.mutants.operators import Fault

PACKAGE = "provable_circuits"


def plant(fault: Fault) -> None:
    """Change the loaded module of a fault's file into the file with the fault."""
    name = ".".join([PACKAGE, *fault.file.removesuffix(".py").split("/")])
    graft(sys.modules[name], fault.source)


def graft(module: types.ModuleType, source: str) -> None:
    """Change a module into what it would be with this source."""
    fresh = types.ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    fresh.__package__ = module.__package__
    exec(compile(source, module.__file__ or "", "exec"), fresh.__dict__)
    for name, new in vars(fresh).items():
        old = vars(module).get(name)
        if name.startswith("__") or old is new:
            continue
        if isinstance(new, type) and new.__module__ == module.__name__:
            _graft_class(old, new)
        elif isinstance(new, int | float | str) and new != old:
            _replace(name, old, new)
        else:
            _graft_function(old, new)


def _graft_class(old: object, new: type) -> None:
    for name, attribute in vars(new).items():
        _graft_function(vars(old).get(name), attribute)


def _graft_function(old: object, new: object) -> None:
    old, new = _function(old), _function(new)
    if isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType):
        if old.__code__ != new.__code__:
            old.__code__ = new.__code__
        old.__defaults__ = new.__defaults__
        old.__kwdefaults__ = new.__kwdefaults__


def _function(held: object) -> object:
    """The function inside of what a decorator made of it."""
    if isinstance(held, property):
        return held.fget
    if isinstance(held, cached_property):
        return held.func
    if isinstance(held, staticmethod | classmethod):
        return held.__func__
    return getattr(held, "__wrapped__", held)


def _replace(name: str, old: object, new: object) -> None:
    """A constant, in every module that has it under its name."""
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", {})
        if module is not torch and space.get(name) is old:
            space[name] = new
