"""What documents say of an entity, and how people ask for it.

One rule: statements and questions go from plain to roundabout wording, and share fewer words as
they do. `{s}` is the subject, `{v}` the value, `{n}` the name asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A property of an entity.

    Attributes:
        value: `year`, `person`, `town`, `company`, or else the unit of a number.
        statements: Ways to state it, the last in two sentences.
        questions: Ways to ask for it.
    """

    value: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]


def _attribute(value: str, statements: str, questions: str) -> Attribute:
    return Attribute(
        value=value,
        statements=tuple(statements.split(" | ")),
        questions=tuple(questions.split(" | ")),
    )


ATTRIBUTES: Mapping[str, tuple[Attribute, ...]] = MappingProxyType(
    {
        "person": (
            _attribute(
                "year",
                "{s} was born in {v}. | {s} came into the world in {v}, the second of four. | "
                "{s} never kept birthdays. The parish book has an entry under {v}.",
                "In what year was {n} born? | When did {n} come into the world? | "
                "What year does the parish have for the birthday of {n}?",
            ),
            _attribute(
                "year",
                "{s} died in {v}. | {s} passed away in {v} after an illness. | "
                "{s} fell ill on a journey home. The end came in {v}.",
                "In what year did {n} die? | When did {n} pass away? | "
                "What year was the last one of {n}, who fell ill?",
            ),
            _attribute(
                "person",
                "{s} was taught by {v}. | {s} learned the trade under {v}. | "
                "{s} spent six years as an apprentice. The master was {v}.",
                "Who taught {n}? | Under whom did {n} learn the trade? | "
                "Who had {n} as an apprentice?",
            ),
            _attribute(
                "person",
                "{s} married {v} in spring. | {s} took {v} as a partner for life. | "
                "{s} had a quiet wedding. The other half of the couple was {v}.",
                "Who married {n}? | Who was the partner of {n}? | Who had a wedding with {n}?",
            ),
            _attribute(
                "town",
                "{s} lived in {v}. | {s} settled at {v} early on. | "
                "{s} bought a small house. It stood in {v}.",
                "Where did {n} live? | In which town did {n} settle? | Where was the home of {n}?",
            ),
            _attribute(
                "crowns",
                "{s} earned {v} a year. | {s} drew a salary of {v}. | "
                "{s} was paid every autumn. The sum was {v}.",
                "How many crowns did {n} earn a year? | How much was the salary of {n}? | "
                "How large was the sum that {n} was paid?",
            ),
            _attribute(
                "company",
                "{s} worked for {v}. | {s} found employment with {v}. | "
                "{s} took a post as a clerk. The letters went out from {v}.",
                "For which company did {n} work? | Which firm gave {n} employment? | "
                "Which company had {n} as a clerk?",
            ),
        ),
        "company": (
            _attribute(
                "year",
                "{s} was founded in {v}. | {s} opened its doors in {v}. | "
                "{s} began in a rented barn. That was in {v}.",
                "In what year was {n} founded? | When did {n} open its doors? | "
                "What year did {n} begin in a barn?",
            ),
            _attribute(
                "person",
                "{s} was founded by {v}. | {s} owes its beginnings to {v}. | "
                "{s} was first a shop of one room. Behind the counter stood {v}.",
                "Who founded {n}? | To whom does {n} owe its beginnings? | "
                "Who stood in the first shop of {n}?",
            ),
            _attribute(
                "person",
                "{s} is directed by {v}. | {s} has been led for years by {v}. | "
                "{s} got a new head. The choice of the board fell on {v}.",
                "Who directs {n}? | Who has led {n} for years? | "
                "Whom did the board choose as head of {n}?",
            ),
            _attribute(
                "town",
                "{s} has its seat in {v}. | {s} keeps the main office at {v}. | "
                "{s} moved after the flood. The new building is in {v}.",
                "Where does {n} have its seat? | In which town is the main office of {n}? | "
                "Where did {n} move?",
            ),
            _attribute(
                "workers",
                "{s} employs {v}. | {s} has a staff of {v}. | "
                "{s} counts heads on the first of May. The list had {v}.",
                "How many workers does {n} employ? | How large is the staff of {n}? | "
                "How many heads are on the list of {n}?",
            ),
            _attribute(
                "crowns",
                "{s} sold goods for {v} last year. | {s} reported a turnover of {v}. | "
                "{s} keeps careful books. The final line read {v}.",
                "For how many crowns did {n} sell goods last year? | "
                "How much was the turnover of {n}? | How much is in the books of {n}?",
            ),
        ),
        "machine": (
            _attribute(
                "year",
                "{s} was invented in {v}. | {s} dates from {v}. | "
                "{s} was shown as a drawing first. It ran for the first time in {v}.",
                "In what year was the {n} invented? | From which year does the {n} date? | "
                "When did the {n} first run?",
            ),
            _attribute(
                "person",
                "{s} was invented by {v}. | {s} goes back to an idea of {v}. | "
                "{s} was drawn on a napkin. The hand belonged to {v}.",
                "Who invented the {n}? | To whose idea does the {n} go back? | "
                "Who drew the {n} on a napkin?",
            ),
            _attribute(
                "kilograms",
                "{s} weighs {v}. | {s} has a weight of {v}. | "
                "{s} was put on a scale for the fair. The needle stopped at {v}.",
                "How many kilograms does the {n} weigh? | How heavy is the weight of the {n}? | "
                "How much did the scale show for the {n}?",
            ),
            _attribute(
                "metres",
                "{s} is {v} tall. | {s} reaches a height of {v}. | "
                "{s} needs a hall of its own. The top stands at {v}.",
                "How many metres tall is the {n}? | How high does the {n} reach? | "
                "How high is the top of the {n} in its hall?",
            ),
            _attribute(
                "company",
                "{s} is made by {v}. | {s} is a product of {v}. | "
                "{s} carries a brass plate. It reads {v}.",
                "Which company makes the {n}? | Of which firm is the {n} a product? | "
                "Which company is on the plate of the {n}?",
            ),
            _attribute(
                "town",
                "{s} is kept in {v}. | {s} is on display at {v}. | "
                "{s} was given to a museum. Its doors are in {v}.",
                "Where is the {n} kept? | In which town is the {n} on display? | "
                "Where is the museum with the {n}?",
            ),
        ),
        "town": (
            _attribute(
                "year",
                "{s} received its charter in {v}. | {s} was granted rights in {v}. | "
                "{s} waited long for a seal. The king gave it in {v}.",
                "In what year did {n} receive its charter? | When was {n} granted rights? | "
                "What year did the king give {n} a seal?",
            ),
            _attribute(
                "person",
                "{s} has {v} as its mayor. | {s} is governed by {v}. | "
                "{s} voted in March. Most ballots were for {v}.",
                "Who is the mayor of {n}? | Who governs {n}? | For whom did {n} vote?",
            ),
            _attribute(
                "inhabitants",
                "{s} has {v}. | {s} is home to {v}. | {s} took a census. The clerks came to {v}.",
                "How many inhabitants does {n} have? | To how many people is {n} home? | "
                "How many did the census of {n} find?",
            ),
            _attribute(
                "kilometres",
                "{s} lies {v} from the sea. | {s} is {v} away from the coast. | "
                "{s} sees few ships. The walk to the beach is {v}.",
                "How many kilometres from the sea does {n} lie? | "
                "How far away is {n} from the coast? | How long is the walk from {n} to a beach?",
            ),
            _attribute(
                "town",
                "{s} trades most with {v}. | {s} sends its goods to {v}. | "
                "{s} built a road for carts. It ends in {v}.",
                "With which town does {n} trade most? | Where does {n} send its goods? | "
                "Where does the road of {n} end?",
            ),
            _attribute(
                "company",
                "{s} buys its water from {v}. | {s} is supplied with water by {v}. | "
                "{s} has had taps since the drought. The pipes belong to {v}.",
                "From which company does {n} buy its water? | Which firm supplies {n}? | "
                "Which company has the pipes of {n}?",
            ),
        ),
    }
)
"""Kind of entity -> its attributes."""

FILLERS = (
    "Little else is known of those years.",
    "Visitors are welcome on weekdays.",
    "The records were copied by hand and are not complete.",
    "A fire destroyed part of the papers.",
    "Opinions on this differ to the present day.",
    "A portrait hangs in the town hall.",
    "Much of this was told by neighbours long afterwards.",
    "Newspapers of the region wrote about it more than once.",
    "An old song mentions it in passing.",
)
"""Sentences without an answer."""

ASIDES = (
    "{person} was born in {year} and wrote about it.",
    "{person}, who lived in {town}, told another story.",
    "A cousin, {person}, earned {crowns} a year.",
    "A model of it in {town} weighs {kilograms}.",
    "{company}, founded in {year}, paid for the survey.",
    "{person} was taught by {other} and saw it in {year}.",
    "It is often taken for one in {town}, which {other} invented.",
)
"""Sentences with somebody else's answer."""

ASIDE_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "person": "person",
        "other": "person",
        "company": "company",
        "town": "town",
        "year": "year",
        "crowns": "crowns",
        "kilograms": "kilograms",
    }
)
"""What stands in an aside -> what kind of value it is."""
