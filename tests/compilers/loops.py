"""Loops in a driver's text of machine code, and what the loop over K takes for each product of matrices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# Before the name of an instruction: a number, a predicate, marks in parentheses, a destination.
_MARK = re.compile(r"\s*(\d+:|@!?\S+\s|\([^)]*\))\s*")
_INSTRUCTION = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)(?=[\s({]|$)")
# Intel's text: a label alone on its line, and at a loop's end the jump back to its label.
_LABEL = re.compile(r"(L\d+):")
_JUMP_BACK = re.compile(r"\bwhile\b.*\b(L\d+)")


@dataclass(frozen=True)
class Loop:
    """A loop.

    Attributes
    ----------
    first, end : int
        Its first instruction, and the one after its last, in the order of the text.
    instructions : mapping of str to int
        How often each instruction is in it, those of loops inside it included.
    """

    first: int
    end: int
    instructions: Mapping[str, int]

    @property
    def size(self) -> int:
        return self.end - self.first

    def count(self, mnemonic: str) -> int:
        """How many instructions of it have names that begin so."""
        return sum(count for name, count in self.instructions.items() if name.startswith(mnemonic))


@dataclass(frozen=True)
class ProductCost:
    """What the loop over K takes for each product of matrices.

    Attributes
    ----------
    instructions : float
    waits : float
        Those of them that only wait for registers.
    """

    instructions: float
    waits: float


def instruction(line: str) -> str | None:
    """The name of the instruction on a line; None if there is none."""
    operation = line.partition("//")[0].rpartition(" = ")[2].strip()
    while mark := _MARK.match(operation):
        operation = operation[mark.end() :]
    found = _INSTRUCTION.match(operation)
    return None if found is None or operation.endswith(":") else found[1]


def instructions(text: str) -> Counter[str]:
    """How often each instruction is in a driver's text of machine code."""
    return Counter(name for line in text.splitlines() if (name := instruction(line)) is not None)


def loops(text: str) -> Iterator[Loop]:
    """The loops in the text of Intel's driver, inner ones first; the text of others has none that are found."""
    names: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(names)
        elif (name := instruction(line)) is not None:
            names.append(name)
            jump = _JUMP_BACK.search(line)
            if jump is not None and jump[1] in labels:
                first = labels[jump[1]]
                yield Loop(first, len(names), dict(Counter(names[first:])))


def product_cost(found: Iterable[Loop], mnemonic: str, wait: str, products: int) -> ProductCost:
    """What the loop over K takes for each product.

    A loop over the slices of a step, if it is one, counts as often as it runs.

    Parameters
    ----------
    found : iterable of Loop
        All loops of an executable.
    mnemonic, wait : str
        The beginnings of the names of the instructions that multiply, and of those that only wait.
    products : int
        Products of one step of K.

    Raises
    ------
    ValueError
        No loop has the products of a step. A check of nothing must not pass.
    """
    holding = sorted((loop for loop in found if loop.count(mnemonic)), key=lambda loop: loop.size)
    counts = [loop.count(mnemonic) for loop in holding]
    runs, rest = divmod(products, counts[0]) if counts else (0, products)
    if rest or runs == 0 or (runs > 1 and counts[1:2] != counts[:1]):
        raise ValueError(f"loops have {counts} instructions {mnemonic}: none of them does the {products} of a step")
    slices = holding[0]
    step = holding[1] if runs > 1 else slices
    return ProductCost(
        (step.size + (runs - 1) * slices.size) / products,
        (step.count(wait) + (runs - 1) * slices.count(wait)) / products,
    )
