from . import _C

_queued_calls = []
_initialized = False
_is_initializing = False


def is_initialized():
    return _initialized


def is_available():
    return True


def device_count():
    return _C._cuda_getDeviceCount()


def current_device():
    _lazy_init()
    return _C._cuda_getDevice()


def _lazy_call(call):
    if _initialized or _is_initializing:
        call()
    else:
        _queued_calls.append((call, None))


def _lazy_init():
    global _initialized, _is_initializing
    if _initialized or _is_initializing:
        return
    _C._cuda_init()
    _is_initializing = True
    try:
        for call, _ in _queued_calls:
            call()
    finally:
        _is_initializing = False
    _initialized = True


def set_device(card):
    _C._cuda_setDevice(card)


def set_per_process_memory_fraction(share, device=None):
    _lazy_init()
    if not 0 <= share <= 1:
        raise ValueError("Invalid fraction value: %s" % share)
    _C._cuda_setMemoryFraction(share, _C._cuda_getDevice() if device is None else device)


def most(card=0):
    """All that is to be had, in pieces of 1 MiB."""
    _lazy_init()
    try:
        while True:
            _C.allocate(1 << 20, card)
    except MemoryError:
        return _C.used(card)


def memory_allocated(device=None):
    return _C.used(_number(device)) if _initialized else 0


def memory_reserved(device=None):
    return memory_allocated(device)


def max_memory_allocated(device=None):
    return memory_allocated(device)


def max_memory_reserved(device=None):
    return memory_allocated(device)


def empty_cache():
    _C.calls.append("empty_cache")


def _number(device):
    if device is None:
        return _C._cuda_getDevice()
    return device if isinstance(device, int) else int(str(device).rpartition(":")[2])


def reset_peak_memory_stats(device=None):
    _C.calls.append("reset")
