from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circinus.pipelines.catalog.retrieval import f1, pipeline
from circinus.pipelines.catalog.retrieval.cases import (
    LONGEST_QUESTION,
    LONGEST_TEXT,
    checked_request,
    chunked,
    draw_case,
    names_of,
)
from circinus.pipelines.catalog.retrieval.retrieving import (
    READERS,
    RERANKERS,
    RETRIEVERS,
    likeness,
    retrieved,
)
from circinus.pipelines.catalog.retrieval.wording import (
    SpanKind,
    expected_kind,
    names_in,
    sentences_of,
    spans_of,
    terms_of,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload

needs_extra = pytest.mark.skipif(bool(pipeline().available()), reason="needs circinus[retrieval]")

REQUEST: Payload = {
    "question": "Who taught Alric Ashby?",
    "documents": [
        "Alric Ashby\nAlric Ashby was born in 1801. He was taught by Berana Coldley.",
        "Alric Elmby\nAlric Elmby was taught by Corine Draystone. He lived in Norham.",
        "Oxra Pump\nThe Oxra Pump weighs 40 kilograms. It was drawn by Fenmor Goldwick.",
    ],
}
CHUNKS = {"size": 1, "titled": True}


def request(**changes: Payload) -> Payload:
    assert isinstance(REQUEST, dict)
    return {**REQUEST, **changes}


@pytest.mark.parametrize("value", [None, "Who?", {}, {"question": "Who?"}, [REQUEST]])
def test_a_request_without_question_and_documents_is_refused(value: Payload) -> None:
    with pytest.raises(InvalidInput, match="must be a dict of question and documents, got"):
        pipeline().by_name["chunker"].run(value, CHUNKS)


@pytest.mark.parametrize("question", ["", " ?", 7, "a" * (LONGEST_QUESTION + 1)])
def test_a_question_without_words_or_too_long_is_refused(question: Payload) -> None:
    with pytest.raises(InvalidInput, match=r"request.question must be a text of 1 to 1000"):
        pipeline().by_name["chunker"].run(request(question=question), CHUNKS)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("one", "must be a list of 1 to 5000 texts, got 'str of 3'"),
        ([], "must be a list of 1 to 5000 texts"),
        (["a"] * 5001, "must be a list of 1 to 5000 texts"),
        (["a", 1], "must be a list of 1 to 5000 texts, got 'something else among them'"),
        (["a", " ."], "must each have a word, got 'none in text 1'"),
        (["a" * (LONGEST_TEXT + 1)], "must have at most 20000 characters each, got 20001"),
        (["a" * LONGEST_TEXT] * 50 + ["b"], "must have at most 1000000 characters in all, got"),
    ],
)
def test_documents_that_are_none_or_too_large_are_refused(
    documents: Payload, message: str
) -> None:
    with pytest.raises(InvalidInput, match=f"request.documents {message}"):
        pipeline().by_name["chunker"].run(request(documents=documents), CHUNKS)


@pytest.mark.parametrize("name", ["retriever", "reranker", "reader"])
def test_later_steps_refuse_documents_that_are_not_cut(name: str) -> None:
    operator = pipeline().by_name[name]
    knobs = {knob.name: knob.values[0] for knob in operator.spec.knobs}
    with pytest.raises(InvalidInput, match="must be a dict of question and passages"):
        operator.run(REQUEST, knobs)


def test_documents_and_a_question_as_large_as_allowed_are_taken() -> None:
    largest = request(question="a" * LONGEST_QUESTION, documents=["a" * LONGEST_TEXT] * 50)
    assert pipeline().by_name["chunker"].run(largest, {"size": 4, "titled": False})


@pytest.mark.parametrize(("output", "expected"), [(None, "a1"), ("a" * 1001, "x"), ("x", 3)])
def test_the_score_of_what_is_no_short_text_is_refused(output: Payload, expected: Payload) -> None:
    with pytest.raises(InvalidInput, match="must be a text of at most 1000 characters"):
        f1(output, expected)


