"""The built-in pipeline `retrieval`: answer a question from a pile of documents, on a CPU.

    chunker -> retriever -> reranker -> reader

It is written as a LangChain chain and read by `pipelines.langchain`, as a user's own chain would
be. Every document is invented, so that the answer is known exactly.
"""

from circinus.pipelines.catalog.retrieval.definition import pipeline

__all__ = ["pipeline"]
