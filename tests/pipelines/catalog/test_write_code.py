"""Agents that write code: with models of the test's own, real ones, and ones at an endpoint."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.catalog.language import (
    ChatEndpoint,
    ChatMessage,
    Completion,
    Generation,
)
from circinus.pipelines.catalog.write_code import (
    MODELS,
    hosted_pipeline,
    local_pipeline,
    pipeline,
    sampling_pipeline,
)
from circinus.pipelines.catalog.write_code.agents import (
    NO_MODEL,
    OWN,
    Agents,
    AnalysedProblem,
    DraftProgram,
    ProgramRefused,
    checked_analysed,
    checked_draft,
    checked_program,
    program_of,
)
from circinus.pipelines.catalog.write_code.problems import (
    HUMAN_EVAL,
    MOST_CHARACTERS,
    CodeProblem,
    HumanEvalExamples,
    asserts_of,
    checked_problem,
    description_of,
    examples_of,
    problem_features,
    signature_of,
)
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.calling import EndpointCaller, OpenGate
from circinus.pipelines.execution.contained.running import require_containment
from circinus.pipelines.execution.weights import FOLDER, ModelWeights
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import CallPrice, Endpoint
from circinus.pipelines.model.operators import KnobValue, Settings
from circinus.pipelines.model.payload import Payload
from tests.tiny_gguf import write_tiny_gguf


def _contained() -> bool:
    try:
        require_containment()
    except InvalidInput:
        return False
    return True


needs_containment = pytest.mark.skipif(not _contained(), reason="no containment here")
needs_data = pytest.mark.skipif(not HUMAN_EVAL.need.is_there(), reason="no HumanEval here")

PROMPT = '''from typing import List

def twice(x: int) -> int:
    """Return two times a number.
    >>> twice(2)
    4
    twice(3) == 6
    """
'''
TEST = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(5) == 10\n"
PROBLEM = CodeProblem(prompt=PROMPT, entry="twice")
INPUT: dict[str, Payload] = {"prompt": PROMPT, "entry": "twice"}
EXPECTED: dict[str, Payload] = {
    "program": f"{PROMPT}    return 2 * x\n",
    "entry": "twice",
    "test": TEST,
}
RIGHT = "```python\ndef twice(x):\n    return 2 * x\n```"
WRONG = "```python\ndef twice(x):\n    return x * x\n```"  # right for 2 alone


class Scripted:
    """A model that answers with texts in their order, and the last one from then on."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.questions: list[str] = []
        self.generations: list[Generation] = []

    def __call__(self, messages: Sequence[ChatMessage], generation: Generation) -> Completion:
        self.questions.append(messages[-1]["content"])
        self.generations.append(generation)
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Completion(text=text, prompt_tokens=10, completion_tokens=3)


def draft(program: str) -> DraftProgram:
    return DraftProgram(
        prompt=PROMPT, entry="twice", program=program, model="a", tokens_read=1, tokens_written=2
    )


# --- Inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "problem.prompt must be a text, got 'NoneType'"),
        ({"prompt": PROMPT}, "problem.entry must be a text, got 'NoneType'"),
        ({"prompt": 3, "entry": "twice"}, "problem.prompt must be a text, got 'int'"),
        (
            {"prompt": "#" * (MOST_CHARACTERS + 1), "entry": "twice"},
            "problem.prompt must have at most 8000 characters, got 8001",
        ),
        ({"prompt": "def twice(", "entry": "twice"}, "problem.prompt must be Python"),
        ({"prompt": "(" * 5000, "entry": "twice"}, "problem.prompt must be Python"),
        (
            {"prompt": PROMPT, "entry": "thrice"},
            "problem.prompt must begin the function that entry names, got 'thrice'",
        ),
    ],
)
def test_what_is_no_problem_is_refused(wrong: Payload, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        checked_problem(wrong)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"notes": 1}, "problem.notes must be a text"),
        ({"notes": "", "tokens_read": -1}, "problem.tokens_read must be a whole number"),
        (
            {"notes": "", "tokens_read": 0, "tokens_written": True},
            "problem.tokens_written must be a whole number, at least 0, got True",
        ),
        ({"notes": "x" * 200_001}, "problem.notes must have at most 200000 characters"),
    ],
)
def test_what_is_no_problem_with_notes_is_refused(more: dict[str, Payload], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        checked_analysed({**INPUT, **more})


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"problem\.program must be a text"):
        checked_draft(dict(INPUT))
    with pytest.raises(InvalidInput, match=r"problem\.model must be a text"):
        checked_draft({**INPUT, "program": ""})
    with pytest.raises(InvalidInput, match=r"output\.program must have at most 200000 characters"):
        checked_program("output", {"program": "#" * 200_001})


