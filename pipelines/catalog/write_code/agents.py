"""The agents: operators `analyser`, `generator` and `repairer`.

The analyser writes notes on a problem, the generator a program, and the repairer runs the examples
of the problem's docstring on it, contained, and lets a model try once more where they fail. Each
hands on the tokens that all so far have read and written. One rule: what a model wrote is run by
`run_contained` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import randbits

from circinus.pipelines import checks
from circinus.pipelines.catalog.language import ChatMessage, ChatModel, Generation
from circinus.pipelines.catalog.write_code.problems import (
    CodeProblem,
    checked_problem,
    checked_text,
    description_of,
    examples_of,
    signature_of,
)
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.execution.contained.running import (
    MOST_CHARACTERS,
    ProgramLimits,
    ProgramOutcome,
    run_contained,
)
from circinus.pipelines.model.payload import Payload

NO_MODEL = "none"  # of an analyser: there are no notes
OWN = "generator"  # of a repairer: the model that wrote the program
REPAIR_TOKENS = 400
LIMITS = ProgramLimits(cpu_s=4, wall_s=12.0)

ANALYSES = {
    "steps": "List in a few short lines the steps of an algorithm that solves this. No code.",
    "cases": "List in a few short lines the special cases that a solution must handle. No code.",
}
"""What an analyser is to do, by the values of `prompt`."""
GENERATIONS = ("stub", "prose")
"""What a generator completes: the function's beginning, or what its docstring says in words."""

_CODE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


class ProgramRefused(CircinusError):
    """A program that a model wrote used or tried what it must not, and was ended: the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedProblem:
    """A problem with notes."""

    prompt: str
    entry: str
    notes: str  # empty: there are none
    tokens_read: int
    tokens_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftProgram:
    """A program for a problem."""

    prompt: str
    entry: str
    program: str
    model: str  # that wrote it, as the knob has it
    tokens_read: int
    tokens_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProgram:
    """A program, as it is to be scored."""

    program: str
    error: str  # of the problem's examples, in words; empty: they are right, or there are none
    tokens_read: int
    tokens_written: int


def checked_analysed(value: Payload) -> AnalysedProblem:
    """Return the value as a problem with notes; InvalidInput if it is none."""
    problem = checked_problem(value)
    return AnalysedProblem(
        prompt=problem.prompt,
        entry=problem.entry,
        notes=_short("problem", value, "notes"),
        tokens_read=_count(value, "tokens_read"),
        tokens_written=_count(value, "tokens_written"),
    )


def checked_draft(value: Payload) -> DraftProgram:
    """Return the value as a program for a problem; InvalidInput if it is none."""
    problem = checked_problem(value)
    return DraftProgram(
        prompt=problem.prompt,
        entry=problem.entry,
        program=checked_program("problem", value),
        model=checked_text("problem", value, "model"),
        tokens_read=_count(value, "tokens_read"),
        tokens_written=_count(value, "tokens_written"),
    )


def checked_program(field: str, value: Payload) -> str:
    """Return the program that a dict has; InvalidInput if there is none, or it is too long."""
    return _short(field, value, "program")


@dataclass(frozen=True, slots=True)
class Agents:
    """The operators' functions, over the models that their knobs name."""

    models: Mapping[str, ChatModel]

    def analysed(
        self, problem: CodeProblem, *, model: str, prompt: str, most_tokens: int
    ) -> AnalysedProblem:
        """Return the problem with notes, where a model is to write some."""
        notes, read, written = "", 0, 0
        if model != NO_MODEL:
            messages = _asking(f"{ANALYSES[prompt]}\n\n{_block(problem.prompt)}")
            answer = self.models[model](messages, Generation(most_tokens=most_tokens))
            notes, read, written = answer.text, answer.prompt_tokens, answer.completion_tokens
        return AnalysedProblem(
            prompt=problem.prompt,
            entry=problem.entry,
            notes=notes,
            tokens_read=read,
            tokens_written=written,
        )

    def generated(
        self,
        problem: AnalysedProblem,
        *,
        model: str,
        prompt: str,
        temperature: float,
        most_tokens: int,
    ) -> DraftProgram:
        """Return a program for the problem; each time another one at a temperature above 0."""
        messages = _generating(problem, prompt)
        seed = randbits(31) if temperature > 0 else 0
        generation = Generation(most_tokens=most_tokens, temperature=temperature, seed=seed)
        answer = self.models[model](messages, generation)
        return DraftProgram(
            prompt=problem.prompt,
            entry=problem.entry,
            program=program_of(problem.prompt, problem.entry, answer.text),
            model=model,
            tokens_read=problem.tokens_read + answer.prompt_tokens,
            tokens_written=problem.tokens_written + answer.completion_tokens,
        )

    def repaired(self, draft: DraftProgram, *, rounds: int, model: str) -> FinishedProgram:
        """Return the program, or another one where its examples fail and it may be repaired.

        The other one counts if it passes as many examples. ProgramRefused if the one that counts
        was ended for what it did.
        """
        program, read, written = draft.program, draft.tokens_read, draft.tokens_written
        examples = examples_of(CodeProblem(prompt=draft.prompt, entry=draft.entry))
        outcome = run_contained(program, examples, LIMITS)
        if rounds and outcome.first_error:
            writer = self.models[draft.model if model == OWN else model]
            answer = writer(_repairing(draft, outcome), Generation(most_tokens=REPAIR_TOKENS))
            read, written = read + answer.prompt_tokens, written + answer.completion_tokens
            other = program_of(draft.prompt, draft.entry, answer.text)
            better = run_contained(other, examples, LIMITS)
            if better.passed >= outcome.passed and not better.breach:
                program, outcome = other, better
        if outcome.breach:
            raise ProgramRefused(f"the program was ended: {outcome.cause}")
        return FinishedProgram(
            program=program, error=outcome.first_error, tokens_read=read, tokens_written=written
        )


