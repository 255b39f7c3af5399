"""The shipped models behind the gateway's view, with the shipped embedder and real candidates in memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from router.routing.models import LoadedModels, ModelLoader
from standard.domain.errors import Damaged
from standard.domain.passage import Passage, RetrievedPassage, SearchResult
from standard.domain.question import Question, Turn
from standard.domain.text import UntrustedText
from standard.embedding.artifact import read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.protocol import PassageInput


@pytest.fixture(scope="module")
def embedder() -> BuiltinEmbedder:
    return BuiltinEmbedder(read_artifact())


class OtherEmbedder:
    """An embedder that the shipped model was not trained with."""

    id = "somebody/else"
    checksum = "0" * 64
    dimensions = 768


def asked(text: str, *before: str) -> Question:
    return Question(UntrustedText(text), history=tuple(Turn("user", UntrustedText(said)) for said in before))


async def found(embedder: BuiltinEmbedder, texts: list[str]) -> SearchResult:
    vectors = (await embedder.embed_passages([PassageInput(text) for text in texts])).vectors
    passages = tuple(
        RetrievedPassage(
            Passage(f"d{n}#0", f"d{n}", UntrustedText(f"Title {n}"), "", UntrustedText(text), 0, ""),
            score=1.0 - 0.1 * n,
            dense_score=0.5,
            dense_rank=n,
            lexical_score=3.0 - n,
            lexical_rank=n,
        )
        for n, text in enumerate(texts)
    )
    return SearchResult(passages, passages, {"ferri": 2.0, "leav": 3.0}, 50, vectors)


def loaded(embedder: BuiltinEmbedder, batches: list[int]) -> LoadedModels:
    """The shipped models; `batches` takes how many texts were embedded at once, a call each."""

    async def embed_many(texts: Sequence[str]) -> NDArray[np.float32]:
        batches.append(len(texts))
        return await embedder.embed_queries(texts)

    loader = ModelLoader("", embedder, embed_many)
    loader.load()
    return loader.require()


async def test_text_and_first_look_both_speak(embedder: BuiltinEmbedder) -> None:
    batches: list[int] = []
    models = loaded(embedder, batches)
    question = asked("When does the last ferry leave, and who decides when it is windy?")
    vector = (await embedder.embed_queries([question.text.raw]))[0]
    first = await found(embedder, ["The last ferry leaves at 22:15.", "The master decides in wind.", "Cafe prices."])
    signals = await models.signals(await models.read(question), vector, first)
    for probability in (signals.text, signals.evidence, signals.combined):
        assert probability is not None
        assert 0.0 < probability < 1.0
    assert signals.model_version == models.version
    assert len(batches) == 1, "all parts of a question are embedded in one batch"
    assert signals == await models.signals(await models.read(question), vector, first)


async def test_parts_that_were_embedded_beside_the_search_are_not_embedded_again(embedder: BuiltinEmbedder) -> None:
    batches: list[int] = []
    models = loaded(embedder, batches)
    question = asked("When does the last ferry leave, and who decides when it is windy?")
    vector = (await embedder.embed_queries([question.text.raw]))[0]
    first = await found(embedder, ["The last ferry leaves at 22:15.", "The master decides in wind.", "Cafe prices."])
    reading, parts = await models.read(question), await models.embed_parts(question)
    assert parts is not None
    beside = await models.signals(reading, vector, first, parts)
    assert len(batches) == 1
    assert beside == await models.signals(reading, vector, first)
    assert await models.embed_parts(asked("Wer hat die Rechnung freigegeben?")) is None
    assert await models.embed_parts(asked("?")) is None


async def test_without_vectors_or_with_an_empty_corpus_something_sensible_is_said(embedder: BuiltinEmbedder) -> None:
    loader = ModelLoader("", embedder, embedder.embed_queries)
    loader.load()
    question = asked("When does the last ferry leave?")
    vector = (await embedder.embed_queries([question.text.raw]))[0]
    signals = await loader.require().signals(await loader.require().read(question), vector, SearchResult(()))
    assert signals.combined is not None


async def test_case_and_final_marks_never_change_the_answer(embedder: BuiltinEmbedder) -> None:
    loader = ModelLoader("", embedder, None)
    loader.load()
    models = loader.require()
    question = "which of our suppliers was late twice and who signed their contracts"
    said = [(await models.read(asked(form))).logit for form in (question, question.upper(), question + "?")]
    assert said[1:] == pytest.approx([said[0], said[0]], abs=1e-3)


async def test_a_language_that_is_not_read_is_told(embedder: BuiltinEmbedder) -> None:
    loader = ModelLoader("", embedder, None)
    loader.load()
    models = loader.require()
    assert not models.text_signals(await models.read(asked("Wer hat die Rechnung freigegeben?"))).knows_language
    assert models.text_signals(await models.read(asked("Who approved the invoice?"))).knows_language


async def test_a_follow_up_is_read_with_what_it_leans_on(embedder: BuiltinEmbedder) -> None:
    loader = ModelLoader("", embedder, None)
    loader.load()
    models = loader.require()
    before = "Which suppliers were late twice this year, and who signed their contracts?"
    leaning, alone = await models.read(asked("and at Garvel?", before)), await models.read(asked("and at Garvel?"))
    assert models.text_signals(leaning) != models.text_signals(alone)


async def test_another_embedder_leaves_the_text_to_decide(embedder: BuiltinEmbedder) -> None:
    loader = ModelLoader("", OtherEmbedder(), embedder.embed_queries)  # type: ignore[arg-type]
    loader.load()
    models = loader.require()
    first = await found(embedder, ["The last ferry leaves at 22:15."])
    reading = await models.read(asked("When does the last ferry leave?"))
    signals = await models.signals(reading, np.zeros(768, dtype=np.float32), first)
    assert signals.evidence is None
    assert signals.combined == signals.text


def test_a_model_that_cannot_be_loaded_is_told_and_stops_nothing(embedder: BuiltinEmbedder, tmp_path: Path) -> None:
    loader = ModelLoader(str(tmp_path / "nothing"), embedder, None)
    loader.load()
    assert loader.current() is None
    with pytest.raises(Damaged, match="manifest"):
        loader.require()