@pytest.mark.parametrize(
    "test",
    ["x = 1", "def check(): assert f()", "def check(f): f()", "def check(f):\n    assert True"],
)
def test_tests_without_an_assert_are_refused(test: str) -> None:
    message = "expected.test must have a function check with an argument and an assert"
    with pytest.raises(InvalidInput, match=message):
        asserts_of(test, "twice")


def test_tests_that_are_no_python_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"expected\.test must be Python"):
        asserts_of("def", "twice")


def test_a_setting_that_is_no_choice_is_refused() -> None:
    settings: Settings = {"model": "gpt", "prompt": "steps", "most_tokens": 64}
    with pytest.raises(InvalidInput, match="model must be one of none, smollm2-135m"):
        pipeline().by_name["analyser"].run(INPUT, settings)


# --- Problems ----------------------------------------------------------------------------


def test_a_problem_has_a_signature_a_description_and_examples() -> None:
    assert signature_of(PROBLEM) == "def twice(x: int) -> int"
    assert description_of(PROBLEM).startswith("Return two times a number.")
    assert [example.splitlines()[0] for example in examples_of(PROBLEM)] == [
        "_value = twice(2)",
        "_value = twice(3)",
    ]
    # characters, words of the docstring (5 + 3 of doctest + 3), examples, arguments
    assert problem_features(PROBLEM).tolist() == [len(PROMPT), 11, 2, 1]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("f(1) => 2", "2"),
        ("f('a, b') ➞ ['a']", "['a']"),
        ("f([1]) should return 3.", "3"),
        ("f(1) returns 2 (see below)", "2"),
        ("f(1) == 2 # two", "2"),
        ("For f(1) the result is 2", None),
        ("f(1) == 1 + 1 = 2", None),
        ("f(a) == 2", None),
        (">>> f(1", None),
        (">>> f(1)\n    <object>", None),
    ],
)
def test_lines_of_a_docstring_are_examples_where_they_have_a_value(
    line: str, value: str | None
) -> None:
    problem = CodeProblem(prompt=f'def f(x):\n    """It does.\n    {line}\n    """', entry="f")
    examples = examples_of(problem)
    assert len(examples) == (value is not None)
    assert all(f"assert _value == {value}, " in each for each in examples)


def test_a_test_is_an_assert_with_what_comes_before_it() -> None:
    test = (
        "def check(candidate):\n"
        "    assert True, 'begin'\n"
        "    x = 3\n"
        "    assert candidate(x) == 6\n"
        "    for i in range(2):\n"
        "        assert candidate(i) == 2 * i\n"
        "    print('done')\n"
    )
    assert asserts_of(test, "twice") == (
        "candidate = twice\nx = 3\nassert candidate(x) == 6",
        "for i in range(2):\n    assert candidate(i) == 2 * i",
    )


@needs_data
@needs_containment
def test_every_solution_of_a_part_passes_all_tests_and_what_does_nothing_does_not() -> None:
    made = pipeline()
    for example in HumanEvalExamples()(5, 2).examples:
        assert made.score_of(example.expected, example.expected) == 1.0
        prompt = checked_problem(example.input).prompt
        assert made.score_of({"program": prompt}, example.expected) < 1.0