def program_of(prompt: str, entry: str, answer: str) -> str:
    """Return the program of an answer, below the prompt's imports and functions.

    It is the first block of code that defines the function, else the first one, else the answer.
    """
    blocks = [match[1] for match in _CODE.finditer(answer)] or [answer]
    defining = (block for block in blocks if f"def {entry}" in block)
    return f"{prompt.rstrip()}\n\n\n{next(defining, blocks[0])}"[:MOST_CHARACTERS]


def _generating(problem: AnalysedProblem, prompt: str) -> list[ChatMessage]:
    bare = CodeProblem(prompt=problem.prompt, entry=problem.entry)
    notes = f"\n\nNotes on it:\n{problem.notes}" if problem.notes else ""
    if prompt == "stub":
        task = f"Complete this Python function.\n\n{_block(problem.prompt)}"
    else:
        words = description_of(bare)
        task = f"Write the Python function `{signature_of(bare)}`. What it does:\n\n{words}"
    rule = "Answer with one block of code that has the whole function, and nothing else."
    return _asking(f"{task}{notes}\n\n{rule}")


def _repairing(draft: DraftProgram, outcome: ProgramOutcome) -> list[ChatMessage]:
    problem = CodeProblem(prompt=draft.prompt, entry=draft.entry)
    task = f"This Python program is wrong.\n\n{_block(draft.program)}"
    words = f"It should do this:\n\n{description_of(problem)}"
    error = f"Running it fails: {outcome.first_error}"
    rule = f"Answer with one block of code that has the function {draft.entry}, corrected."
    return _asking(f"{task}\n\n{words}\n\n{error}\n\n{rule}")


def _asking(text: str) -> list[ChatMessage]:
    return [{"role": "user", "content": text}]


def _block(code: str) -> str:
    return f"```python\n{code.strip()}\n```"


def _short(field: str, value: Payload, name: str) -> str:
    text = checked_text(field, value, name)
    rule = f"must have at most {MOST_CHARACTERS} characters"
    checks.require(len(text) <= MOST_CHARACTERS, f"{field}.{name}", rule, len(text))
    return text


def _count(value: Payload, name: str) -> int:
    count = value.get(name) if isinstance(value, dict) else None
    if not (isinstance(count, int) and not isinstance(count, bool) and count >= 0):
        raise InvalidInput.of(f"problem.{name}", "must be a whole number, at least 0", count)
    return count
