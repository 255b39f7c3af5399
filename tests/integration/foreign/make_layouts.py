"""Make a table of each layout with the library that people make it with, and fill it.

    python make_layouts.py POSTGRES_URL PASSAGES.json

Runs in an environment of its own (requirements/layouts.txt): these libraries want another pgvector than the gateway.
PASSAGES.json: [{"id", "document_id", "title", "text", "url", "year", "page", "tenant", "readers", "embedding"}]. Prints
the layouts made.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import uuid
import warnings
from pathlib import Path
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

NAMESPACE = uuid.UUID("6f0e5d0e-4a53-4f3c-9f0c-3a3c7a3f9d11")


class Known:
    """Embeddings that are known by their text."""

    def __init__(self, passages: list[dict[str, Any]]) -> None:
        self.vectors: dict[str, list[float]] = {each["text"]: each["embedding"] for each in passages}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vectors[text] for text in texts]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.vectors[text]


def metadata(passage: dict[str, Any]) -> dict[str, Any]:
    return {
        "document_id": passage["document_id"],
        "title": passage["title"],
        "url": passage["url"],
        "year": passage["year"],
    }


def langchain(url: str, passages: list[dict[str, Any]]) -> None:
    from langchain_core.documents import Document
    from langchain_postgres import PGVector

    for collection in ("handbook", "elsewhere"):
        store = PGVector(
            embeddings=Known(passages),
            connection=url.replace("postgresql://", "postgresql+psycopg://"),
            collection_name=collection,
            create_extension=False,
        )
        kept = passages if collection == "handbook" else passages[:3]
        documents = [Document(page_content=each["text"], metadata=metadata(each)) for each in kept]
        store.add_documents(documents, ids=[f"{collection}-{each['id']}" for each in kept])


def langchain_community(url: str, passages: list[dict[str, Any]]) -> None:
    """The generation before, whose rows are known by `uuid` and whose metadata are json."""
    import sqlalchemy
    from langchain_community.vectorstores.pgvector import PGVector

    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("create schema older"))
        connection.commit()
    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg2://"),
        connect_args={"options": "-c search_path=older,public"},
    )
    connection = engine.connect()
    store = PGVector(
        connection_string="",
        connection=connection,
        embedding_function=Known(passages),
        embedding_length=len(passages[0]["embedding"]),
        collection_name="handbook",
        create_extension=False,
    )
    store.add_texts(
        [each["text"] for each in passages],
        [metadata(each) for each in passages],
        ids=[each["id"] for each in passages],
    )
    connection.commit()


def langchain_pgvectorstore(url: str, passages: list[dict[str, Any]]) -> None:
    from langchain_core.documents import Document
    from langchain_postgres import Column, PGEngine, PGVectorStore
    from langchain_postgres.v2.indexes import DistanceStrategy, HNSWIndex

    engine = PGEngine.from_connection_string(url.replace("postgresql://", "postgresql+asyncpg://"))
    engine.init_vectorstore_table(
        "handbook_store", len(passages[0]["embedding"]), metadata_columns=[Column("year", "INTEGER")]
    )
    store = PGVectorStore.create_sync(
        engine, embedding_service=Known(passages), table_name="handbook_store", metadata_columns=["year"]
    )
    store.add_documents(
        [Document(page_content=each["text"], metadata=metadata(each)) for each in passages],
        ids=[str(uuid.uuid5(NAMESPACE, each["id"])) for each in passages],
    )
    store.apply_vector_index(HNSWIndex(name="handbook_store_hnsw", distance_strategy=DistanceStrategy.INNER_PRODUCT))


def llamaindex(url: str, passages: list[dict[str, Any]]) -> None:
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.vector_stores.postgres import PGVectorStore

    for name, halfvec in (("handbook", False), ("handbook_half", True)):
        store = PGVectorStore.from_params(
            connection_string=url.replace("postgresql://", "postgresql+psycopg2://"),
            async_connection_string=url.replace("postgresql://", "postgresql+asyncpg://"),
            table_name=name,
            embed_dim=len(passages[0]["embedding"]),
            hybrid_search=True,
            use_jsonb=halfvec,
            use_halfvec=halfvec,
            hnsw_kwargs={"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_dist_method": "vector_cosine_ops"}
            if not halfvec
            else {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_dist_method": "halfvec_l2_ops"},
        )
        store.add(
            [
                TextNode(
                    id_=each["id"],
                    text=each["text"],
                    metadata={key: value for key, value in metadata(each).items() if key != "document_id"},
                    embedding=each["embedding"],
                    relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=each["document_id"])},
                )
                for each in passages
            ]
        )


def haystack(url: str, passages: list[dict[str, Any]]) -> None:
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

    os.environ["PG_CONN_STR"] = url
    store = PgvectorDocumentStore(
        connection_string=Secret.from_env_var("PG_CONN_STR"),
        create_extension=False,
        embedding_dimension=len(passages[0]["embedding"]),
        search_strategy="hnsw",
    )
    store.write_documents(
        [
            Document(
                id=each["id"],
                content=each["text"],
                meta=metadata(each) | {"source_id": each["document_id"], "split_id": 0},
                embedding=each["embedding"],
            )
            for each in passages
        ]
    )


MODEL = """
from django.contrib.postgres.fields import ArrayField
from django.db import models
from pgvector.django import HnswIndex, VectorField