@needs_data
def test_parts_of_the_problems_share_none_and_no_problem_comes_twice() -> None:
    parts = [HumanEvalExamples()(100, seed).examples for seed in range(3)]
    entries = [str(example.input) for part in parts for example in part]
    assert [len(part) for part in parts] == [55, 55, 54]
    assert len(set(entries)) == len(entries) == 164
    assert HumanEvalExamples()(3, 1).examples == parts[1][:3]


# --- Agents -----------------------------------------------------------------------------


def test_the_program_is_the_block_that_defines_the_function() -> None:
    answer = f"First\n```\nx = 1\n```\nthen {RIGHT} and\n```python\ny = 1\n```"
    assert program_of(PROMPT, "twice", answer).endswith("\n\n\ndef twice(x):\n    return 2 * x\n")
    assert program_of(PROMPT, "twice", "```python\nx = 1").endswith('"""\n\n\nx = 1')  # cut off
    assert program_of(PROMPT, "twice", "x = 2").endswith('"""\n\n\nx = 2')


def test_notes_are_written_by_the_model_that_the_knob_names_and_handed_on() -> None:
    model = Scripted("double it")
    agents = Agents({"a": model})
    none = agents.analysed(PROBLEM, model=NO_MODEL, prompt="steps", most_tokens=64)
    assert (none.notes, none.tokens_read, none.tokens_written) == ("", 0, 0)
    notes = agents.analysed(PROBLEM, model="a", prompt="cases", most_tokens=64)
    assert (notes.notes, notes.tokens_read, notes.tokens_written) == ("double it", 10, 3)
    assert "special cases" in model.questions[0]
    assert model.generations[0] == Generation(most_tokens=64)
    for prompt in ("stub", "prose"):
        made = agents.generated(notes, model="a", prompt=prompt, temperature=0.0, most_tokens=9)
        assert (made.model, made.tokens_read, made.tokens_written) == ("a", 20, 6)
    assert "double it" in model.questions[1]
    assert '"""' in model.questions[1]
    assert "def twice(x: int) -> int`. What it does:" in model.questions[2]
    assert '"""' not in model.questions[2]


def test_the_seed_differs_each_time_only_at_a_temperature_above_0() -> None:
    model = Scripted(RIGHT)
    problem = AnalysedProblem(
        prompt=PROMPT, entry="twice", notes="", tokens_read=0, tokens_written=0
    )
    for temperature in (0.0, 0.0, 0.8, 0.8, 0.8):
        Agents({"a": model}).generated(
            problem, model="a", prompt="stub", temperature=temperature, most_tokens=9
        )
    seeds = [generation.seed for generation in model.generations]
    assert seeds[:2] == [0, 0]
    assert len(set(seeds[2:])) > 1


@needs_containment
def test_a_program_whose_examples_fail_is_repaired_once_by_who_is_chosen() -> None:
    own, other = Scripted(RIGHT), Scripted(WRONG)
    agents = Agents({"a": own, "b": other})
    wrong = draft(program_of(PROMPT, "twice", WRONG))
    left = agents.repaired(wrong, rounds=0, model=OWN)
    assert left.program == wrong.program
    assert left.error == "AssertionError: twice(3) is 9, not 6"
    mended = agents.repaired(wrong, rounds=1, model=OWN)
    assert (mended.error, mended.tokens_read, mended.tokens_written) == ("", 11, 5)
    assert "twice(3) is 9, not 6" in own.questions[0]
    assert agents.repaired(wrong, rounds=1, model="b").error == left.error
    agents.repaired(draft(program_of(PROMPT, "twice", RIGHT)), rounds=1, model="b")
    assert len(other.questions) == 1  # nothing is repaired that does not fail


@needs_containment
def test_a_repair_that_is_worse_does_not_count() -> None:
    worse = Scripted("```python\ndef twice(x):\n    return None\n```")
    wrong = draft(program_of(PROMPT, "twice", WRONG))  # passes one of two examples
    assert Agents({"a": worse}).repaired(wrong, rounds=1, model=OWN).program == wrong.program