def test_the_score_against_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"expected must have a word .* got 'The '"):
        f1("x", "The ")


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ("Berana Coldley", 1.0),
        ("the  berana, COLDLEY.", 1.0),
        ("Berana Elmby", 0.5),  # precision 1/2, recall 1/2
        ("Berana", 2 / 3),  # precision 1, recall 1/2
        ("Berana Berana Coldley Elmby", 2 / 3),  # precision 2/4, recall 1
        ("Corine", 0.0),
        ("", 0.0),
    ],
)
def test_the_score_is_the_f1_of_words(output: str, score: float) -> None:
    assert f1(output, "Berana Coldley") == pytest.approx(score)


def test_the_chain_has_288_configurations_and_numbers_are_ordered() -> None:
    graph = pipeline().graph
    names = [spec.name for spec in graph.operators]
    assert names == ["chunker", "retriever", "reranker", "reader"]
    assert [spec.after for spec in graph.operators] == [(), *((name,) for name in names[:-1])]
    assert [slot.key for slot in graph.slots if slot.knob.ordered] == [
        "chunker.size",
        "retriever.k",
    ]
    assert ConfigurationSpace(graph).size == 288


@needs_extra
def test_the_chain_answers_as_the_pipeline_in_every_configuration() -> None:
    from circinus.pipelines.catalog.retrieval.chain import chain
    from circinus.pipelines.langchain import configured

    made, steps = pipeline(), chain()
    space = ConfigurationSpace(made.graph)
    answers = []
    for number in range(space.size):
        configuration = space.configuration(number)
        answers.append(made.run(REQUEST, configuration))
        assert configured(steps, configuration).invoke(REQUEST) == answers[-1]
    assert {"Berana Coldley", "Corine Draystone"} <= set(answers)


@pytest.mark.parametrize(
    ("size", "passages"),
    [
        (1, ["A.", "B.", "C.", "D.", "E."]),
        (2, ["A. B.", "B. C.", "C. D.", "D. E."]),
        (3, ["A. B. C.", "C. D. E."]),
        (4, ["A. B. C. D.", "C. D. E."]),
        (9, ["A. B. C. D. E."]),
    ],
)
def test_passages_overlap_by_half_and_miss_no_sentence(size: int, passages: list[str]) -> None:
    assert chunked(["T\nA. B. C. D. E."], size, titled=False) == passages
    assert chunked(["T\nA. B. C. D. E."], size, titled=True) == [f"T: {p}" for p in passages]


def test_a_document_of_one_line_is_its_own_passage() -> None:
    assert chunked(["Only a title"], 4, titled=True) == ["Only a title"]


@needs_extra
@pytest.mark.parametrize("method", RETRIEVERS)
def test_every_retriever_finds_the_passage_with_the_question_s_words(method: str) -> None:
    passages = ["The pump is red.", "Alric was taught by Ulf.", "A town by the sea."]
    assert retrieved("Who taught Alric?", passages, RETRIEVERS[method], 1) == passages[1:2]
    assert len(retrieved("Who taught Alric?", passages, RETRIEVERS[method], 9)) == 3


@needs_extra
@pytest.mark.parametrize("method", RETRIEVERS)
def test_equally_bad_passages_keep_their_order(method: str) -> None:
    passages = ["xx", "xx", "xx 1"]
    assert retrieved("zzz", passages, RETRIEVERS[method], 3) == passages


@needs_extra
def test_only_letter_sequences_find_a_misspelt_name() -> None:
    passages = ["She met Bertram.", "She met Goldwick.", "She met Norbert."]
    found = {name: retrieved("Glodwick", passages, r, 1)[0] for name, r in RETRIEVERS.items()}
    assert [name for name, passage in found.items() if "Gold" in passage] == ["hashed"]


@needs_extra
def test_likeness_is_of_spelling_or_of_meaning() -> None:
    # ashby, ashbey: 10 of 11 letters match. born, birth: the thesaurus. born, barn: 6 of 8.
    alike = likeness(["ashby", "born"], ["ashbey", "birth", "barn", "xyz"])
    np.testing.assert_allclose(alike, [[10 / 11, 0, 0, 0], [0, 0.8, 0.75, 0]], atol=1e-6)


