"""Writes torch-names.json: the public names of PyTorch's namespaces, by kind. Needs Debian's python3-torch."""

import inspect
import json
import pathlib
import types

import torch

NAMESPACES = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn": torch.nn,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.init": torch.nn.init,
    "torch.linalg": torch.linalg,
    "torch.optim": torch.optim,
    "torch.optim.lr_scheduler": torch.optim.lr_scheduler,
    "torch.autograd": torch.autograd,
    "torch.utils.data": torch.utils.data,
}


def kind_of(value):
    if inspect.isclass(value):
        return "class"
    return "function" if callable(value) else "property"


def names_of(space):
    for name in dir(space):
        value = getattr(space, name, None)
        if name.startswith("_") or isinstance(value, (types.ModuleType, torch.dtype, torch.layout)):
            continue
        # Names that a module imports from Python's own library are not PyTorch's.
        home = getattr(value, "__module__", None) or "torch"
        if inspect.ismodule(space) and home.split(".")[0] not in ("torch", "builtins"):
            continue
        yield name, kind_of(value)


def main():
    spaces = {}
    for label, space in NAMESPACES.items():
        kinds = {}
        for name, kind in names_of(space):
            kinds.setdefault(kind, []).append(name)
        spaces[label] = {kind: sorted(names) for kind, names in sorted(kinds.items())}
    text = json.dumps({"version": torch.__version__, "namespaces": spaces}, separators=(",", ":"))
    pathlib.Path(__file__).with_name("torch-names.json").write_text(text.replace("],", "],\n") + "\n")


if __name__ == "__main__":
    main()
