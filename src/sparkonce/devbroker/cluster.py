"""A real Apache Kafka on this machine: one or three brokers, started, broken and ended on purpose.

Knows processes, folders and ports. It speaks to brokers only to see whether they answer.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker.command import broker_command, format_command, tool_command
from sparkonce.devbroker.jars import kafka_jars
from sparkonce.devbroker.launch import Launched, launch_guarded, uninterrupted
from sparkonce.devbroker.node import Launcher, Node, PortTakenError, explained, log_since
from sparkonce.devbroker.ports import free_ports, is_free
from sparkonce.devbroker.processes import ProcessIdentity, end_processes
from sparkonce.devbroker.properties import NodeLayout
from sparkonce.devbroker.settings import BrokerOptions, BrokerSettings
from sparkonce.devbroker.storage import (
    Description,
    FormatFailedError,
    claim_folder,
    format_nodes,
    require_unused,
    write_node_files,
)
from sparkonce.errors import RetriableError, UsageError
from sparkonce.java import find_java

PORT_TRIES = 5
TEMPORARY_PREFIX = "sparkonce-broker-"


class Cluster:
    """Brokers that are opened and closed together. `launcher` decides whether they outlive this process."""

    def __init__(
        self,
        settings: BrokerSettings,
        launcher: Launcher,
        on_launched: Callable[[Cluster], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self._launcher = launcher
        self._on_launched = on_launched
        self._folder: Path | None = None
        self._description: Description | None = None
        self._nodes: list[Node] = []

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to: every broker, also those that are down now."""
        return ",".join(node.layout.address for node in self._opened())

    @property
    def processes(self) -> list[ProcessIdentity]:
        """The brokers' processes, by node id."""
        return [node.process for node in self._nodes if node.process is not None]

    @property
    def folder(self) -> Path:
        """Where the brokers keep everything."""
        if self._folder is None:
            raise UsageError("The dev broker is not open.")
        return self._folder

    @property
    def cluster_id(self) -> str:
        """Kafka's name of this cluster, the same as long as its data lives."""
        if self._description is None:
            raise UsageError("The dev broker is not open.")
        return self._description.cluster_id

    @property
    def layouts(self) -> list[NodeLayout]:
        """Where each broker lives, by node id."""
        return [node.layout for node in self._opened()]

    def open(self) -> None:
        """Starts all brokers and returns when every one of them answers and knows the others."""
        if self._nodes:
            raise UsageError("The dev broker is open already.")
        deadline = Deadline.after(self.settings.start_seconds)
        try:
            self._folder = self.settings.data or Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
            self._open_on_free_ports(deadline)
        except BaseException as error:
            with uninterrupted():
                self.close()
            if isinstance(error, OSError):
                raise UsageError(f"The dev broker could not be started: {error}") from error
            raise

    def _open_on_free_ports(self, deadline: Deadline) -> None:
        for _ in range(PORT_TRIES - 1):
            try:
                return self._open_once(deadline)
            except PortTakenError:
                self._end_all(grace_seconds=0.0)
        return self._open_once(deadline)

    def close(self) -> None:
        """Ends every broker and removes the temporary folder. Data that will be thrown away needs no grace."""
        grace_seconds = self.settings.stop_seconds if self.settings.data else 0.0
        self._end_all(grace_seconds)
        if self._folder is not None and self.settings.data is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._nodes, self._folder, self._description = [], None, None

    def start(self, index: int) -> None:
        """Starts a broker that is down, on its old port, and waits until it answers."""
        node = self._node(index)
        with uninterrupted():
            node.launch()
        self._await([node], frozenset({index}), Deadline.after(self.settings.start_seconds))

    def stop(self, index: int) -> None:
        """Ends a broker in good order, and at once when it takes too long (a broker without a quorum cannot)."""
        self._running_node(index).end(self.settings.stop_seconds)

    def kill(self, index: int) -> None:
        """Ends a broker as a crash would."""
        self._running_node(index).end(0.0)

    def pause(self, index: int) -> None:
        """Stops a broker's clock: its connections stay open and nothing answers."""
        self._running_node(index).pause()

    def resume(self, index: int) -> None:
        """Lets a paused broker go on."""
        self._running_node(index).send(signal.SIGCONT)

    def tool_command(self, main_class: str, *arguments: str) -> list[str]:
        """The command that runs one of Kafka's own tools, for instance `org.apache.kafka.tools.TopicCommand`."""
        return tool_command(find_java(), kafka_jars(), main_class, *arguments)

    def _end_all(self, grace_seconds: float) -> None:
        left = end_processes(self.processes, grace_seconds)
        if left:
            raise RetriableError(f"These processes could not be ended: {[process.pid for process in left]}")
        for node in self._nodes:
            node.reap()

    def _open_once(self, deadline: Deadline) -> None:
        java, jars = find_java(), kafka_jars()
        layouts = plan_nodes(self.settings, self.folder)
        self._description = claim_folder(self.folder, self.settings)
        require_unused(layouts)
        write_node_files(self.settings, layouts)
        cluster_id, version = self._description.cluster_id, self._description.transaction_version
        formats = [format_command(java, jars, layout, cluster_id, version) for layout in layouts]
        try:
            format_nodes(formats, layouts, deadline)
        except FormatFailedError as error:
            raise explained(error.node, log_since(error.node.log, 0)) from error
        self._nodes = [
            Node(layout, broker_command(java, jars, layout, self.settings), self._launcher) for layout in layouts
        ]
        with uninterrupted():
            for node in self._nodes:
                node.launch()
            self._on_launched(self)
        self._await(self._nodes, frozenset(range(len(self._nodes))), deadline)

    def _await(self, nodes: Sequence[Node], brokers: frozenset[int], deadline: Deadline) -> None:
        silent = list(nodes)

        def all_answer() -> bool:
            for node in nodes:
                if not node.running:
                    raise node.failure()
            silent[:] = [node for node in silent if not node.sees(self.cluster_id, brokers, deadline)]
            return not silent

        if not wait_until(all_answer, deadline):
            raise RetriableError(f"It took too long. {silent[0].failure()}")

    def _opened(self) -> list[Node]:
        if not self._nodes:
            raise UsageError("The dev broker is not open.")
        return self._nodes

    def _node(self, index: int) -> Node:
        nodes = self._opened()
        if not 0 <= index < len(nodes):
            raise UsageError(f"There is no broker {index}; there are {len(nodes)}, counted from 0.")
        return nodes[index]

    def _running_node(self, index: int) -> Node:
        node = self._node(index)
        if not node.running:
            raise UsageError(f"Broker {index} is not running.")
        return node