@needs_extra
def test_rerankers_put_the_passage_about_the_name_first_and_keep_three() -> None:
    passages = ["Who knows.", "Elmby taught.", "In 1801.", "Alric Ashby had Ulf Kelby teach him."]
    assert RERANKERS["none"]("Who taught Alric Ashby?", passages) == passages
    for method in ("overlap", "alignment"):
        best = RERANKERS[method]("Who taught Alric Ashby?", passages)
        assert best[0] == passages[3]
        assert len(best) == 3


@pytest.mark.parametrize(
    ("question", "kind", "spans"),
    [
        ("When was it?", SpanKind.YEAR, ["1801"]),
        ("How heavy is it?", SpanKind.QUANTITY, ["1900 kilograms"]),
        ("Who made it?", SpanKind.PERSON, ["Alric Ashby", "Elmby Works"]),
        ("Which firm made it?", SpanKind.COMPANY, ["Elmby Works"]),
        ("Which firm but Elmby made it?", SpanKind.COMPANY, []),
        ("Where was it made?", SpanKind.TOWN, ["Norham"]),
    ],
)
def test_a_question_asks_for_spans_of_a_kind(
    question: str, kind: SpanKind, spans: list[str]
) -> None:
    text = "In 1801 Alric Ashby of Elmby Works made it in Norham; it has 1900 kilograms."
    assert expected_kind(question) is kind
    assert [span.text for span in spans_of(text, kind, question)] == spans


def test_a_span_knows_its_words() -> None:
    (span,) = spans_of("It has 40 metres, no more.", SpanKind.QUANTITY, "How high?")
    assert (span.first, span.end) == (2, 4)


@needs_extra
def test_readers_look_farther_the_dearer_they_are() -> None:
    question = "When was Alric Ashby born?"
    passages = ["He died in 1860.", "Alric Ashby, who died in 1850, had his birth in 1801."]
    answers = {name: read(question, passages) for name, read in READERS.items()}
    assert answers == {"first": "1860", "window": "1850", "evidence": "1801"}


@needs_extra
@pytest.mark.parametrize("method", READERS)
def test_without_a_span_of_the_kind_the_answer_is_empty(method: str) -> None:
    assert READERS[method]("When was it?", ["Nobody knows."]) == ""


def test_words_that_say_nothing_are_no_terms_unless_there_are_no_others() -> None:
    assert terms_of("Who taught the Ashby, Ashby?") == ["taught", "ashby"]
    assert terms_of("Who is it?") == ["who", "is", "it"]
    assert names_in("Who taught Alric Ashby?") == {"alric", "ashby"}
    assert sentences_of("One. Two!  ... Three 3.5?") == ["One.", "Two!", "Three 3.5?"]


def test_an_answer_stands_in_the_document_of_its_entity() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    for _ in range(20):
        case = draw_case(rng, names_of(1))
        documents = checked_request(case.input, "documents").texts
        assert any(str(case.expected) in document for document in documents)
        titles = [document.partition("\n")[0] for document in documents]
        assert len(set(titles)) == len(titles)


def test_names_of_parts_have_no_word_in_common() -> None:
    def words(seed: int) -> set[Any]:
        names = names_of(seed)
        return {name for of_kind in names.values() for name in of_kind}

    assert words(0) == words(3)
    assert not words(0) & words(1) | words(0) & words(2) | words(1) & words(2)


def test_features_say_how_much_there_is_and_how_much_of_the_question_is_unknown() -> None:
    made = pipeline().features
    assert made is not None
    documents: Payload = ["Ashby\nAshby was born.", "Elm\nAn elm."]
    # 21 + 1 + 11 characters; terms taught, ashby, born; "taught" in no document, born once
    value: Payload = {"question": "Who taught Ashby, born?", "documents": documents}
    np.testing.assert_allclose(made(value), [33, 2, 3, 1 / 3, 1])
