"""Makes a native module open without an interpreter, so that a program can hold its code in it."""

import struct

GLOBAL, WEAK = 1, 2
DYNAMIC_SYMBOLS = 11
SECTION, SYMBOL = "<IIQQQQIIQQ", "<IBBHQQ"


def weaken(module):
    """The bytes of a module whose undefined symbols of Python are weak: without an interpreter they are null, instead of an error.

    None where it is no library in ELF of 64 bits, lowest byte first. An interpreter's own symbols are found as before.
    """
    if module[:6] != b"\x7fELF\x02\x01":
        return None
    changed = bytearray(module)
    (first,), (size, count) = struct.unpack_from("<Q", module, 0x28), struct.unpack_from("<HH", module, 0x3A)
    sections = [struct.unpack_from(SECTION, module, first + size * at) for at in range(count)]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != DYNAMIC_SYMBOLS:
            continue
        texts = sections[link][4]
        for at in range(offset, offset + length, struct.calcsize(SYMBOL)):
            name, info, _, section, *_ = struct.unpack_from(SYMBOL, module, at)
            is_python = module.startswith((b"Py", b"_Py"), texts + name)
            if section == 0 and info >> 4 == GLOBAL and is_python:
                changed[at + 4] = WEAK << 4 | info & 0xF
    return bytes(changed)
