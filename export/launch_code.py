"""How a kernel is launched, as C++: the constraints and launch rules of its space with all that is known filled in.

One function of the header for each kernel: from the sizes of a problem, the run-time choices and the figures of the GPU
it computes what `kt.search_spaces.launch.resolve` computes, or says that the kernel cannot run this problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kt.errors import InputError
from kt.export.c_names import is_macro
from kt.export.cpp_expression import Term, known, printed, reference
from kt.export.expected_time import COST_NAMES, cost_rules
from kt.export.forms import most_smem
from kt.export.kernels import Kernel
from kt.export.keywords import KEYWORDS
from kt.search_spaces.expression import Expression
from kt.search_spaces.launch import always_launches, launchable
from kt.search_spaces.space import LaunchRule, TensorMapRule
from kt.templates.render import signature_names

__all__ = ["GPU_FIGURES", "SIZES", "Launcher", "launcher"]

SIZES = ("m", "n", "k", "batch", "lda", "ldb", "ldc")
# `device.*` names and what the CUDA runtime calls them; the header asks for them once for each GPU.
GPU_FIGURES = {
    "sm_count": "cudaDevAttrMultiProcessorCount",
    "smem_per_block_optin": "cudaDevAttrMaxSharedMemoryPerBlockOptin",
    "smem_per_sm": "cudaDevAttrMaxSharedMemoryPerMultiprocessor",
    "registers_per_sm": "cudaDevAttrMaxRegistersPerMultiprocessor",
    "threads_per_sm": "cudaDevAttrMaxThreadsPerMultiProcessor",
    "l2_bytes": "cudaDevAttrL2CacheSize",
    "compute_capability": "",  # made of two attributes
}
_WORD = re.compile(r"\w+")
_OF_OTHERS = re.compile(r"__|_[A-Z]|KT_")
# Names of the header that a function for a kernel uses; variables of a space must not hide them.
_TAKEN = frozenset(
    (
        "Int",
        "Truth",
        "address",
        "beta",
        "cdiv",
        "choice",
        "choose",
        "fails",
        "gpu",
        "holds",
        "least",
        "most",
        "number",
        "out",
        "power",
        "rows",
        "sizes",
    )
)


@dataclass(frozen=True)
class Launcher:
    """The bodies of a kernel's functions, line by line, and how much it may launch.

    Attributes:
        lines: of the function that plans.
        costs: of the function that says what the kernel has to do for a problem.
    """

    lines: tuple[str, ...]
    launches: int
    tensor_maps: int
    costs: tuple[str, ...]


def launcher(kernel: Kernel, namespace: str, first: int) -> Launcher:
    """The function for one kernel.

    Args:
        namespace: where the kernel's code is.
        first: number of its first launch among all of the header.

    Raises:
        InputError: a rule has no C++, or the configuration breaks one whatever the problem.
    """
    return _Writer(kernel, namespace, first).launcher()


class _Writer:
    def __init__(self, kernel: Kernel, namespace: str, first: int) -> None:
        self._kernel, self._space, self._namespace, self._first = kernel, kernel.space, namespace, first
        self._where = f"{kernel.space.source or kernel.space.family}: {kernel.config.label}"
        self._terms = _Terms(kernel, kernel.space.derived, self._where)
        self._costs = _Terms(kernel, cost_rules(kernel.space), self._where)
        signature = signature_names(kernel.signature, kernel.arch)
        self._there = launchable(kernel.space, kernel.config, signature)  # as the template is told, too
        self._maps = self._count = 0

    def launcher(self) -> Launcher:
        body = [*self._checks(), *self._workspace(), *self._launches()]
        lines = (*self._terms.definitions(body), *body, "return true;")
        return Launcher(lines, self._count, self._maps, tuple(self._cost_lines()))

    def _cost_lines(self) -> Iterator[str]:
        result = f"return {{{', '.join(self._costs[name].as_int for name in COST_NAMES)}}};"
        yield from self._costs.definitions([result])
        yield result

    def _checks(self) -> Iterator[str]:
        for constraint in self._space.constraints:
            term = self._term(constraint.require)
            if not term.known:
                yield f"if (fails({term.as_truth})) return false;  // {constraint.reason}"
            elif not term.constant:
                raise InputError(f"{self._where} breaks the rule of its space: {constraint.reason}")

    def _workspace(self) -> Iterator[str]:
        term = self._term(self._space.workspace_bytes)
        if term.constant != 0:
            yield f"if (!out.needs({term.as_int})) return false;"

    def _launches(self) -> Iterator[str]:
        for rule in self._space.launches:
            when = self._term(rule.when)
            if when.known and not when.constant:
                continue
            if rule.kernel not in self._there:
                yield f"if (holds({when.as_truth})) return false;  // {rule.kernel} was not compiled"
                continue
            lines = self._launch(rule)
            yield from lines if when.known else _guarded(when, lines)
            self._count += 1
        if not always_launches(self._space):
            yield "if (out.count == 0) return false;  // some kernel is launched"

    def _launch(self, rule: LaunchRule) -> list[str]:
        parts = [self._term(part).as_int for part in (rule.grid, rule.block, rule.smem_bytes)]
        smem = most_smem(self._space, self._kernel.config, self._kernel.forms, self._kernel.arch, rule)
        parts[2] = parts[2] if smem is None else known(smem).as_int
        kernel = f"address({self._namespace}::{rule.kernel}<0>)"
        parts.append(self._term(rule.programmatic).as_truth)
        lines = [f"if (!out.launch({kernel}, {self._first + self._count}, {', '.join(parts)})) return false;"]
        for one in rule.tensor_maps:
            lines += self._tensor_map(one)
        self._maps = max(self._maps, len(rule.tensor_maps))
        return lines

    def _tensor_map(self, rule: TensorMapRule) -> list[str]:
        when, copied, turned = (self._term(part) for part in (rule.when, rule.copied, rule.turned))
        if when.known and not when.constant:
            return []
        box = ", ".join(self._term(part).as_int for part in (rule.columns, rule.rows, rule.swizzle))
        copy = ""
        if not copied.known or copied.constant:
            offset, pitch = self._term(rule.offset).as_int, self._term(rule.pitch).as_int
            width = self._term(rule.width).as_int
            copy = f", {{{copied.as_truth}, {offset}, {pitch}, {turned.as_truth}, {width}}}"
        classes, number = self._term(rule.classes), self._term(rule.number)
        rows = ""
        if not classes.known or classes.constant != 1:
            copy = copy or ", {false, 0, 0, false, 0}"
            rows = f", {{{classes.as_int}, {number.as_int}}}"
        lines = [f"if (!out.map(Operand::{rule.operand}, {box}{copy}{rows})) return false;"]
        return lines if when.known else _guarded(when, lines)

    def _term(self, expression: Expression) -> Term:
        return self._terms.of(expression)


def _is_macro(name: str) -> bool:
    """Whether the name is replaced wherever it stands: by C's headers, or by a compiler, CUDA or the header itself."""
    return is_macro(name) or _OF_OTHERS.match(name) is not None


