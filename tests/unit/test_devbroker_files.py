"""What the dev broker writes and reads: properties, descriptions, states, logs, locks, manifests."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparkonce.deadline import Deadline
from sparkonce.devbroker import ivy, jars, state, storage
from sparkonce.devbroker.locks import file_lock
from sparkonce.devbroker.logs import follow, last_lines
from sparkonce.devbroker.processes import ProcessIdentity
from sparkonce.devbroker.progress import Progress
from sparkonce.devbroker.properties import NodeLayout, properties_text, server_properties
from sparkonce.devbroker.settings import BrokerSettings
from sparkonce.errors import RetriableError, UsageError

LAYOUTS = [NodeLayout(index, Path(f"/somewhere/broker-{index}"), 9000 + index, 9100 + index) for index in range(3)]


def test_three_brokers_keep_three_copies_and_write_with_two() -> None:
    properties = server_properties(BrokerSettings(brokers=3), LAYOUTS, LAYOUTS[1])
    assert properties["node.id"] == "1"
    assert properties["controller.quorum.voters"] == "0@127.0.0.1:9100,1@127.0.0.1:9101,2@127.0.0.1:9102"
    copies = {key: value for key, value in properties.items() if key.endswith("replication.factor")}
    assert set(copies.values()) == {"3"}
    assert len(copies) == 4
    assert {value for key, value in properties.items() if key.endswith(("min.isr", "min.insync.replicas"))} == {"2"}


def test_the_callers_properties_win() -> None:
    settings = BrokerSettings(properties={"min.insync.replicas": "1", "auto.create.topics.enable": "true"})
    properties = server_properties(settings, LAYOUTS[:1], LAYOUTS[0])
    assert properties["auto.create.topics.enable"] == "true"


def test_properties_are_escaped_for_java() -> None:
    text = properties_text({"a b": " x\\y=z", "ü": "€\n"})
    assert text == "a\\ b=\\ x\\\\y=z\n\\u00fc=\\u20ac\\u000a\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokers": 2}, "1 or 3 brokers"),
        ({"transaction_version": 3}, "transaction_version is 1 or 2"),
        ({"port": 65_535, "brokers": 3}, "does not leave room"),
        ({"data": Path("/a,b")}, "comma"),
        ({"heap_megabytes": 8}, "64 MB"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BrokerSettings(**options)  # type: ignore[arg-type]


def test_a_folder_is_claimed_once_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = storage.claim_folder(folder, BrokerSettings())
    assert storage.claim_folder(folder, BrokerSettings()) == first
    with pytest.raises(UsageError, match="brokers=1, but brokers=3"):
        storage.claim_folder(folder, BrokerSettings(brokers=3))
    with pytest.raises(UsageError, match="transaction_version=2, but transaction_version=1"):
        storage.claim_folder(folder, BrokerSettings(transaction_version=1))


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty"):
        storage.claim_folder(tmp_path, BrokerSettings())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "odd": 2}'])
def test_a_damaged_description_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / storage.DESCRIPTION_FILE).write_text(content)
    with pytest.raises(UsageError, match="is damaged"):
        storage.claim_folder(tmp_path, BrokerSettings())


def test_a_description_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / storage.DESCRIPTION_FILE).write_text('{"version": 99}')
    with pytest.raises(UsageError, match="version 99"):
        storage.claim_folder(tmp_path, BrokerSettings())


def some_state(name: str = "default") -> state.BackgroundState:
    record = state.BrokerRecord(0, 9000, "/somewhere/broker.log", ProcessIdentity(4321, "boot:77"))
    settings = state.settings_record(BrokerSettings(port=9000, properties={"a": "b"}))
    return state.BackgroundState(name, "running", "id", "127.0.0.1:9000", "/somewhere", 12.5, settings, (record,))


def test_a_state_survives_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKONCE_STATE", str(tmp_path / "state"))
    assert state.read_state("default") is None
    state.write_state(some_state())
    assert state.read_state("default") == some_state()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["broker-default.json"]
    state.remove_state("default")
    assert state.read_state("default") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "brokers": [{}]}'])
def test_a_damaged_state_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str) -> None:
    monkeypatch.setenv("SPARKONCE_STATE", str(tmp_path))
    state.state_path("default").write_text(content)
    with pytest.raises(UsageError, match="is damaged"):
        state.read_state("default")


def test_a_state_of_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKONCE_STATE", str(tmp_path))
    state.state_path("default").write_text(json.dumps({"version": 99}))
    with pytest.raises(UsageError, match="version 99"):
        state.read_state("default")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a broker's name"):
        state.state_path(name)


def test_the_state_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARKONCE_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state.state_folder() == tmp_path / "sparkonce"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state.state_folder() == tmp_path / "home" / ".local" / "state" / "sparkonce"


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 20_000])
def test_last_lines_are_the_last_lines(tmp_path: Path, count: int) -> None:
    lines = [f"line {index} {'x' * (index % 50)}\n" for index in range(10_000)]
    log = tmp_path / "log"
    log.write_text("".join(lines))
    assert last_lines(log, count) == ("".join(lines[-count:] if count else []), log.stat().st_size)


def test_a_missing_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        last_lines(tmp_path / "none", 5)


def test_following_ends_with_the_writer_and_misses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    questions = iter([True, True, False, False])

    def writing() -> bool:
        goes_on = next(questions)
        if not goes_on and "last" not in log.read_text():
            log.write_text(log.read_text() + "last words\n")
        return goes_on

    assert "".join(follow(log, 4, writing)) == "last words\n"


def test_a_lock_is_held_against_other_processes_and_freed_by_death(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from sparkonce.deadline import Deadline\nfrom sparkonce.devbroker.locks import file_lock\n"
        "with file_lock(Path(sys.argv[1]), Deadline.after(10), lambda: None):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    path, waited = tmp_path / "lock", []
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(RetriableError, match="does not finish"),
            file_lock(path, Deadline.after(0.2), lambda: waited.append(1)),
        ):
            pytest.fail("the lock was taken twice")
        holder.kill()
    with file_lock(path, Deadline.after(10), lambda: None):
        pass
    assert waited == [1]


def test_a_lock_in_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match="cannot be written"),
        file_lock(tmp_path / "file" / "lock", Deadline.after(1), lambda: None),
    ):
        pytest.fail("there is no such folder")


def write_jar(path: Path, content: bytes = b"class" * 1000) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.class", content)


def folder_of_jars(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in jars.EXPECTED:
        write_jar(folder / name)
    jars.write_manifest(folder, [jars.described(path) for path in sorted(folder.glob("*.jar"))])
    return folder


def test_good_jars_have_no_problems(tmp_path: Path) -> None:
    folder = folder_of_jars(tmp_path / "jars")
    assert jars.broken_jars(folder) == []
    assert jars.problems(folder) == []
    assert jars.thorough_problems(folder) == []


def test_every_kind_of_damage_is_seen(tmp_path: Path) -> None:
    folder = folder_of_jars(tmp_path / "jars")
    first, second, third = (folder / name for name in jars.EXPECTED[:3])
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    content = bytearray(third.read_bytes())
    content[60] ^= 0xFF
    third.write_bytes(content)
    assert len(jars.broken_jars(folder)) == 3
    cheap = jars.problems(folder)
    assert any(f"{first.name} is missing" in problem for problem in cheap)
    assert any(second.name in problem for problem in cheap)
    # The same size with another content is what only the checksum shows.
    write_jar(first)
    jars.write_manifest(folder, [jars.described(path) for path in sorted(folder.glob("*.jar"))])
    content[60] ^= 0x0F
    third.write_bytes(content)
    assert jars.problems(folder) == []
    assert jars.thorough_problems(folder) == [f"{third.name} has another content"]


@pytest.mark.parametrize("content", ["", "{}", '{"version": 2, "jars": []}', "[]"])
def test_an_unreadable_manifest_is_a_problem(tmp_path: Path, content: str) -> None:
    folder = folder_of_jars(tmp_path / "jars")
    (folder / jars.MANIFEST).write_text(content)
    assert "cannot be read" in jars.problems(folder)[0]


def test_ivys_words_become_numbers() -> None:
    output = "\tfound a#b;1 in public\n\tfound c#d;1 in public\n....... (332kB)\n.. (0kB)\n\t[SUCCESSFUL ] a#b (1ms)\n"
    assert ivy.fetch_state(output) == ivy.FetchState(found=2, fetched=1, fetched_bytes=332_000)
    assert str(ivy.fetch_state(output)) == "1 of 2 jars, 0 MB"
    assert str(ivy.fetch_state("")) == "0 modules found"


def test_ivys_errors_are_shown_once_each() -> None:
    output = "fine\n\t\t:: a#b;1: not found\n::::::\nServer access error (refused)\nServer access error (refused)\n"
    assert ivy.error_lines(output) == [":: a#b;1: not found", "Server access error (refused)"]
    assert ivy.error_lines("only\nthis\n") == ["only", "this"]


def test_a_proxy_is_passed_on_to_java() -> None:
    assert ivy.proxy_options(None) == []
    assert ivy.proxy_options("http://proxy.example:3128") == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
    ]


def test_ivy_is_found_without_importing_pyspark() -> None:
    script = (
        "import sys; from sparkonce.devbroker import ivy; print(ivy.find_ivy()); sys.exit('pyspark' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert Path(answer.stdout.strip()).name.startswith("ivy-")


def test_plain_progress_is_sparse_and_terminal_progress_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    progress = Progress("work", plain)
    for step in range(100):
        progress.show(f"step {step}")
    progress.note("done")
    assert plain.getvalue() == "work: step 0, 0 s\ndone\n"

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sparkonce.devbroker.progress.TERMINAL_EVERY_SECONDS", 0.0)
    progress = Progress("work", terminal)
    progress.show("step 1")
    progress.show("step 2")
    assert terminal.getvalue().count("\n") == 0
    assert terminal.getvalue().count("\r") == 2
    progress.note("done")
    assert terminal.getvalue().endswith("\rdone\n")


def test_the_processes_own_state_file_is_private_to_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKONCE_STATE", str(tmp_path))
    state.write_state(some_state("one"))
    state.write_state(some_state("two"))
    state.remove_state("one")
    assert state.read_state("two") == some_state("two")
    assert [path.name for path in tmp_path.iterdir()] == ["broker-two.json"]