ATTACKS = {
    "    import socket; socket.socket()": "it opened a socket",
    "    import os; os.fork()": "it started a process",
    "    open('/root/.ssh/id_rsa').read()": "outside of its folder",
    "    x = bytearray(10 << 30)": "it needed more memory than it may have",
}


@needs_containment
@pytest.mark.parametrize(("line", "cause"), ATTACKS.items())
def test_an_agents_program_that_attacks_is_a_failed_example_with_its_cause(
    line: str, cause: str
) -> None:
    attack = f"```python\ndef twice(x):\n{line}\n    return 2 * x\n```"
    evil = draft(program_of(PROMPT, "twice", attack))
    for rounds in (0, 1):
        with pytest.raises(ProgramRefused, match=f"the program was ended: .*{cause}"):
            Agents({"a": Scripted(attack)}).repaired(evil, rounds=rounds, model=OWN)
    assert pipeline().score_of({"program": evil.program}, EXPECTED) == 0.0


@needs_containment
def test_the_score_is_the_share_of_the_tests_passed() -> None:
    made = pipeline()
    assert made.score_of(EXPECTED, EXPECTED) == 1.0
    assert made.score_of({"program": program_of(PROMPT, "twice", WRONG)}, EXPECTED) == 0.5
    assert made.score_of({"program": "def twice("}, EXPECTED) == 0.0
    with pytest.raises(OperatorFailed, match=r"output\.program must be a text"):
        made.score_of("x", EXPECTED)


# --- The pipelines ------------------------------------------------------------------------


def test_there_are_more_than_500_configurations_and_only_sampling_ones_draw() -> None:
    counts = [
        math.prod(len(slot.knob.values) for slot in made.graph.slots)
        for made in (pipeline(), sampling_pipeline())
    ]
    assert counts == [1152, 3456]
    assert not pipeline().graph.draws
    assert [o.name for o in sampling_pipeline().graph.operators if o.draws] == ["generator"]


def settings(**values: KnobValue) -> Configuration:
    """A configuration by `operator_knob`."""
    named = ((*name.partition("_"), value) for name, value in values.items())
    return Configuration(tuple((operator, knob, value) for operator, _, knob, value in named))


def configuration(model: str, repairer: str, rounds: int = 1, tokens: int = 160) -> Configuration:
    return settings(
        analyser_model=NO_MODEL,
        analyser_prompt="steps",
        analyser_most_tokens=64,
        generator_model=model,
        generator_prompt="prose",
        generator_temperature=0.0,
        generator_most_tokens=tokens,
        repairer_rounds=rounds,
        repairer_model=repairer,
    )


def test_a_weight_that_is_no_gguf_is_a_failure_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    made = local_pipeline({"tiny": weights("tiny")})
    assert any("tiny" in need.name for need in made.available())
    with pytest.raises(OperatorFailed, match="operator generator failed: weights must be there"):
        made.run(INPUT, configuration("tiny", OWN, 0))
    file = tmp_path / "tiny" / "model.gguf"
    file.parent.mkdir()
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(OperatorFailed, match=r"generator failed: .* cannot be loaded as a GGUF"):
        made.run(INPUT, configuration("tiny", OWN, 0))


def weights(name: str) -> ModelWeights:
    return ModelWeights(name=name, what="", licence="", size_bytes=1, files={"model.gguf": "0"})


@needs_containment
def test_a_tiny_random_model_runs_through_the_whole_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "tiny").mkdir()
    write_tiny_gguf(tmp_path / "tiny" / "model.gguf")
    made = local_pipeline({"tiny": weights("tiny")})
    outputs = [made.run(INPUT, configuration("tiny", OWN, tokens=160)) for _ in range(2)]
    assert outputs[0] == outputs[1]  # temperature 0
    assert isinstance(outputs[0], dict)
    assert checked_program("output", outputs[0]).startswith(PROMPT.rstrip())
    written, read = outputs[0]["tokens_written"], outputs[0]["tokens_read"]
    assert isinstance(written, int)
    assert isinstance(read, int)
    assert 0 < written <= 160 + 400
    assert read > 0
    assert made.score_of(outputs[0], EXPECTED) == 0.0