def _guarded(when: Term, lines: Iterable[str]) -> list[str]:
    return [f"if (holds({when.as_truth})) {{", *(f"  {line}" for line in lines), "}"]


class _Terms(Mapping[str, Term]):
    """What the names of a space's expressions are in the function; what is asked for becomes a variable."""

    def __init__(self, kernel: Kernel, derived: Mapping[str, Expression], where: str) -> None:
        self._derived, self._where = derived, where
        given = signature_names(kernel.signature, kernel.arch) | dict(kernel.config.parameters)
        self._terms: dict[str, Term] = {name: known(value) for name, value in given.items()}
        self._terms["searching"] = known(kernel.searching)
        if kernel.capability:
            self._terms["device.compute_capability"] = known(kernel.capability)
        self._sources = {name: f"sizes.{name}" for name in SIZES}
        self._sources |= {name: f"choice.{name}" for name in kernel.space.runtime}
        self._sources |= {f"operand_align_{name}": f"rows.start_{name}" for name in "ab"}
        self._sources |= {f"device.{name}": f"gpu.{name}" for name in GPU_FIGURES}
        self._variables: dict[str, str] = {}

    def of(self, expression: Expression) -> Term:
        return printed(expression, self, self._where)

    def definitions(self, body: Iterable[str]) -> Iterator[str]:
        """The variables that `body` uses outside its comments, in an order in which each can be computed.

        What was asked for may have turned out not to matter, as a factor of what is 0.
        """
        used = set(_WORD.findall(" ".join(line.partition("//")[0] for line in body)))
        for name, text in reversed(self._variables.items()):
            if name in used:
                used |= set(_WORD.findall(text))
        real = "const double beta = sizes.beta == Use::zero ? 0 : sizes.beta == Use::one ? 1 : 2;"
        yield from (real,) if "beta" in used else ()
        yield from (f"const Int {name} = {text};" for name, text in self._variables.items() if name in used)

    def __getitem__(self, name: str) -> Term:
        if name not in self._terms:
            self._terms[name] = self._found(name)
        return self._terms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def _found(self, name: str) -> Term:
        if name == "beta":
            return reference("beta", "real")
        if name in self._sources:
            return self._variable(name.removeprefix("device."), self._sources[name])
        term = self.of(self._derived[name])
        return term if term.known or term.text in self._variables else self._variable(name, term.as_int)

    def _variable(self, name: str, text: str) -> Term:
        identifier = f"own_{name}" if _is_macro(name) else name
        while identifier in KEYWORDS or identifier in _TAKEN or identifier in self._variables:
            identifier += "_"
        self._variables[identifier] = text
        return reference(identifier)
