"""TensorFlow 1's `tf.app`: flags of the command line, and the function that a program runs."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, List, NoReturn, Optional, Sequence

from ._missing import missing

__getattr__ = missing("plimsoll.compat.v1.app")


class _Flags:
    """The program's flags as attributes. They are read from the command line when one is first asked for."""

    def __init__(self) -> None:
        self.__dict__["_parser"] = argparse.ArgumentParser(allow_abbrev=False)
        self.__dict__["_values"] = {}
        self.__dict__["_switches"] = set()
        self.__dict__["_is_parsed"] = False

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> List[str]:
        """Reads flags, and returns the arguments that are none."""
        before = dict(self._values)
        known, rest = self._parser.parse_known_args([self._switched(each) for each in argv[1:]])
        if not known_only and any(each.startswith("--") for each in rest):
            self._parser.error(f"unrecognized arguments: {' '.join(rest)}")
        self._values.update(vars(known))
        if not self._is_parsed:
            self._values.update({name: value for name, value in before.items() if value != self._parser.get_default(name)})
        self.__dict__["_is_parsed"] = True
        return [*argv[:1], *rest]

    def _switched(self, text: str) -> str:
        """A flag that is on or off takes its value behind `=` alone: `--loud`, `--noloud`, `--loud=false`."""
        name = text.lstrip("-")
        if text.startswith("-") and name in self._switches:
            return f"--{name}=true"
        if text.startswith("-") and name.startswith("no") and name[2:] in self._switches:
            return f"--{name[2:]}=false"
        return text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._is_parsed:
            self(sys.argv, known_only=True)
        if name not in self._values:
            raise AttributeError(f"Unknown command line flag '{name}'")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def flag_values_dict(self) -> dict[str, Any]:
        if not self._is_parsed:
            self(sys.argv, known_only=True)
        return dict(self._values)


def _bool(text: str) -> bool:
    known = {"true": True, "t": True, "1": True, "yes": True, "y": True, "false": False, "f": False, "0": False, "no": False, "n": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is no truth value")
    return known[text.lower()]


class _FlagsModule:
    """`tf.app.flags`."""

    FLAGS = _Flags()

    @classmethod
    def _define(cls, name: str, default: Any, help: Optional[str], **options: Any) -> None:
        cls.FLAGS._parser.add_argument(f"--{name}", f"-{name}", dest=name, default=default, help=(help or "").replace("%", "%%"), **options)
        cls.FLAGS._values[name] = default
        cls.FLAGS.__dict__["_is_parsed"] = False

    @classmethod
    def DEFINE_string(cls, name: str, default: Any, help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=str)

    @classmethod
    def DEFINE_integer(cls, name: str, default: Any, help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=int)

    @classmethod
    def DEFINE_float(cls, name: str, default: Any, help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=float)

    @classmethod
    def DEFINE_boolean(cls, name: str, default: Any, help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=_bool)
        cls.FLAGS._switches.add(name)

    DEFINE_bool = DEFINE_boolean

    @classmethod
    def DEFINE_enum(cls, name: str, default: Any, enum_values: Sequence[str], help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=str, choices=list(enum_values))

    @classmethod
    def DEFINE_list(cls, name: str, default: Any, help: Optional[str] = None, **_: Any) -> None:  # noqa: N802
        cls._define(name, default, help, type=lambda text: [each.strip() for each in text.split(",")] if text else [])

    def __getattr__(self, name: str) -> Any:
        return missing("plimsoll.compat.v1.app.flags")(name)


flags = _FlagsModule()


def run(main: Optional[Callable[[List[str]], Any]] = None, argv: Optional[Sequence[str]] = None) -> NoReturn:
    """Reads the flags, runs `main` of the program with the other arguments, and ends the program with its result."""
    rest = flags.FLAGS(sys.argv if argv is None else argv)
    function = main or sys.modules["__main__"].main
    sys.exit(function(rest))
