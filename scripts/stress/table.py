"""A checkpoint's index: a table of keys in blocks, each with its checksum; and Snappy, well-formed and not."""

import struct

from protobuf import number, varint

MAGIC = 0xDB4775248B80FB57


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def masked(data):
    value = crc32c(data)
    return ((value >> 15 | value << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def entries_of(block):
    """The keys and values of a block that is not compressed."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end, at, key, out = len(block) - 4 - 4 * restarts, 0, b"", []
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        key = key[:shared] + block[at : at + own]
        out.append((key, block[at + own : at + own + size]))
        at += own + size
    return out


def read(data):
    """The keys and values of a table that is not compressed."""
    at = len(data) - 48
    _, at = varint(data, at)
    _, at = varint(data, at)
    offset, at = varint(data, at)
    size, at = varint(data, at)
    out = []
    for _last, handle in entries_of(data[offset : offset + size]):
        start, used = varint(handle, 0)
        length, _ = varint(handle, used)
        out += entries_of(data[start : start + length])
    return out


def block_of(entries, restarts=(0,)):
    out = bytearray()
    for key, value in entries:
        out += number(0) + number(len(key)) + number(len(value)) + key + value
    for restart in restarts:
        out += struct.pack("<I", restart)
    return bytes(out + struct.pack("<I", len(restarts)))


def write(entries, pack=None, restarts=(0,), handle=None):
    """A table with one block of entries; `pack` compresses it, `handle` says where the index claims that it is."""
    file = bytearray()

    def append(block, kind):
        where = number(len(file)) + number(len(block))
        file.extend(block + bytes([kind]) + struct.pack("<I", masked(block + bytes([kind]))))
        return where

    block = block_of(entries, restarts)
    first = append(pack(block), 1) if pack else append(block, 0)
    meta = append(block_of([]), 0)
    last = entries[-1][0] if entries else b""
    index = append(block_of([(last + b"\xff", handle or first)]), 0)
    footer = (meta + index).ljust(40, b"\0")
    return bytes(file + footer + struct.pack("<Q", MAGIC))


def snappy(data):
    """Snappy with literals alone."""
    out = bytearray(number(len(data)))
    for at in range(0, len(data), 60):
        part = data[at : at + 60]
        out += bytes([(len(part) - 1) << 2]) + part
    return bytes(out)


def bombs(chance):
    """Functions that make a block into one of Snappy that claims or becomes far more than it is."""
    size = chance.choice([1 << 20, 1 << 24, 1 << 28])
    copies = b"\0x" + b"\xfe\x01\x00" * (min(size, 1 << 24) // 64)  # each copies 64 bytes from 1 byte back
    return {
        "claims 4 GiB": lambda block: number((1 << 32) - 1) + snappy(block)[len(number(len(block))) :],
        "claims 16 EiB": lambda block: number((1 << 64) - 1) + b"\0x",
        "expands": lambda _block: number(1 + 64 * (min(size, 1 << 24) // 64)) + copies,
        "expands beyond its claim": lambda _block: number(10) + copies,
        "claims and is empty": lambda _block: number(size),
        "copies from before its begin": lambda block: number(len(block)) + b"\0x\xfe\xff\xff",
        "a literal of 4 GiB": lambda block: number(len(block)) + b"\xfc\xff\xff\xff\xff",
        "a length without an end": lambda _block: b"\xff" * 20,
        "is whole": snappy,
    }
