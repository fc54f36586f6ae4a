# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cli.md from the commands themselves: ``python docs/site/cli_reference.py``. A test compares the two."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from gym_objstore.cli.app import EXIT_CODES, EXIT_FINDINGS, Command, app
from gym_objstore.errors import Invalid

PAGE = Path(__file__).parents[1] / "cli.md"
PLACE = "Where the store is"
HEAD = """\
# Command line

<!-- Made from the commands' own help by docs/site/cli_reference.py. Change the help there, not this page. -->

`pip install 'gym-objstore[cli]'` brings `gym-objstore`; `python -m gym_objstore` is the same. Results go to standard
output, progress and errors to standard error. `--json` prints one document, whose fields are only ever added to:
[json.md](json.md). `gym-objstore --install-completion` completes commands and options in your shell.

Where `GYM_OBJSTORE_RUN_ID` is set, `ls`, `du` and `gc` are about that run: `env -u GYM_OBJSTORE_RUN_ID gym-objstore du`
counts all. Messages name settings as Python and YAML do: `endpoint=` is `--endpoint` here. A store that does not answer
is asked for a minute; `GYM_OBJSTORE_RETRY_SECONDS=5` makes that shorter.
"""


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command under the words that call it, in the order of the help."""
    for name, listed in group.commands.items():
        command = listed.itself() if isinstance(listed, Command) else listed
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield f"{above}{name}", command


def page() -> str:
    """Return the whole page."""
    found = dict(commands(get_command(app)))
    shared = [one for one in found["ls"].params if _panel(one) == PLACE]
    parts = [HEAD, _exit_codes(), _place(shared), *(_command(name, one) for name, one in found.items())]
    return "\n".join(parts)


def _exit_codes() -> str:
    rows = [("0", "success"), (str(EXIT_FINDINGS), "a finding: damage, a failed check, nothing found")]
    for error, code in EXIT_CODES.items():
        also = ", or a wrong command line" if error is Invalid else ""
        rows.append((str(code), f"[`{error.__name__}`](errors.md#{error.__name__.lower()}){also}"))
    rows.append(("130", "interrupted by Ctrl-C"))
    return _table("## Exit codes", ("code", "meaning"), rows)


def _place(shared: list[Any]) -> str:
    text = "Every command that opens a store takes these options. [settings.md](settings.md) has the others."
    return _table(f"## {PLACE}\n\n{text}", ("option", "meaning"), map(_row, shared))


def _command(name: str, command: Any) -> str:
    params = [one for one in command.params if one.name != "help"]
    own = [one for one in params if _panel(one) != PLACE]
    arguments = " ".join(_argument(one) for one in own if one.param_type_name == "argument")
    lines = [f"## {name}", "", "```", f"gym-objstore {name} {arguments}".rstrip() + " [OPTIONS]", "```", ""]
    lines += [_text(inspect.cleandoc(command.help)), ""]
    if len(own) < len(params):
        lines += [f"Also takes the options of [{PLACE.lower()}](#{PLACE.lower().replace(' ', '-')}).", ""]
    rows = [_row(one, _choices(command, one)) for one in own]
    return _table("\n".join(lines).rstrip(), ("argument or option", "meaning"), rows)


def _argument(one: Any) -> str:
    word = one.metavar or one.name.upper()
    return word if one.required else f"[{word}]"


def _choices(command: Any, one: Any) -> list[str]:
    """Return the values that an option of an enumeration takes."""
    kind = inspect.signature(command.callback, eval_str=True).parameters[one.name].annotation
    found = [kind, *(part for outer in get_args(kind) for part in (outer, *get_args(outer)))]
    return [choice.value for part in found if isinstance(part, EnumType) for choice in part]


def _row(one: Any, choices: Sequence[str] = ()) -> tuple[str, str]:
    if one.param_type_name == "argument":
        flags = f"`{one.metavar or one.name.upper()}`"
    else:
        flags = " ".join(f"`{flag}`" for flag in (*one.opts, *one.secondary_opts))
    taken = f"One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
    required = "Required." if one.required and one.param_type_name == "option" else ""
    return flags, " ".join(filter(None, (_text(one.help), required, taken, _default(one), _variable(one))))


def _text(said: str) -> str:
    """Return a help text so that Markdown shows it as it is."""
    return said.replace("<", "&lt;")


def _default(one: Any) -> str:
    if isinstance(one.show_default, str):
        return f"Default: {one.show_default}."
    plain = one.default is not None and not callable(one.default) and not getattr(one, "is_flag", False)
    return f"Default: `{one.default}`." if plain and one.default != () and one.show_default else ""


def _variable(one: Any) -> str:
    return f"Variable: `{one.envvar}`." if one.envvar else ""


def _panel(one: Any) -> str | None:
    return getattr(one, "rich_help_panel", None)


def _table(title: str, heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return f"{title}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
