"""Device memory that flashbench fills, reads and checks by address.

torch allocates it, so that attention runs on it in place. Tensor operations do here what flashbench's
own devices do in kernels: poison, hash, count, flip signs.
"""

import bisect

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int32": torch.int32}
POISON_BYTE = 0xFF  # a NaN in every dtype
INTEGERS = {2: torch.int16, 4: torch.int32}  # by the size of a dtype in bytes

HASH_WORDS = 1 << 22  # hashed at once: 32 MiB
GAMMA = 0x9E3779B97F4A7C15
MULTIPLIER = 0xBF58476D1CE4E5B9


def signed(word):
    """The 64 bits as torch's signed integer."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def mixed(words):
    """Mixes each bit of a word into many others (a round of SplitMix64's finaliser)."""
    words = (words ^ (words >> 30)) * signed(MULTIPLIER)
    return words ^ (words >> 27)


def poison(tensor):
    tensor.view(INTEGERS[tensor.element_size()]).fill_(-1)


class Memory:
    def __init__(self, device):
        self.device = device
        self.blocks = {}  # address -> the bytes of an allocation
        self.addresses = []  # ascending
        self.staging, self.staging_file = None, None
        self.weights = None  # of the words that are hashed at once

    def allocate(self, size):
        block = torch.empty(size, dtype=torch.uint8, device=self.device)
        self.blocks[block.data_ptr()] = block
        bisect.insort(self.addresses, block.data_ptr())
        return block.data_ptr()

    def free(self, address):
        del self.blocks[address]
        self.addresses.remove(address)

    def at(self, address, size):
        """`size` bytes from an address on, which may be inside an allocation."""
        first = self.addresses[bisect.bisect_right(self.addresses, address) - 1]
        offset = address - first
        return self.blocks[first][offset:offset + size]

    def tensor(self, view):
        """A tensor with flashbench's strides, [batch, heads, length, head_dim] or cu_seqlens."""
        dtype = DTYPES[view["dtype"]]
        shape, strides = view["shape"], view["strides"]
        extent = sum((n - 1) * stride for n, stride in zip(shape, strides)) + 1
        flat = self.at(view["address"], extent * dtype.itemsize).view(dtype)
        return flat.as_strided(shape, strides)

    def staged(self, file, size):
        """The first bytes of the file through which data is exchanged."""
        if self.staging_file != file:
            self.staging = torch.from_file(file["path"], shared=True, size=file["bytes"],
                                           dtype=torch.uint8)
            self.staging_file = file
        return self.staging[:size]

    def write(self, address, size, file):
        self.at(address, size).copy_(self.staged(file, size))

    def read(self, address, size, file):
        self.staged(file, size).copy_(self.at(address, size))

    def poison(self, address, size):
        self.at(address, size).fill_(POISON_BYTE)

    def poisoned_elements(self, address, elements, element_bytes):
        values = self.at(address, elements * element_bytes).view(INTEGERS[element_bytes])
        return int((values == -1).sum())

    def flip_signs(self, address, elements, element_bytes):
        values = self.at(address, elements * element_bytes).view(INTEGERS[element_bytes])
        values ^= torch.iinfo(values.dtype).min

    def hash(self, address, size, seed):
        """A sum of mixed words weighted by position: the same on any device, in any order of summation."""
        data = self.at(address, size)
        if self.weights is None:
            self.weights = torch.arange(1, HASH_WORDS + 1, device=self.device) * signed(GAMMA)
        total = seed
        for first in range(0, size, 8 * HASH_WORDS):
            words = self.words(data[first:first + 8 * HASH_WORDS])
            placed = words + self.weights[:len(words)] + signed((seed + first) * GAMMA)
            total += int(mixed(placed).sum())
        return int(mixed(torch.tensor(signed(total)))) & ((1 << 64) - 1)

    def words(self, data):
        missing = -len(data) % 8
        if missing:
            data = torch.cat([data, data.new_zeros(missing)])
        return data.view(torch.int64)
