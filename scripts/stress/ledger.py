"""A ledger's file, read from outside: a decoder of its own, which shares nothing with the program's.

The format (version 3) is described in `crates/machine/src/record.rs` and `file.rs`: a page of header, then a page for each
slot. A slot counts while its byte is locked, in the ledger or in the file of its lease.
"""

import fcntl
import os
import struct
from pathlib import Path

PAGE = 4096
BYTES = 1 << 40  # the locked byte of slot 0
MARKS = 1 << 60  # ranges from here on name ledgers
CARDS = 64
LEASE_AT = PAGE - 16 * CARDS - 256 - 16  # before the numbers of use, the history and a word
F_OFD_GETLK = 36


class Broken(Exception):
    """The file is no ledger, or a slot in use cannot be read."""


class Member:
    def __init__(self, slot, pid, waiting, priority, arrival, cards, program):
        self.slot, self.pid, self.waiting, self.priority, self.arrival = slot, pid, waiting, priority, arrival
        self.cards, self.program = cards, program  # card: (reserved, asked)


def checksum(data):
    value, mask = 0x706C696D736F6C6C, (1 << 64) - 1
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        value = ((value ^ word) * 0x100000001B3) & mask
        value = (value << 29 | value >> 35) & mask
    return value


def lock_of(handle, first, count, against):
    lock = struct.pack("hhqqi4x", against, os.SEEK_SET, first, count, 0)
    return struct.unpack("hhqqi4x", fcntl.fcntl(handle, F_OFD_GETLK, lock))[0]


def is_locked(handle, first, count=1):
    """Whether an open file description other than this one has a lock there."""
    return lock_of(handle, first, count, fcntl.F_WRLCK) != fcntl.F_UNLCK


def is_proven(path, slot):
    """Whether the FIFO of a slot is locked for writing: the slot of a ledger that users share is in use."""
    try:
        handle = os.open(f"{path}.leases/{slot}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return lock_of(handle, BYTES + slot, 1, fcntl.F_RDLCK) == fcntl.F_WRLCK
    finally:
        os.close(handle)


def decode(slot, page):
    total, length = struct.unpack_from("<QQ", page)
    if not 16 <= length <= PAGE or checksum(page[8:length]) != total:
        raise Broken(f"slot {slot} is in use and its checksum is wrong")
    pid, _uid, _started, _guarantee, waits, _near, _some, priority, arrival = struct.unpack_from("<IIQBBBBiQ", page, 16)
    at = 16 + struct.calcsize("<IIQBBBBiQ")
    texts = []
    for _ in range(2):
        (size,) = struct.unpack_from("<H", page, at)
        texts.append(page[at + 2 : at + 2 + size].decode())
        at += 2 + size
    count = page[at]
    if count > CARDS:
        raise Broken(f"slot {slot} has {count} cards")
    cards = {}
    for number in range(count):
        card, reserved, asked = struct.unpack_from("<QQQ", page, at + 1 + 24 * number)
        if card in cards:
            raise Broken(f"slot {slot} names a card twice")
        cards[card] = (reserved, asked)
    return Member(slot, pid, bool(waits), priority, arrival, cards, texts[1])


def files(state):
    """The ledgers of a state folder; not those inside of leases."""
    return sorted(Path(state).glob("*.ledger"))


def lease_is_held(path, slot, number):
    if number == 0:
        return False
    try:
        handle = os.open(f"{path}.leases/{slot}", os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return os.fstat(handle).st_ino == number and is_locked(handle, BYTES + slot)
    finally:
        os.close(handle)


def look(path):
    """The members of a ledger at one instant; None where a process is in a change of it, or it is not made yet."""
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        data = b""
        size = os.fstat(handle).st_size
        while len(data) < size:
            data += os.pread(handle, size - len(data), len(data))
        if size < PAGE:
            return None
        if data[:12] != b"PLIMSOLL\x03\0\0\0":
            raise Broken(f"the header is {data[:12]!r}")
        facts = os.fstat(handle)
        device, inode, slots = struct.unpack_from("<QQQ", data, 16)
        if (device, inode) != (facts.st_dev, facts.st_ino) or size < PAGE * (1 + slots):
            raise Broken("the header is that of another file, or the file was cut")
        members = []
        count = size // PAGE - 1
        for slot in range(count):
            page = data[PAGE * (1 + slot) : PAGE * (2 + slot)]
            (number,) = struct.unpack_from("<Q", page, LEASE_AT)
            if is_locked(handle, BYTES + slot) or lease_is_held(path, slot, number):
                members.append(decode(slot, page))
        if is_locked(handle, BYTES + count, MARKS - BYTES - count):
            raise Broken("a slot behind the end of the file is in use")
        return members
    finally:
        os.close(handle)


def look_machine(folder):
    """The members of all users at one instant, by user's number: `(user, member)`. None where a process is in a change of the ledger. What
    one user's ledger says that cannot be read is left out: None stands for the member."""
    lock = os.open(Path(folder) / "lock", os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        members = []
        for path in sorted(Path(folder).glob("users/*/*.ledger")):
            # The hostile user's may be anything, and of any size.
            if path.is_symlink() or not path.is_file():
                continue
            user, data = int(path.parent.name), b""
            with open(path, "rb") as file:
                data = file.read(PAGE * 1001)
            for slot in range(len(data) // PAGE - 1):
                if is_proven(path, slot):
                    try:
                        members.append((user, decode(slot, data[PAGE * (1 + slot) : PAGE * (2 + slot)])))
                    except (Broken, struct.error, UnicodeDecodeError):
                        members.append((user, None))
        return members
    finally:
        os.close(lock)


def granted(members):
    """Bytes reserved on each card."""
    total = {}
    for member in members:
        for card, (reserved, _asked) in member.cards.items():
            total[card] = total.get(card, 0) + reserved
    return total


def is_free(path):
    """Whether no byte of the ledger and none of a file of its leases is locked."""
    every = [path, *Path(f"{path}.leases").glob("*")]
    for each in every:
        try:
            handle = os.open(each, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if is_locked(handle, 0, 0):
                return False
        finally:
            os.close(handle)
    return True
