"""The JSON Schema of pipeline files, for editors; made of the same description as the check."""

from __future__ import annotations

from typing import Any

from sparkonce.pipeline.keys import PIPELINE
from sparkonce.pipeline.secret import PLACES
from sparkonce.pipeline.shapes import Either, Flag, Key, ListOf, MapOf, Moment, Shape, Table, Text, Variants, Whole

_SECRET = {"$ref": "#/$defs/secret"}


def json_schema() -> dict[str, Any]:
    """The schema of a whole file."""
    places = [{"required": [place], "properties": {place: {"type": "string"}}} for place in PLACES]
    secret = {
        "description": "Where a text stands: in an environment variable or in a file.",
        "type": "object",
        "oneOf": places,
        "maxProperties": 1,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of sparkonce",
        **schema_of(PIPELINE),
        "$defs": {"secret": secret},
    }


def schema_of(shape: Shape) -> dict[str, Any]:
    """The schema of one value."""
    match shape:
        case Text(choices=choices, pattern=pattern):
            if choices:
                return {"enum": list(choices)}
            text = {"type": "string", **({"pattern": f"^(?:{pattern})$"} if pattern else {})}
            return {"anyOf": [text, _SECRET]}
        case Whole(lowest=lowest):
            return {"type": "integer", **({} if lowest is None else {"minimum": lowest})}
        case Flag():
            return {"type": "boolean"}
        case Moment():
            return {"type": "string", "format": "date-time"}
        case ListOf(of=of):
            return {"type": "array", "items": schema_of(of), "minItems": 1}
        case MapOf():
            return _map(shape)
        case Table():
            return _table(shape)
        case Variants(tables=tables):
            return {"anyOf": [schema_of(table) for table in tables.values()]}
        case Either(shapes=shapes):
            return {"anyOf": [schema_of(each) for each in shapes]}


def _map(shape: MapOf) -> dict[str, Any]:
    if shape.dotted:
        # Names with dots may be written as tables within tables.
        return {"type": "object", "additionalProperties": {"anyOf": [schema_of(shape.of), {"type": "object"}]}}
    names = {"propertyNames": {"pattern": f"^(?:{shape.names})$"}} if shape.names else {}
    return {"type": "object", "additionalProperties": schema_of(shape.of), **names}


def _table(shape: Table) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key.name: _key(key) for key in shape.keys},
        "required": [key.name for key in shape.keys if key.required],
        "additionalProperties": False,
        **({"oneOf": [{"required": [name]} for name in shape.one_of]} if shape.one_of else {}),
    }


def _key(key: Key) -> dict[str, Any]:
    default = f" (default: {key.default})" if key.default else ""
    return {"description": f"{key.meaning}{default}", **schema_of(key.shape)}
