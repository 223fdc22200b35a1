"""TensorFlow 1's `tf.gfile`, for files of this machine."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from typing import Any, Iterator, List, Tuple

from ... import errors
from ._missing import missing

__getattr__ = missing("plimsoll.compat.v1.gfile")


def Exists(filename: str) -> bool:  # noqa: N802
    """Whether a path is there."""
    return os.path.exists(filename)


def IsDirectory(dirname: str) -> bool:  # noqa: N802
    """Whether a path is a folder."""
    return os.path.isdir(dirname)


def MakeDirs(dirname: str) -> None:  # noqa: N802
    """Makes a folder and those above it; one that is there stays."""
    os.makedirs(dirname, exist_ok=True)


def MkDir(dirname: str) -> None:  # noqa: N802
    """Makes a folder."""
    try:
        os.mkdir(dirname)
    except FileExistsError:
        raise errors.AlreadyExistsError(f"{dirname}: it is there already") from None
    except FileNotFoundError:
        raise errors.NotFoundError(f"{dirname}: the folder above it is not there") from None


def DeleteRecursively(dirname: str) -> None:  # noqa: N802
    """Removes a folder with all that is in it."""
    try:
        shutil.rmtree(dirname)
    except FileNotFoundError:
        raise errors.NotFoundError(f"{dirname}: it is not there") from None


def Remove(filename: str) -> None:  # noqa: N802
    """Removes a file."""
    try:
        os.remove(filename)
    except FileNotFoundError:
        raise errors.NotFoundError(f"{filename}: it is not there") from None


def Rename(oldname: str, newname: str, overwrite: bool = False) -> None:  # noqa: N802
    """Gives a file another name."""
    _free(newname, overwrite)
    os.replace(oldname, newname)


def Copy(oldpath: str, newpath: str, overwrite: bool = False) -> None:  # noqa: N802
    """Copies a file."""
    _free(newpath, overwrite)
    shutil.copyfile(oldpath, newpath)


def _free(path: str, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise errors.AlreadyExistsError(f"{path}: it is there already")


def ListDirectory(dirname: str) -> List[str]:  # noqa: N802
    """The names in a folder."""
    if not os.path.isdir(dirname):
        raise errors.NotFoundError(f"Could not find directory {dirname}")
    return os.listdir(dirname)


def Glob(filename: str) -> List[str]:  # noqa: N802
    """The paths that match a pattern."""
    return sorted(_glob.glob(filename))


def Walk(top: str, in_order: bool = True) -> Iterator[Tuple[str, List[str], List[str]]]:  # noqa: N802
    """Each folder below one, with its folders and files."""
    return os.walk(top, topdown=in_order)


def GFile(name: str, mode: str = "r") -> Any:  # noqa: N802
    """An open file."""
    try:
        return open(name, mode)
    except FileNotFoundError:
        raise errors.NotFoundError(f"{name}; No such file or directory") from None


Open = FastGFile = GFile
