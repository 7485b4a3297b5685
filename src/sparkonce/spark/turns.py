"""Who sends to which topic partition when, if all tasks of a micro-batch run at the same time. No sockets, no threads.

Every task encodes its rows and keeps them. Once all have, each is told the sequence number of its first record in each
partition: as many records come before it as the tasks before it have. It sends to a partition when all tasks before it
have finished there: one sender at a time, in the order of the Spark partitions.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from sparkonce.model import TopicPartition
from sparkonce.send import next_sequence

Records = dict[TopicPartition, int]
"""How many a task has for each partition."""


@dataclass(slots=True)
class Turns:
    """The turns of one run. Spark starts its tasks together, each once: a failure of one is the end of all."""

    tasks: int
    """How many there are."""
    _entered: set[int] = field(default_factory=set)
    _records: dict[int, Records] = field(default_factory=dict)
    _queues: dict[TopicPartition, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    """The tasks that have not finished there, in their order."""
    _ready: dict[int, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    """Where it is a task's turn, and it was not told so yet."""

    @property
    def is_complete(self) -> bool:
        """Whether all have encoded, so that sending has begun."""
        return len(self._records) == self.tasks

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that there is something for."""
        return sorted({partition for records in self._records.values() for partition in records})

    def enter(self, task: int) -> bool:
        """A task begins to encode. False if it did so before: others may count on what that attempt has."""
        is_new = task not in self._entered
        self._entered.add(task)
        return is_new

    def join(self, task: int, records: Records) -> None:
        """A task has encoded. The last one begins the sending."""
        self._records[task] = records
        if self.is_complete:
            for joined in sorted(self._records):
                for partition in self._records[joined]:
                    self._queues[partition].append(joined)
            for partition in self.partitions:
                self._ready[self._queues[partition][0]].append(partition)

    def leave(self, task: int) -> None:
        """A task ended before all had encoded: now they never will."""
        self._records.pop(task, None)

    def first_sequence(self, task: int, partition: TopicPartition) -> int:
        """Of the task's first record there."""
        before = sum(self._records[earlier].get(partition, 0) for earlier in range(task))
        return next_sequence(0, before)

    def is_turn(self, task: int) -> bool:
        """Whether there is a partition where the task may begin."""
        return bool(self._ready[task])

    def taken(self, task: int) -> list[TopicPartition]:
        """All partitions where the task may begin now; each is given once."""
        return self._ready.pop(task, [])

    def finish(self, task: int, partition: TopicPartition) -> None:
        """Everything of the task is acknowledged there: it is the next one's turn."""
        queue = self._queues[partition]
        if not queue or queue[0] != task:
            raise ValueError(f"it is not the turn of task {task} in {partition}")
        queue.popleft()
        if queue:
            self._ready[queue[0]].append(partition)
