"""The built-in pipeline `retrieval`: answer a question from a pile of documents, on a CPU.

    chunker -> retriever -> reranker -> reader

It is written as a LangChain chain and read by `pipelines.langchain`, as a user's own chain would
be. One rule: every document is invented, so that the answer is known exactly; how far question and
documents differ in wording is a design choice (`cases`), so its accuracies say nothing about the
world.
"""

from pipelines.catalog.retrieval.definition import pipeline

__all__ = ["pipeline"]