class Page(models.Model):
    slug = models.CharField(max_length=80)
    heading = models.CharField(max_length=200)
    body = models.TextField()
    page_number = models.IntegerField()
    year = models.IntegerField()
    published = models.BooleanField()
    added = models.DateTimeField()
    tenant_name = models.CharField(max_length=40)
    readers = ArrayField(models.CharField(max_length=40), null=True)
    embedding = VectorField(dimensions={dimensions}, null=True)

    class Meta:
        indexes = [HnswIndex(name="library_page_embedding", fields=["embedding"], opclasses=["vector_l2_ops"])]
"""


def django(url: str, passages: list[dict[str, Any]]) -> None:
    """An application with a model of its own, its migration made and run by Django."""
    with tempfile.TemporaryDirectory() as folder:
        application = Path(folder) / "library"
        (application / "migrations").mkdir(parents=True)
        (application / "__init__.py").touch()
        (application / "migrations" / "__init__.py").touch()
        (application / "models.py").write_text(MODEL.replace("{dimensions}", str(len(passages[0]["embedding"]))))
        sys.path.insert(0, folder)
        from django.conf import settings
        from django.core.management import call_command

        database = {"ENGINE": "django.db.backends.postgresql", **_parts_of(url)}
        settings.configure(
            INSTALLED_APPS=["library"],
            DATABASES={"default": database},
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            USE_TZ=True,
        )
        import django as framework

        framework.setup()
        call_command("makemigrations", "library", verbosity=0)
        call_command("migrate", verbosity=0)
        from library.models import Page

        Page.objects.bulk_create(
            Page(
                slug=each["document_id"],
                heading=each["title"],
                body=each["text"],
                page_number=each["page"],
                year=each["year"],
                published=each["page"] != 3,
                added=f"{each['year']}-05-01T00:00:00Z",
                tenant_name=each["tenant"],
                readers=each["readers"],
                embedding=each["embedding"],
            )
            for each in passages
        )


def _parts_of(url: str) -> dict[str, str]:
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {name: str(given.get(key, "")) for name, key in names.items()}


MAKERS = {
    "langchain-community": langchain_community,  # before the next: it makes no table where it sees one of that name
    "langchain": langchain,
    "langchain-pgvectorstore": langchain_pgvectorstore,
    "llamaindex": llamaindex,
    "haystack": haystack,
    "django": django,
}


def main(url: str, passages: list[dict[str, Any]]) -> None:
    """Make all of them."""
    for name, make in MAKERS.items():
        make(url, passages)
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text("utf-8")))
    os._exit(0)  # a library here keeps a thread with an event loop
