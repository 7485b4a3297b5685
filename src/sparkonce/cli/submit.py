"""`sparkonce submit`: a pipeline file on a cluster, with all that its workers need."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import click

from sparkonce import cli
from sparkonce.errors import UsageError
from sparkonce.java import cache_folder, spark_java_home
from sparkonce.pipeline import Pipeline, load
from sparkonce.pipeline.packing import packed
from sparkonce.pipeline.secret import revealed

UNPACKED = "sparkonce_environment"
"""The folder beside each executor into which Spark unpacks the archive."""


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--master", help="The cluster's address, instead of [run] master: spark://host:7077")
@click.option("--once", is_flag=True, help="Read all that is there now, then stop.")
@click.option("--python", default="python3", show_default=True, help="The workers' Python; as new as this one.")
@click.option("--json", "as_json", is_flag=True, help="As with `run`: one JSON object per micro-batch.")
@click.option("--print", "only_print", is_flag=True, help="Only show the command.")
def submit(
    file: Path,
    master: str | None,
    once: bool,  # noqa: FBT001
    python: str,
    as_json: bool,  # noqa: FBT001
    only_print: bool,  # noqa: FBT001
) -> None:
    """Run a pipeline file on a cluster.

    Packs sparkonce and what it needs, so that workers need nothing but Spark and Python, and calls spark-submit. The
    driver runs here, in the foreground, as with `run`. Modules beside the file are sent along.

    \b
    Example:
      sparkonce submit orders.toml --master spark://cluster:7077
    """
    pipeline = load(file)
    address = master or revealed(pipeline.run.master)
    if address.startswith("local"):
        raise UsageError(f"{address} is this machine: use `sparkonce run`, or give a cluster's --master")
    click.echo("packing what the workers need", err=True)
    command = submit_command(file.absolute(), pipeline, address, packed(cache_folder() / "packed"), python)
    command += ["--once"] * once + ["--json"] * as_json
    if only_print:
        click.echo(shlex.join(command))
        return
    os.environ.setdefault("JAVA_HOME", str(spark_java_home()))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The source plans in a process of the workers' Python, here: it finds the packages where they are installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([_folder_of(cli), _folder_of(click)]))
    os.execv(command[0], command)  # noqa: S606  A list of arguments, no shell.


def _folder_of(module: ModuleType) -> str:
    """What must be on Python's path for this top-level package, or the one that it is part of."""
    top = sys.modules[module.__name__.partition(".")[0]]
    return str(Path(str(top.__file__)).parents[1])


def submit_command(file: Path, pipeline: Pipeline, master: str, archive: Path, python: str) -> list[str]:
    """The call of spark-submit."""
    modules = [str(path) for path in sorted(pipeline.folder.absolute().glob("*.py"))]
    return [
        str(spark_submit()),
        *("--master", master),
        *("--name", str(revealed(pipeline.name))),
        *("--archives", f"{archive}#{UNPACKED}"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={UNPACKED}"),
        *("--conf", f"spark.pyspark.python={python}"),
        *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
        *(("--py-files", ",".join(modules)) if modules else ()),
        str(Path(cli.__file__).with_name("__main__.py")),
        *("run", str(file), "--master", master),
    ]


def spark_submit() -> Path:
    """Spark's own program, of the pyspark that is installed here."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError("pyspark is not installed here")
    return Path(spec.origin).parent / "bin" / "spark-submit"
