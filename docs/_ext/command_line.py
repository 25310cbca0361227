"""The directive `command-line`: a reference of all commands, from the commands."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PLACEHOLDERS = {int: "N", float: "NUMBER", Path: "FILE"}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or callable(value) or value in ([], (), ""):
        return ""
    return f"`{value}`"


def _is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def _placeholder(parameter: Any) -> str:
    """Return the word that stands for an argument, or an option's value."""
    if parameter.metavar:
        return str(parameter.metavar)
    if not _is_option(parameter):
        return str(parameter.name).upper()
    if getattr(parameter, "is_flag", False):
        return ""
    return PLACEHOLDERS.get(parameter.type_descriptor.annotation, "TEXT")


def _name(parameter: Any) -> str:
    if not _is_option(parameter):
        return _placeholder(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"{names} {_placeholder(parameter)}".strip()


def parameters(command: Any) -> list[str]:
    """Return a Markdown table of a command's arguments and options."""
    lines = []
    for parameter in command.params:
        if parameter.hidden or parameter.name == "help":
            continue
        needed = "required" if parameter.required else _default(parameter)
        text = _cell(parameter.help or "")
        lines.append(f"| `{_name(parameter)}` | {text} | {needed} |")
    return ["| | | default |", "|---|---|---|", *lines, ""] if lines else []


def _usage(path: str, command: Any) -> str:
    words = [path]
    words += [_placeholder(each) for each in command.params if not _is_option(each)]
    words += [_name(p) for p in command.params if _is_option(p) and p.required]
    return " ".join([*words, "[OPTIONS]"])


def _sections(path: str, command: Any) -> list[str]:
    lines = [f"## {path}", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    children = getattr(command, "commands", None)
    if children is None:
        lines += ["```text", _usage(path, command), "```", ""]
    lines += parameters(command)
    for name, child in (children or {}).items():
        if not child.hidden:
            lines += _sections(f"{path} {name}", child)
    return lines


def reference() -> str:
    """Return the reference of the whole command line as Markdown."""
    from augmask.cli import app

    return "\n".join(_sections("augmask", typer.main.get_command(app)))


class CommandLine(SphinxDirective):
    """Replaced by `reference()`."""

    def run(self) -> list[nodes.Node]:
        """Parse the reference, headings included, at the directive's place."""
        lines = StringList(reference().splitlines(), source="augmask.cli")
        place = nodes.Element()
        self.state.nested_parse(lines, self.content_offset, place, match_titles=True)
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
