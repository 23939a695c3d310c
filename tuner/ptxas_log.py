"""What a compiler's log says: the resources of each kernel, warnings that mark a slow one, and the first error."""

import re
from dataclasses import dataclass

__all__ = ["KernelResources", "PtxasReport", "error_text", "first_error", "read_log"]

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ADVICE = re.compile(r"ptxas info\s*: \((C75\d\d)\) (?:Potential Performance Loss: )?(.+)")
_WARNING = re.compile(r"ptxas warning\s*: (.+)")
_LINE_NUMBER = re.compile(r" in (?:around )?line \d+")
_ERROR = re.compile(
    r"""^(?: nvrtc:\  | .*?\(\d+\):\  | ptxas\ (?:[^;\n]*;\ )? )?   # who says it, and where
    (?: catastrophic\  )? (?: error | fatal ) (?: \s*\#[\w-]+ )?    # error #20-D
    \s*:\ (?P<cause>.+)""",
    re.MULTILINE | re.VERBOSE,
)
_ERROR_LIMIT = 4000  # characters: the first errors of a template name the fault, hundreds of others follow from it


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes: registers a thread, bytes spilled a thread (stores and loads), bytes of stack a thread,
    and bytes of static shared memory a block."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack_bytes: int = 0
    static_smem_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class PtxasReport:
    """Resources by kernel name, and warnings, each once: `C7511 wgmma instructions are serialized …`."""

    kernels: dict[str, KernelResources]
    warnings: tuple[str, ...]


def read_log(log: str) -> PtxasReport:
    """Read the log of a compilation with `--ptxas-options=-v`.

    A function that was not inlined is listed after all kernels and no kernel is named as its caller: what it spills is
    counted for each kernel.
    """
    found: dict[str, dict[str, int]] = {}
    functions = {"spill_stores": 0, "spill_loads": 0}
    warnings: dict[str, None] = {}
    entry = function = ""
    for line in log.replace("\0", "").splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = dict.fromkeys(KernelResources.__dataclass_fields__, 0)
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            stack, stores, loads = map(int, match.groups())
            into = found.get(function, functions)
            into["spill_stores"] += stores
            into["spill_loads"] += loads
            if into is not functions:
                into["stack_bytes"] += stack
        elif (match := _REGISTERS.search(line)) and entry in found:
            found[entry] |= _used(line)
        elif warning := _warning(line):
            warnings[warning] = None
    kernels = {name: KernelResources(**_with(fields, functions)) for name, fields in found.items()}
    return PtxasReport(kernels, tuple(warnings))


def _used(line: str) -> dict[str, int]:
    """The figures of a `Used 106 registers, used 1 barriers, 32768 bytes smem, …` line; absent ones are zero."""
    patterns = {"registers": _REGISTERS, "static_smem_bytes": _SHARED}
    matches = {name: pattern.search(line) for name, pattern in patterns.items()}
    return {name: int(match[1]) for name, match in matches.items() if match}


def _with(fields: dict[str, int], functions: dict[str, int]) -> dict[str, int]:
    return fields | {name: fields[name] + extra for name, extra in functions.items()}


def _warning(line: str) -> str:
    """The line's warning without its line number, so that one loop unrolled says it once; "" if it has none."""
    if match := _ADVICE.search(line):
        return f"{match[1]} {_LINE_NUMBER.sub('', match[2])}".rstrip(". ")
    if match := _WARNING.search(line):
        return _LINE_NUMBER.sub("", match[1])
    return ""


def error_text(log: str) -> str:
    """The log from its first error on, without the resource report before it, cut to a readable length."""
    text = log.replace("\0", "")
    match = _ERROR.search(text)
    return (text[match.start() :] if match else text).strip()[:_ERROR_LIMIT]


def first_error(text: str) -> str:
    """The cause that the first error names, on one line and without its position; the first line if there is none."""
    text = text.replace("\0", "")
    match = _ERROR.search(text)
    if match:
        return match["cause"].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
