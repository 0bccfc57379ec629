"""Small networks of torch, trained on this machine: equal samples, equal weights.

One rule: torch has one thread. Operators are timed, and worker processes share the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from circinus.pipelines.catalog.stored import Arrays

if TYPE_CHECKING:
    import torch

    Network = TypeVar("Network", bound=torch.nn.Module)

_SEED = 0  # of the first weights, and of the order of samples


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTraining:
    """How a network is trained, by Adam."""

    epochs: int
    batch: int  # samples of a step
    learning_rate: float
    weight_decay: float = 0.0


def one_thread() -> None:
    """Let torch compute on one thread."""
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def trained_network(
    make: Callable[[], Network],
    loss: Callable[[Network, torch.Tensor], torch.Tensor],
    count: int,
    how: NetworkTraining,
) -> Arrays:
    """Return the weights of a new network that is trained on so many samples.

    The loss is of the network on samples of some numbers.
    """
    import torch

    one_thread()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        network = make()
        optimiser = torch.optim.Adam(
            network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
        )
        for _ in range(how.epochs):
            order = torch.randperm(count)
            for rows in (order[at : at + how.batch] for at in range(0, count, how.batch)):
                optimiser.zero_grad()
                loss(network, rows).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimiser.step()
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}
