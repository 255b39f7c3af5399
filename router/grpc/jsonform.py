"""Messages as plain JSON values: proto field names, every field there, enum values lower case without prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor
    from google.protobuf.message import Message

_WELL_KNOWN = "google.protobuf."


def to_json(message: Message) -> Any:  # noqa: ANN401 - JSON values
    """A message as a dict.

    Absent messages and optional scalars are null, integers are numbers; of a oneof only the set member appears.
    """
    if message.DESCRIPTOR.full_name.startswith(_WELL_KNOWN):
        return json_format.MessageToDict(message)
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        optional = oneof is not None and len(oneof.fields) == 1 and field.has_presence
        if oneof is not None and not optional and message.WhichOneof(oneof.name) != field.name:
            continue
        values[field.name] = _field(message, field)
    return values


def _field(message: Message, field: Any) -> Any:  # noqa: ANN401
    value = getattr(message, field.name)
    if field.is_repeated:
        return [_value(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_json(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return enum_word(field.enum_type, value)
    return value


def enum_word(enum: EnumDescriptor, number: int) -> str:
    """An enum value's word: ROUTE_STANDARD of Route is `standard`; an unknown number is its digits."""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    word: str = value.name.removeprefix(prefix).lower()
    return word
