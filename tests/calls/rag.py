"""A retrieval chain as users of LangChain write it; OPENAI_BASE_URL says where its models are."""

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.utils import ConfigurableFieldSingleOption
from langchain_openai import ChatOpenAI

MATERIALS = [
    "tin",
    "zinc",
    "lead",
    "iron",
    "gold",
    "silver",
    "copper",
    "nickel",
    "cobalt",
    "brass",
]
PROPERTIES = ["price", "weight", "colour", "age", "origin"]
FACTS = {
    (what, of): f"{what[:2]}{of[:2]}{i}"
    for i, (of, what) in enumerate((of, what) for of in MATERIALS for what in PROPERTIES)
}


class ByWord(BaseRetriever):
    """Finds what names the thing that is asked about, what was written first before others."""

    k: int = 1

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        asked = set(query.rstrip("?").split())
        found = [
            f"The {what} of {of} is {value}." for (what, of), value in FACTS.items() if of in asked
        ]
        return [Document(page_content=text) for text in found[: self.k]]


def together(documents: list[Document]) -> str:
    """Return the documents as one text."""
    return "\n".join(document.page_content for document in documents)


sizes = {"one": 1, "three": 3, "five": 5}
retriever = ByWord().configurable_fields(
    k=ConfigurableFieldSingleOption(id="k", options=sizes, default="one")
)
brief = ChatPromptTemplate.from_template("{context}\n{question}")
careful = ChatPromptTemplate.from_messages(
    [
        ("system", "You answer from the context alone, in one word, and say so if it is missing."),
        ("human", "Context:\n{context}\n\nQuestion: {question}"),
    ]
)
prompt = brief.configurable_alternatives(
    ConfigurableField(id="prompt"), default_key="brief", careful=careful
)
model = ChatOpenAI(
    model="reader-small", temperature=0, max_completion_tokens=20
).configurable_alternatives(
    ConfigurableField(id="model"),
    default_key="small",
    medium=ChatOpenAI(model="reader-medium", temperature=0, max_completion_tokens=20),
    large=ChatOpenAI(model="reader-large", temperature=0, max_completion_tokens=20),
)
chain = (
    {
        "context": retriever | RunnableLambda(together, name="together"),
        "question": RunnablePassthrough(),
    }
    | prompt
    | model
    | StrOutputParser()
)


def metric(output: str, expected: str) -> float:
    """Return whether an answer is the one expected."""
    return float(output.strip() == expected)


examples = [(f"What is the {what} of {of}?", value) for (what, of), value in FACTS.items()]
