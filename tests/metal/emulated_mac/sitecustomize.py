"""Python imports this module when it starts: ``as_on_a_mac.py`` puts its folder on PYTHONPATH.

MLX is replaced as soon as it is imported, not before, so that processes without MLX start as usual.
"""

import sys
from importlib.machinery import PathFinder

FUNCTIONS = {"mlx.core": "replace_devices", "mlx_unpool._backends": "replace_hook"}


class AfterImport:
    """Finds two modules as Python does, and calls a function of ``emulated_mac`` after each is imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in FUNCTIONS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader, FUNCTIONS[name])
        return spec


class Loader:
    def __init__(self, loader, function):
        self.loader, self.function = loader, function

    def __getattr__(self, name):  # such as get_source, which pytest and tracebacks use
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        import emulated_mac

        getattr(emulated_mac, self.function)(module)


sys.meta_path.insert(0, AfterImport())