real = MODELS["qwen2.5-coder-0.5b"]


@needs_containment
@needs_data
@pytest.mark.skipif(not real.need.is_there(), reason="no weights here")
def test_a_real_model_writes_a_right_program() -> None:
    pytest.importorskip("xllamacpp")
    output = pipeline().run(INPUT, configuration(real.name, OWN))
    assert isinstance(output, dict)
    assert output["error"] == ""
    assert pipeline().score_of(output, EXPECTED) == 1.0


# --- Endpoints -----------------------------------------------------------------------------


class _Chats(BaseHTTPRequestHandler):
    """A server with the interface of OpenAI, whose model is right at the second attempt."""

    bodies: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append({**body, "key": self.headers.get("Authorization")})
        text = RIGHT if "corrected" in body["messages"][-1]["content"] else WRONG
        answer = {
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 9},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    bodies: list[dict[str, Any]] = []
    handler = type("Handler", (_Chats,), {"bodies": bodies})
    with HTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1", bodies
        finally:
            http.shutdown()
            thread.join()


def test_a_pipeline_without_an_endpoint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="endpoints must have at least one"):
        hosted_pipeline([])
    twice = ChatEndpoint(name="small", url="http://a/v1", model="m")
    with pytest.raises(InvalidInput, match="endpoints must"):
        hosted_pipeline([twice, twice])


@needs_containment
def test_endpoints_are_called_and_their_usage_is_reported(
    server: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, bodies = server
    monkeypatch.setenv("SOME_KEY", "secret")
    small, large = (
        ChatEndpoint(name=name, url=url, model=f"m-{name}", key_variable="SOME_KEY")
        for name in ("small", "large")
    )
    made = hosted_pipeline([small, large])
    price = CallPrice(input_usd_per_million=1.0, output_usd_per_million=10.0)
    caller = EndpointCaller(
        endpoints={name: Endpoint(name=name, price=price) for name in ("small", "large")},
        gate=OpenGate(),
        clock=SystemClock(),
        rng=np.random.Generator(np.random.PCG64(1)),
    )
    value: Payload = INPUT
    chosen = configuration("small", "large")
    usd = []
    for operator in made.by_name.values():
        if operator.spec.called(chosen.of(operator.name)):
            done = caller.run(operator, value, chosen)
            assert done.failure is None
            usd.append(round(done.used.usd * 1e6))
            value = done.output
        else:
            value = operator.run(value, chosen.of(operator.name))
    # 50 tokens read at 1 and 9 written at 10 dollars a million, by generator and repairer
    assert usd == [140, 140]
    assert [(body["model"], body["key"]) for body in bodies] == [
        ("m-small", "Bearer secret"),
        ("m-large", "Bearer secret"),
    ]
    assert isinstance(value, dict)
    assert (value["error"], value["tokens_read"], value["tokens_written"]) == ("", 100, 18)
    assert made.score_of(value, EXPECTED) == 1.0


def test_an_endpoint_is_called_only_where_settings_say_so() -> None:
    ends = [ChatEndpoint(name=name, url="http://a/v1", model="m") for name in ("a", "b")]
    made = hosted_pipeline(ends)
    repairer, analyser = made.by_name["repairer"].spec, made.by_name["analyser"].spec
    assert repairer.called({"rounds": 0, "model": "a"}) == ()
    assert [call.endpoint for call in repairer.called({"rounds": 1, "model": "b"})] == ["b"]
    assert analyser.called({"model": NO_MODEL}) == ()
    assert made.weights == (HUMAN_EVAL,)
