"""LangChain and LangGraph as pipelines: reading, then graphs and checking, then steps and values; knows pipelines alone."""

from circinus.pipelines.langchain.reading import (
    Reading,
    as_one,
    configured,
    pipeline_from_runnable,
    runnable_of,
)

__all__ = ["Reading", "as_one", "configured", "pipeline_from_runnable", "runnable_of"]
