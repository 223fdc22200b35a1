opened = []


def backends_are_initialized():
    return bool(opened)
