import collections
import os

PhysicalDevice = collections.namedtuple("PhysicalDevice", "name device_type")


class LogicalDeviceConfiguration(collections.namedtuple("LogicalDeviceConfiguration", "memory_limit experimental_priority")):
    def __new__(cls, memory_limit=None, experimental_priority=None):
        return super().__new__(cls, memory_limit, experimental_priority)


class Context:
    def __init__(self):
        self._initialized = False
        self._virtual_device_map = {}
        self._memory_growth_map = {}

    def list_physical_devices(self, device_type=None):
        cards = os.environ.get("FAKE_CARDS", str(4 << 30)).split(",")
        return [PhysicalDevice("/physical_device:GPU:%d" % number, "GPU") for number in range(len(cards))]

    def get_visible_devices(self, device_type=None):
        return self.list_physical_devices(device_type)[int(os.environ.get("FAKE_FIRST", "0")) :]

    def get_logical_device_configuration(self, dev):
        return self._virtual_device_map.get(dev)

    def set_logical_device_configuration(self, dev, virtual_devices):
        if self._virtual_device_map.get(dev) == virtual_devices:
            return
        if self._initialized:
            raise RuntimeError("Virtual devices cannot be modified after being initialized")
        self._virtual_device_map[dev] = virtual_devices

    def set_memory_growth(self, dev, enable):
        if dev in self._virtual_device_map:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        if self._memory_growth_map.get(dev) == enable:
            return
        if self._initialized:
            raise RuntimeError("Physical devices cannot be modified after being initialized")
        self._memory_growth_map[dev] = enable

    def list_logical_devices(self, device_type=None):
        return self.list_physical_devices(device_type)

    def ensure_initialized(self):
        self._initialized = True


_context = Context()


def context():
    return _context


def context_safe():
    return _context
