"""Messages of protocol buffers as trees, read without their schema, changed by chance, and written."""

import struct
import sys

# Wire types.
VARINT, FIXED64, BYTES, GROUP, END, FIXED32 = range(6)

EXTREMES = [0, 1, 2, 127, 128, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e-300, 1e308, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    b"", b"x" * 300, b"x" * 70000, b"\xff\xfe", b"\0", b"^", b":0", b"a:9999999999", b"^^a", b"/cpu:99999999999", b"/device:GPU:-1", b"loc:@",
    b"../../../etc/passwd", b"/" * 500, "ß\U0001f600".encode(), b"%d%s%n", b"{" * 2000, b"\n" * 100,
]  # fmt: skip


# Trees that were made deep, in deep ones, are walked by functions that call themselves.
sys.setrecursionlimit(100_000)


class Field:
    """A field: its value is a number, bytes, or a list of fields (a message). `claims` is a length that is written in place of its own."""

    __slots__ = ("number", "kind", "value", "claims")

    def __init__(self, number, kind, value):
        self.number, self.kind, self.value, self.claims = number, kind, value, None

    def copy(self):
        twin = Field(self.number, self.kind, [field.copy() for field in self.value] if isinstance(self.value, list) else self.value)
        twin.claims = self.claims
        return twin


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError


def parse(data, depth=0):
    """The fields of a message; ValueError or IndexError where it is none."""
    fields, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 20:
            raise ValueError
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise ValueError
        elif kind == BYTES:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise ValueError
            value = guess(value, depth)
        else:
            raise ValueError
        fields.append(Field(number, kind, value))
    return fields


def guess(data, depth):
    """The message in a field, where its bytes look like one and not like a text."""
    is_text = all(32 <= byte < 127 for byte in data)
    if not data or depth > 40 or is_text and not (data[0] == 10 and len(data) > 2):
        return data
    try:
        return parse(data, depth + 1)
    except (ValueError, IndexError):
        return data


def number(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write(fields):
    out = bytearray()
    for field in fields:
        out += number(field.number << 3 | field.kind)
        if field.kind == VARINT:
            out += number(field.value)
        elif field.kind == BYTES:
            data = write(field.value) if isinstance(field.value, list) else field.value
            out += number(len(data) if field.claims is None else field.claims) + data
        elif field.kind in (FIXED32, FIXED64):
            out += field.value
    return bytes(out)


def lists(fields):
    """All messages of a tree: lists of fields."""
    out, at = [fields], 0
    while at < len(out):
        out += [field.value for field in out[at] if isinstance(field.value, list)]
        at += 1
    return out


def texts(fields):
    return [field for message in lists(fields) for field in message if isinstance(field.value, bytes) and field.kind == BYTES]


def mutate(fields, chance):
    """Changes a tree in one way; says which."""
    messages = [message for message in lists(fields) if message]
    if not messages:
        return "nothing"
    message = chance.choice(messages)
    at = chance.randrange(len(message))
    field = message[at]
    way = chance.choice([delete, double, swap, move, retype, extreme, extreme, lie, rename, rename, text, many, deep, exchange])
    way(fields, messages, message, at, field, chance)
    return way.__name__


def delete(_fields, _messages, message, at, _field, _chance):
    del message[at]


def double(_fields, _messages, message, at, field, _chance):
    message.insert(at, field.copy())


def swap(_fields, _messages, message, at, _field, chance):
    other = chance.randrange(len(message))
    message[at], message[other] = message[other], message[at]


def move(_fields, messages, _message, _at, field, chance):
    """A copy of a subtree goes into another message."""
    target = chance.choice(messages)
    target.insert(chance.randint(0, len(target)), field.copy())


def exchange(_fields, messages, _message, _at, field, chance):
    """The value of another field with the same number."""
    others = [other for message in messages for other in message if other.number == field.number and other.kind == field.kind]
    other = chance.choice(others).copy()
    field.value = other.value


def retype(_fields, _messages, _message, _at, field, chance):
    if chance.random() < 0.5:
        field.number = chance.choice([field.number + 1, max(1, field.number - 1), 1, 2, 5, 15, 16, 100, (1 << 29) - 1])
        return
    field.kind = chance.choice([VARINT, FIXED64, BYTES, FIXED32])
    values = {VARINT: chance.choice(EXTREMES), FIXED64: b"\xff" * 8, FIXED32: b"\0\0\x80\x7f", BYTES: chance.choice(TEXTS)}
    field.value = values[field.kind]


def extreme(_fields, messages, _message, _at, field, chance):
    """A number of the tree becomes one at the end of its range."""
    numbers = [other for message in messages for other in message if other.kind != BYTES]
    field = chance.choice(numbers) if numbers else field
    if field.kind == VARINT:
        field.value = chance.choice([*EXTREMES, field.value + 1, field.value - 1, field.value * 1000, -field.value])
    elif field.kind == FIXED32:
        field.value = struct.pack("<I", chance.choice([0, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, chance.getrandbits(32)]))
    elif field.kind == FIXED64:
        field.value = struct.pack("<d", chance.choice(NUMBERS))
    else:
        field.value = b""


def lie(_fields, messages, _message, _at, field, chance):
    """A length that is not that of the bytes."""
    strings = [other for message in messages for other in message if other.kind == BYTES]
    field = chance.choice(strings) if strings else field
    field.claims = chance.choice([*EXTREMES, 3, 200])


def rename(fields, _messages, _message, _at, _field, chance):
    """A text becomes another text of the tree."""
    all_texts = texts(fields)
    if all_texts:
        chance.choice(all_texts).value = chance.choice(all_texts).value


def text(fields, _messages, _message, _at, field, chance):
    all_texts = texts(fields)
    target = chance.choice(all_texts) if all_texts else field
    if target.kind == BYTES:
        target.value = chance.choice(TEXTS)


def many(_fields, _messages, message, at, field, chance):
    message[at:at] = [field.copy() for _ in range(chance.choice([2, 10, 100]))]


def deep(_fields, _messages, message, at, field, chance):
    """A message inside of itself, again and again."""
    for _ in range(chance.choice([1, 3, 50, 300])):
        field = Field(field.number, BYTES, [field])
    message[at] = field
