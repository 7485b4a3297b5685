"""A pipeline file is read and checked whole, before anything starts: every problem in one report."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.pipeline.keys import PIPELINE, RUN, SOURCE
from sparkonce.pipeline.model import Pipeline, pipeline_of
from sparkonce.pipeline.problems import Problem, Problems, report
from sparkonce.pipeline.rules import EARLY_RULES, RULES
from sparkonce.pipeline.structure import Structure
from sparkonce.pipeline.toml_lines import key_lines
from sparkonce.pipeline.values import check_values

_ELSEWHERE = {
    **{key.name: "[source]" for key in SOURCE.keys if key.name != "kafka"},
    **{key.name: "[run]" for key in RUN.keys if key.name != "spark"},
    **{key.name: "the first lines, above all tables" for key in PIPELINE.keys if key.name in ("name", "checkpoint")},
}


class PipelineError(UsageError):
    """A pipeline file with problems."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        super().__init__(report(file, problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of a file: a pipeline, or problems."""

    pipeline: Pipeline | None
    problems: list[Problem]


def load(file: Path) -> Pipeline:
    """The pipeline of a file; PipelineError with every problem if there are any."""
    loaded = load_text(read(file), file.parent)
    if loaded.pipeline is None:
        raise PipelineError(file.name, loaded.problems)
    return loaded.pipeline


def read(file: Path) -> str:
    """The text of a file."""
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text, as TOML must be: {error}") from error


def load_text(text: str, folder: Path) -> Loaded:
    """The same from a text; `folder` is what its paths are relative to."""
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Loaded(pipeline=None, problems=[_syntax_problem(text, str(error))])
    problems = Problems(key_lines(text))
    found = _checked(parsed, problems, folder)
    if problems.in_order():
        return Loaded(pipeline=None, problems=problems.in_order())
    return Loaded(pipeline=pipeline_of(found, folder), problems=[])


def _checked(parsed: dict[str, Any], problems: Problems, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = Structure(problems, folder, _ELSEWHERE).checked(PIPELINE, parsed, ())
    for rule in EARLY_RULES:
        rule(found, problems)
    check_values(found, problems)
    for rule in RULES:
        rule(found, problems)
    return found


def _syntax_problem(text: str, message: str) -> Problem:
    """Tomllib says where in its message: (at line 3, column 5), or (at end of document)."""
    where = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    what = message[: where.start()] if where else message
    if where and where[1]:
        return Problem(int(where[1]), "", f"column {where[2]}: this is not TOML: {what}")
    return Problem(text.count("\n") + 1, "", f"the text ends too early for TOML: {what}")
