def get_memory_info(device):
    if not device.startswith("GPU:"):
        raise ValueError("No matching devices found for '%s'" % device)
    return {"current": 7 << 20, "peak": 11 << 20}


def reset_memory_stats(device):
    pass
