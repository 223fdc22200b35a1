import os

calls = []
_cards = [int(size) for size in os.environ.get("FAKE_CARDS", str(4 << 30)).split(",")]
_known = {"max_split_size_mb", "garbage_collection_threshold"}
_state = {"current": 0, "settings": None}
_shares = {}
_used = [0 for _ in _cards]
_library = os.path.join(os.path.dirname(__file__), "lib", "libc10_cuda.so")
if os.path.exists(_library):
    _known.add("per_process_memory_fraction")


def _settings():
    """Read when they are first needed, as the library does."""
    if _state["settings"] is None:
        _accelerator_setAllocatorSettings(os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")))
    return _state["settings"]


def _accelerator_getAllocatorSettings():
    return _settings()


def _accelerator_setAllocatorSettings(text):
    for item in filter(None, text.split(",")):
        if item.split(":")[0] not in _known:
            raise ValueError("Unrecognized key '%s'" % item)
    _state["settings"] = text


def _cuda_init():
    calls.append("init")
    share = dict(item.split(":") for item in _settings().split(",") if item).get("per_process_memory_fraction", 1)
    for card in range(len(_cards)):
        _shares[card] = float(share)


def _cuda_getDevice():
    return _state["current"]


def _cuda_setDevice(card):
    calls.append(("to", card))
    _state["current"] = card


def _cuda_getDeviceCount():
    return len(_cards)


def _cuda_setMemoryFraction(share, card):
    calls.append((share, card))
    _state["current"] = card
    _shares[card] = share


def allocate(size, card):
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ and _used[card] + size > _shares[card] * _cards[card]:
        raise MemoryError("out of memory")
    _used[card] += size


def used(card):
    return _used[card]
