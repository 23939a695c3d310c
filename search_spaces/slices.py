"""With how many slices of k a kernel is considered for a shape on which it was not measured."""

from kt.search_spaces.space import SearchSpace, Value

__all__ = ["runtimes"]

SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)


def runtimes(space: SearchSpace) -> list[tuple[tuple[str, Value], ...]]:
    """The run-time choices of the space's default, with those slices of k that it offers."""
    offered = space.runtime.get("split_k", ())
    default = space.default_config.runtime
    splits = [split for split in SPLITS if split in offered]
    return [tuple((name, split if name == "split_k" else value) for name, value in default) for split in splits] or [
        default
    ]
