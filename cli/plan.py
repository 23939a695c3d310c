"""`kt plan gemm`: what a run would do."""

from kt.cli import options


def gemm(shapes: options.Shapes) -> None: ...
