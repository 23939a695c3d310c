"""A source includes CUDA's number-format headers only: what else it read, kt would not see change."""

import time
from pathlib import Path

import pytest

from kt.errors import InputError
from kt.templates.includes import CUDA_HEADERS, check_includes
from kt.templates.lookup import BUILTIN
from support.commands import Command
from support.small_family import SMALL_TEMPLATE

SHAPES = "shapes: [{m: 64, n: 64, k: 64}]\n"


def check(text: str, folder: Path, template: str = "") -> None:
    (folder / "t.cu.j2").write_text(template or text)
    check_includes(text, "t.cu.j2", [folder])


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n",
        "  #  include\t<cuda_fp16.h>  // for __half\n",
        "#include/* half */<cuda_fp16.h>\n",
        "// #include <vector>\n/*\n#include <vector>\n*/ int i;\n",
        "// as in \\\n#include <vector>\n",
        'const char* s = "/*";  // "\n/* "\n#include <vector>\n*/\n',
        "const int i = 1'000;  /*\n#include <vector> isn't */\n",
        'const char* s = R"x(\n#include <vector>\n)x";\n',
        'asm("// #include <vector>");\n',
        "int includes, include_next; // what it includes\n",
        "#if __has_include(<cuda_fp8.h>)\n#endif\n",
    ],
)
def test_cuda_headers_comments_and_strings_are_fine(tmp_path: Path, text: str) -> None:
    check(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#include <vector>", 1),
        ('\n#include "my.h"', 2),
        ('#include "cuda_fp16.h"', 1),  # NVRTC reads a file of this name in the working folder
        ('#include "/usr/include/stdio.h"', 1),
        ('\n #\tinclude"my.h"', 2),
        ('%:include "my.h"', 1),
        ('\f#include "my.h"', 1),
        ('#inc\\\nlude "my.h"', 2),
        ('#inc\\\r\nlude "my.h"', 2),
        ('/* why */ # /* not */ include /* ? */ "my.h"', 1),
        ('/*\n*/#include "my.h"', 2),
        ('#define MINE "my.h"\n#include MINE', 2),
        ("#include_next <cuda_fp16.h>", 1),
        ('#if __has_include("my.h")\n#endif', 1),
        ("#ifdef __has_include\n#endif", 1),
        ('// a comment\n"a string /*"; // */\n#include <vector>', 3),
        ("const int i = 1'000;  // '\n#include <vector>", 2),
        ('const char* s = R"(")"; /* "\n*/\n#include <vector>', 3),
        ("#if 0\nthis isn't /* closed\n#endif\n#include <vector>", 4),
        ('#pragma message "open /*\n#include <vector>', 2),
        ("#include", 1),
        ("#include <cuda_fp16.h>\n#include <cuda_fp16.h>\n#include <vector>", 3),
    ],
)
def test_every_spelling_of_another_include_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path}/t\.cu\.j2:{line}: (#|__has_)include") as caught:
        check(text, tmp_path)
    assert all(f"<{name}>" in caught.value.message for name in CUDA_HEADERS)
    assert "{% include" in str(caught.value.hint)


def test_an_include_is_told_where_the_template_has_it(tmp_path: Path) -> None:
    """In a header that the template includes, in a line that computes the name, or else in the template."""
    (tmp_path / "part.cuh").write_text("#pragma once\n\n#include <vector>\n")
    template = '{% include "part.cuh" %}\n{# #include #}\n#include <{{ name }}.h>\n'
    with pytest.raises(InputError, match=rf"^{tmp_path}/part\.cuh:3: #include <vector>"):
        check("\n#include <vector>", tmp_path, template)
    with pytest.raises(InputError, match=rf"^{tmp_path}/t\.cu\.j2:3: #include <my\.h>"):
        check("#include <my.h>", tmp_path, template)
    with pytest.raises(InputError, match=rf"^{tmp_path}/t\.cu\.j2: #include <my\.h>"):
        check("#include <my.h>", tmp_path, '{{ "#inc" ~ "lude <my" ~ ".h>" }}')


@pytest.mark.parametrize("command", ["tune", "plan --compile"])
@pytest.mark.parametrize("name", ["<vector>", '"my.h"', '"{folder}/my.h"'])
def test_tune_and_plan_refuse_it_before_compiling(
    kt: Command, small_family: tuple[str, ...], tmp_path: Path, command: str, name: str
) -> None:
    """Exit 2 and the place, no advice to install a header; nothing is compiled or stored."""
    template = Path(small_family[-1]) / "gemm" / "small.cu.j2"
    name = name.format(folder=tmp_path)
    template.write_text(f"#include {name}\n" + SMALL_TEMPLATE)
    (tmp_path / "shapes.yaml").write_text(SHAPES)
    (tmp_path / "my.h").write_text("")
    verb, *more = command.split()
    arguments = ("gemm", "--shapes", tmp_path / "shapes.yaml", *small_family, "--device", "model:h200", *more)
    outcome = kt(verb, *arguments)
    assert outcome.code == 2
    assert f"{template}:1: #include {name}: a source may include only" in outcome.err.replace("\n", " ")
    assert "pip install" not in outcome.err
    assert kt("show-cache", "--json").json["entries"] == []


def test_sources_of_the_built_in_size_are_checked_in_no_time(tmp_path: Path) -> None:
    """Every rendering pays for it, by the length of its text; more where a comment speaks of what it includes."""
    text = "#include <cuda_fp16.h>\n" + "".join(path.read_text() for path in (BUILTIN / "include").rglob("*.cuh"))
    for end, limit_ns in (("", 5), ("\n// what it includes\n", 100)):
        seconds = []
        for _ in range(5):
            began = time.process_time()
            check(text + end, tmp_path)
            seconds.append(time.process_time() - began)
        assert min(seconds) < limit_ns * 1e-9 * len(text)
