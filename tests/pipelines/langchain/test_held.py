from langchain_core.runnables import RunnableLambda

from circinus.pipelines.langchain.held import everything_of


class _Turns:
    """Its methods name each other, and each is made anew whenever it is asked for."""

    def one(self, text: str) -> str:
        return self.other(text) if text else text

    def other(self, text: str) -> str:
        return self.one(text[1:])


def test_methods_that_name_each_other_are_looked_into_once() -> None:
    found = everything_of(RunnableLambda(_Turns().one))

    names = [getattr(one, "__name__", "") for one in found]
    assert names.count("one") == names.count("other") == 1
