"""Vector clocks: what a thread knows to have happened.

Everything that can happen on its own has a *component*: a Pallas thread's own
accesses, each of its queues (wgmma, stores, tensor memory), each barrier. A
component only counts up, and knowing its time t means knowing that everything
up to t is done. A clock holds three rows of times: `known`; `fenced`, what was
made visible to the asynchronous units by `commit_smem`; and `tensor`, what is
known about tensor memory (a barrier hands that on only if it orders the tensor
core). An access is ordered after another when the clock knows its time.
"""

from __future__ import annotations

Row = list[int]


def _join(mine: Row, other: Row) -> Row:
    """The later of two times each; `mine` itself where `other` adds nothing."""
    if not mine:
        return other[:]
    if not other or mine == other:  # often there is nothing new, and comparing is quick
        return mine
    if len(mine) < len(other):
        mine = mine + [0] * (len(other) - len(mine))
    elif len(other) < len(mine):
        other = other + [0] * (len(mine) - len(other))
    return [a if a > b else b for a, b in zip(mine, other, strict=True)]


def at(row: Row, component: int) -> int:
    """The time of a component that the row knows (0: nothing)."""
    return row[component] if component < len(row) else 0


def put(row: Row, component: int, time: int) -> None:
    """Learns that `component` is done up to `time`."""
    if component >= len(row):
        row.extend([0] * (component + 1 - len(row)))
    if row[component] < time:
        row[component] = time


class Clock:
    """What one thread, or one phase of a barrier, knows.

    `elsewhere` holds what is known of other clusters, by cluster: their components
    are numbered on their own. Only semaphores carry it.
    """

    __slots__ = ("elsewhere", "fenced", "known", "tensor")

    def __init__(self) -> None:
        self.known: Row = []
        self.fenced: Row = []
        self.tensor: Row = []
        self.elsewhere: dict[int, Row] = {}

    def copy(self) -> Clock:
        out = Clock()
        out.known, out.fenced, out.tensor = self.known[:], self.fenced[:], self.tensor[:]
        out.elsewhere = dict(self.elsewhere)
        return out

    def join(self, other: Clock, *, tensor: bool) -> None:
        """Learns what `other` knows; about tensor memory only if `tensor`."""
        self.known = _join(self.known, other.known)
        self.fenced = _join(self.fenced, other.fenced)
        if tensor:
            self.tensor = _join(self.tensor, other.tensor)
        for cluster, row in other.elsewhere.items():
            self.learn_elsewhere(cluster, row)

    def learn_elsewhere(self, cluster: int, row: Row) -> None:
        self.elsewhere[cluster] = _join(self.elsewhere.get(cluster, []), row)

    def fence(self) -> None:
        """All that is known becomes visible to the asynchronous units."""
        self.fenced = _join(self.fenced, self.known)

    def learn(self, component: int, time: int) -> None:
        """`component` is done up to `time`, for ordinary and for tensor memory."""
        put(self.known, component, time)
        put(self.tensor, component, time)


class Components:
    """Numbers the components of one cluster; a barrier's number is used again when it ends."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[tuple[int, int]] = []

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def take(self) -> tuple[int, int]:
        """A component and the time it has reached."""
        return self._free.pop() if self._free else (self.new(), 0)

    def give_back(self, component: int, time: int) -> None:
        self._free.append((component, time))
