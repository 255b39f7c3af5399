"""Opening the embedder that a configuration names, without the extra `models`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from standard.domain.errors import EmbedderUnavailable, FailedPrecondition
from standard.embedding.config import EmbeddingConfig
from standard.embedding.factory import open_embedder


async def test_the_default_is_the_shipped_model_and_it_ends_with_its_context() -> None:
    async with open_embedder() as embedder:
        assert embedder.id == "all-MiniLM-L6-v2-int8"
        assert (await embedder.embed_queries(["Who holds the keys?"])).shape == (1, 384)
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.embed_queries(["too late"])


async def test_another_model_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)  # also where the extra is installed
    with pytest.raises(FailedPrecondition, match=r"pointsman\[models\]"):
        async with open_embedder(EmbeddingConfig(model="intfloat/e5-small-v2")):
            pass


def test_serving_imports_neither_torch_nor_the_endpoint_client_nor_the_export() -> None:
    program = (
        "import asyncio, sys\n"
        "from standard.embedding.factory import open_embedder\n"
        "async def main():\n"
        "    async with open_embedder() as embedder:\n"
        "        await embedder.embed_queries(['Who holds the keys?'])\n"
        "asyncio.run(main())\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openai', 'onnx', 'standard.embedding.export'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
