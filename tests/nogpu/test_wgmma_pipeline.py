"""The wgmma family's pipeline: in whatever order copies arrive and warpgroups run, none waits for ever or reads early.

A model of what wgmma_producer.cuh and wgmma_consumer.cuh in templates/include/kt/kernels/ do with their barriers: one
producer and the consumers of each block of a cluster as coroutines, mbarriers that count arrivals and bytes in phases,
copies and signals to other blocks that take any time. A random one of all that can go on goes on.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

Condition = Callable[[], bool]
TILES_AHEAD = 4


@dataclass
class Barrier:
    """An mbarrier: a phase ends when all arrivals and all announced bytes have come."""

    arrivals: int
    ended: int = 0
    arrived: int = 0
    bytes: int = 0

    def arrive(self, announced: int = 0) -> None:
        self.arrived += 1
        assert self.arrived <= self.arrivals
        self.count(-announced)

    def count(self, copied: int) -> None:
        self.bytes -= copied
        if self.arrived == self.arrivals and self.bytes == 0:
            self.ended += 1
            self.arrived = 0

    def over(self, parity: int) -> Condition:
        """Whether the phase of this parity has ended, as far as a parity can tell."""
        return lambda: self.ended % 2 != parity


@dataclass(frozen=True)
class Shape:
    """What a configuration decides of the pipeline, and the steps of the tiles of one cluster."""

    stages: int
    consumers: int
    ping_pong: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    feeders: int = 0  # threads that copy B in place of TMA
    tiles: tuple[int, ...] = (5, 5, 5)

    @property
    def shares_b(self) -> int:
        """Parts of B that arrive one by one: each block's of the cluster, or each thread's."""
        return self.feeders or self.cluster_m

    @property
    def sharers(self) -> int:
        return 1 if self.ping_pong else self.consumers

    @property
    def peers(self) -> int:
        return self.cluster_m + self.cluster_n - 1


@dataclass
class Block:
    """One thread block: its barriers, and what lies in its stages: (operand, share) -> (tile, step)."""

    shape: Shape
    full: list[Barrier] = field(default_factory=list)
    empty: list[Barrier] = field(default_factory=list)
    turn: list[Barrier] = field(default_factory=list)
    told: list[Barrier] = field(default_factory=list)
    known: list[Barrier] = field(default_factory=list)
    tiles: list[int] = field(default_factory=lambda: [0] * TILES_AHEAD)
    memory: list[dict[tuple[str, int], tuple[int, int]]] = field(default_factory=list)
    multiplied: list[tuple[int, int, int]] = field(default_factory=list)
    ended: int = 0  # of its warps

    def __post_init__(self) -> None:
        shape = self.shape
        self.full = [Barrier(1 + shape.feeders) for _ in range(shape.stages)]
        self.empty = [Barrier(shape.sharers * shape.peers) for _ in range(shape.stages)]
        self.turn = [Barrier(4), Barrier(4)]
        self.told = [Barrier(1) for _ in range(TILES_AHEAD)]
        self.known = [Barrier(4 * shape.consumers) for _ in range(TILES_AHEAD)]
        self.memory = [{} for _ in range(shape.stages)]


class Ring:
    """`RingPlace`."""

    def __init__(self, stages: int) -> None:
        self.stages, self.stage, self.phase = stages, 0, 0

    def advance(self) -> None:
        self.stage += 1
        if self.stage == self.stages:
            self.stage, self.phase = 0, self.phase ^ 1

    def skip(self, steps: int) -> None:
        place = self.stage + steps
        self.phase ^= place // self.stages & 1
        self.stage = place % self.stages


class Cluster:
    """All blocks, and what is on its way between them."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.random = random.Random(seed)
        self.blocks = [Block(shape) for _ in range(shape.cluster_m * shape.cluster_n)]
        self.under_way: list[Callable[[], None]] = []
        self.running: list[tuple[Iterator[Condition], Condition]] = []
        for rank in range(len(self.blocks)):
            self._start(self.ending(rank, self.producer(rank)))
            for consumer in range(shape.consumers):
                self._start(self.ending(rank, self.consumer(rank, consumer)))
            for feeder in range(shape.feeders):
                self._start(self.ending(rank, self.feeder(rank, feeder)))

    def run(self) -> None:
        """Until all have ended; fails if nobody can go on."""
        while self.running or self.under_way:
            ready = [index for index, (_, condition) in enumerate(self.running) if condition()]
            assert ready or self.under_way, "everybody waits"
            if self.under_way and (not ready or self.random.random() < 0.4):
                self.under_way.pop(self.random.randrange(len(self.under_way)))()
            else:
                process, _ = self.running.pop(self.random.choice(ready))
                self._start(process)

    def _start(self, process: Iterator[Condition]) -> None:
        """Go on to the next wait, if there is one."""
        for condition in process:
            self.running.append((process, condition))
            return

    def ending(self, rank: int, process: Iterator[Condition]) -> Iterator[Condition]:
        yield from process
        self.blocks[rank].ended += 1

    def alive(self, rank: int) -> Block:
        """A block that another one signals or writes to."""
        assert self.blocks[rank].ended <= self.shape.consumers + self.shape.feeders, "the block has ended"
        return self.blocks[rank]

    def producer(self, rank: int) -> Iterator[Condition]:
        shape, block, ring = self.shape, self.blocks[rank], Ring(self.shape.stages)
        rank_m, rank_n = rank % shape.cluster_m, rank // shape.cluster_m
        same_rows = [rank_m + i * shape.cluster_m for i in range(shape.cluster_n)]
        same_columns = [rank_n * shape.cluster_m + i for i in range(shape.cluster_m)]
        places = Ring(TILES_AHEAD)

        def tell(steps: int) -> Iterator[Condition]:
            yield block.known[places.stage].over(places.phase ^ 1)
            block.tiles[places.stage] = steps
            block.told[places.stage].arrive()
            places.advance()

        for tile, steps in enumerate((*shape.tiles, -1)):
            if steps < 1:
                yield from tell(steps)
            for step in range(steps):
                if step == 1:
                    yield from tell(steps)
                yield block.empty[ring.stage].over(ring.phase ^ 1)
                copies = [("a", rank_n, same_rows)] + [("b", rank_m, same_columns)] * (shape.feeders == 0)
                block.full[ring.stage].arrive(shape.cluster_n + (0 if shape.feeders else shape.cluster_m))
                for operand, share, targets in copies:
                    for target in targets:
                        self._copy(target, ring.stage, (operand, share), (tile, step))
                ring.advance()
            if steps == 1:
                yield from tell(steps)
        if len(self.blocks) > 1:
            for _ in range(shape.stages):
                yield block.empty[ring.stage].over(ring.phase ^ 1)
                ring.advance()
            assert all(barrier.arrived == 0 for barrier in block.empty), "another block still signals this one"

    def feeder(self, rank: int, feeder: int) -> Iterator[Condition]:
        """A thread that copies some of B; its arrival comes when its copies have."""
        block, ring = self.blocks[rank], Ring(self.shape.stages)
        for tile, steps in enumerate(self.shape.tiles):
            for step in range(steps):
                yield block.empty[ring.stage].over(ring.phase ^ 1)
                self.under_way.append(partial(self._feed, rank, ring.stage, feeder, (tile, step)))
                ring.advance()

    def _feed(self, rank: int, stage: int, feeder: int, what: tuple[int, int]) -> None:
        block = self.alive(rank)
        block.memory[stage]["b", feeder] = what
        block.full[stage].arrive()

    def _copy(self, target: int, stage: int, place: tuple[str, int], what: tuple[int, int]) -> None:
        def arrive() -> None:
            self.alive(target).memory[stage][place] = what
            self.blocks[target].full[stage].count(1)

        self.under_way.append(arrive)

    def consumer(self, rank: int, consumer: int) -> Iterator[Condition]:
        shape, block, ring = self.shape, self.blocks[rank], Ring(self.shape.stages)
        places = Ring(TILES_AHEAD)
        for number, steps in enumerate((*shape.tiles, -1)):
            place = places.stage
            yield block.told[place].over(places.phase)
            assert block.tiles[place] == steps
            places.advance()
            if steps < 0:
                return
            yield from self._know(block, place)
            if shape.ping_pong and number % 2 != consumer:
                ring.skip(steps)
                continue
            if shape.ping_pong:
                yield block.turn[consumer].over((number // 2 + 1 + consumer) % 2)
            before = 0
            for step in range(steps):
                yield block.full[ring.stage].over(ring.phase)
                self._check(block, ring.stage, (number, step))
                yield lambda: True  # the batch before has been multiplied
                if step > 0:
                    self._check(block, before, (number, step - 1))
                    self._give_back(rank, before)
                before = ring.stage
                block.multiplied.append((consumer, number, step))
                ring.advance()
            if shape.ping_pong:
                for _ in range(4):
                    block.turn[consumer ^ 1].arrive()
                    yield lambda: True
            if steps:
                self._check(block, before, (number, steps - 1))
                self._give_back(rank, before)
            yield lambda: True  # writes C

    def _know(self, block: Block, place: int) -> Iterator[Condition]:
        for _ in range(4):
            yield lambda: True
            block.known[place].arrive()

    def _check(self, block: Block, stage: int, what: tuple[int, int]) -> None:
        shape = self.shape
        places = [("a", share) for share in range(shape.cluster_n)] + [("b", share) for share in range(shape.shares_b)]
        assert block.memory[stage] == dict.fromkeys(places, what)

    def _give_back(self, rank: int, stage: int) -> None:
        shape = self.shape
        if shape.peers == 1:
            self.blocks[rank].empty[stage].arrive()
            return
        rank_m = rank % shape.cluster_m
        for warp in range(shape.peers):
            if warp < shape.cluster_n:
                target = rank_m + warp * shape.cluster_m
            else:
                target = rank - rank_m + (rank_m + warp - shape.cluster_n + 1) % shape.cluster_m
            self.under_way.append(partial(self._signal, target, stage))

    def _signal(self, target: int, stage: int) -> None:
        self.alive(target).empty[stage].arrive()


SHAPES = [
    Shape(2, 1),
    Shape(4, 2),
    Shape(3, 3, tiles=(1, 0, 7, 2)),
    Shape(2, 2, ping_pong=True, tiles=(3, 3, 3, 3, 3)),
    Shape(5, 2, ping_pong=True, tiles=(1, 7, 0, 2, 0, 0, 4)),
    Shape(4, 2, ping_pong=True, tiles=(12,)),
    Shape(8, 3, tiles=(1,) * 30),
    Shape(8, 2, ping_pong=True, tiles=(1,) * 20 + (0,) * 9),
    Shape(4, 1, tiles=(0,) * 12),
    Shape(3, 2, cluster_m=2),
    Shape(4, 2, cluster_n=2, tiles=(4, 1, 6)),
    Shape(4, 2, ping_pong=True, cluster_m=2, tiles=(3, 4, 5, 1)),
    Shape(2, 1, cluster_m=2, cluster_n=2),
    Shape(3, 1, cluster_m=1, cluster_n=4),
    Shape(4, 2, feeders=4, tiles=(4, 1, 0, 6)),
    Shape(2, 1, feeders=3),
    Shape(5, 2, ping_pong=True, feeders=4, tiles=(1, 7, 0, 2, 3)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_step_is_multiplied_once_and_nobody_waits_for_ever(shape: Shape) -> None:
    steps = [(tile, step) for tile, count in enumerate(shape.tiles) for step in range(count)]
    for seed in range(60):
        cluster = Cluster(shape, seed)
        cluster.run()
        for block in cluster.blocks:
            own = sorted((tile, step) for _, tile, step in block.multiplied)
            assert own == sorted(steps * shape.sharers)


def test_the_model_sees_a_stage_that_is_overwritten_while_it_is_read() -> None:
    """If one consumer's word were enough, the other would find the next step in the stage that it reads."""

    class Hasty(Cluster):
        def _give_back(self, rank: int, stage: int) -> None:
            barrier = self.blocks[rank].empty[stage]
            if barrier.arrived == 0:
                barrier.arrived = 1
                barrier.arrive()

    def run() -> None:
        for seed in range(60):
            Hasty(Shape(2, 2, tiles=(9, 9)), seed).run()

    with pytest.raises(AssertionError):
        run()
