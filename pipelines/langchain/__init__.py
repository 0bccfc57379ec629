"""LangChain and LangGraph as pipelines; knows pipelines alone.

`reading` above `graphs` and `checking`, these above `read_step`, `steps`, `held` and `values`.
"""

from circinus.pipelines.langchain.reading import (
    Reading,
    as_one,
    configured,
    pipeline_from_runnable,
    runnable_of,
)

__all__ = ["Reading", "as_one", "configured", "pipeline_from_runnable", "runnable_of"]