class DevBroker(Cluster):
    """A cluster for a `with` block: it ends with the block, and at the latest with this process.

    with DevBroker(brokers=3, transaction_version=2) as broker:
        connect(broker.bootstrap_servers)
        broker.kill(1)
    """

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(BrokerSettings(**options), self._launch)

    def _launch(self, layout: NodeLayout, command: Sequence[str]) -> Launched:
        leftover = layout.folder if self.settings.data is None else None
        return launch_guarded(command, layout.log, leftover, Deadline.after(self.settings.start_seconds))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def plan_nodes(settings: BrokerSettings, folder: Path) -> list[NodeLayout]:
    """Chooses the ports. A chosen port that is taken is the caller's to resolve, and is said at once."""
    free = free_ports(2 * settings.brokers)
    clients = free[: settings.brokers]
    if settings.port is not None:
        clients = list(range(settings.port, settings.port + settings.brokers))
        for port in clients:
            if not is_free(port):
                raise UsageError(f"Port {port} is taken by another process. Stop it, or choose another port.")
    controllers = [port for port in free if port not in clients][: settings.brokers]
    return [
        NodeLayout(node_id, folder.absolute() / f"broker-{node_id}", client, controller)
        for node_id, (client, controller) in enumerate(zip(clients, controllers, strict=True))
    ]
