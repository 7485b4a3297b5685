"""A pipeline described in a file: reading it, checking all of it at once, and building it in Spark.

Spark's layer is behind `build`, which is imported by those who need it: reading a file, its schema and its template do
without.
"""

from sparkonce.pipeline.loading import Loaded, PipelineError, load, load_text
from sparkonce.pipeline.model import Pipeline, Run, Sink, Source, Transform
from sparkonce.pipeline.problems import Problem

__all__ = [
    "Loaded",
    "Pipeline",
    "PipelineError",
    "Problem",
    "Run",
    "Sink",
    "Source",
    "Transform",
    "load",
    "load_text",
]
