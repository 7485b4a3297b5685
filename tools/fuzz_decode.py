"""Mutated record batches through the decoder: no crash, no hang, no unbounded memory.

Each case is made from (seed, number) alone, so that a failing one can be run again with `--seed S --only N`. The bytes
lie right before a page that must not be read: a read past the end kills the process at once instead of passing
unnoticed. The cases run in a child process; the parent says which case killed it.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import multiprocessing
import random
import resource
import signal
import struct
import sys
import time
from multiprocessing.sharedctypes import Synchronized

import pyarrow as pa
from crc32c import crc32c

from sparkonce.errors import SparkonceError
from sparkonce.records import Codec, DecodeLimits, decode, encode, read_headers, record_columns, seal
from sparkonce.records.layout import ATTRIBUTES_POSITION, CRC, CRC_POSITION, HEADER_BYTES

LIMITS = DecodeLimits(batch_bytes_max=4_000_000, arrow_batch_bytes=50_000)
MEMORY_GROWTH_MAX_BYTES = 200_000_000
CASE_SECONDS_MAX = 10
INPUT_BYTES_MAX = 64 * mmap.PAGESIZE
EDGES = (0, 1, 2, 5, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def main() -> None:
    """Parses the command line, runs the cases in a child and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run one case by its number")
    options = parser.parse_args()
    cases = range(options.count) if options.only is None else range(options.only, options.only + 1)
    current: Synchronized[int] = multiprocessing.Value("q", -1)
    child = multiprocessing.Process(target=run_cases, args=(options.seed, cases, current))
    begun = time.monotonic()
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit(f"FAILED with code {child.exitcode}: --seed {options.seed} --only {current.value}")
    print(f"{len(cases)} cases in {time.monotonic() - begun:.0f} s, seed {options.seed}: no crash, no hang")


def run_cases(seed: int, cases: range, current: Synchronized[int]) -> None:
    """All the cases; only the package's own errors may come out of the decoder."""
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _hung)
    samples = sample_batches()
    guarded = GuardedBuffer(INPUT_BYTES_MAX)
    for sample in samples:
        decode_everything(guarded.holding(bytes(sample)))
    start_bytes, refused = peak_bytes(), 0
    for case in cases:
        current.value = case
        signal.alarm(CASE_SECONDS_MAX)
        try:
            decode_everything(guarded.holding(mutated(samples, random.Random(f"{seed}/{case}"))))
        except SparkonceError:
            refused += 1
    signal.alarm(0)
    growth = peak_bytes() - start_bytes
    print(f"{refused} of {len(cases)} refused, {len(cases) - refused} decoded; memory grew by {growth / 1e6:.0f} MB")
    if growth > MEMORY_GROWTH_MAX_BYTES:
        sys.exit(f"memory grew by more than {MEMORY_GROWTH_MAX_BYTES / 1e6:.0f} MB")
    if len(cases) > 1_000 and not 0 < refused < len(cases):
        sys.exit("the mutations reach nothing: all cases ended alike")


def decode_everything(data: memoryview) -> None:
    """Reads headers and records, and lets Arrow check the columns that came out."""
    for batch in decode(data, read_headers(data), limits=LIMITS):
        batch.validate(full=True)


def sample_batches() -> list[bytearray]:
    """Good batches of all codecs: small and large, with and without keys, values, headers."""
    source = random.Random(3)
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    samples = []
    for codec in Codec:
        for rows in (1, 3, 40, 400):
            values = [source.choice([None, b"", b"value" * source.randrange(20)]) for _ in range(rows)]
            keys = [source.choice([None, b"", source.randbytes(5)]) for _ in range(rows)]
            headers = [
                source.choice([None, [{"key": "h", "value": b"x"}, {"key": "", "value": None}]]) for _ in range(rows)
            ]
            columns = record_columns(
                pa.array(values, pa.binary()),
                key=pa.array(keys, pa.binary()),
                headers=pa.array(headers, headers_type),
                timestamp=pa.array([source.randrange(2**41) for _ in range(rows)]),
                default_timestamp_ms=0,
            )
            samples += [seal(batch.data) for batch in encode(columns, codec=codec)]
    return samples


def mutated(samples: list[bytearray], source: random.Random) -> bytes:
    """One to three good batches with a few wounds; in most cases the checksum fits again, to get past it."""
    parts = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        batch = bytearray(source.choice(samples))
        for _ in range(source.choice((0, 1, 1, 2, 5, 20))):
            wound(batch, source)
        if len(batch) > HEADER_BYTES and source.random() < 0.7:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
        if len(batch) > HEADER_BYTES and source.random() < 0.95:
            CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
        parts.append(batch)
    return b"".join(parts)[:INPUT_BYTES_MAX]


def wound(batch: bytearray, source: random.Random) -> None:
    """One small change: a bit, a byte, an edge value in a field, a piece cut out, doubled or appended."""
    if not batch:
        return
    at = source.randrange(min(len(batch), HEADER_BYTES) if source.random() < 0.3 else len(batch))
    kind = source.randrange(6)
    if kind == 0:
        batch[at] ^= 1 << source.randrange(8)
    elif kind == 1:
        batch[at] = source.randrange(256)
    elif kind == 2:
        width = source.choice((1, 2, 4, 8))
        batch[at : at + width] = (source.choice(EDGES) % 256**width).to_bytes(width, "big")
    elif kind == 3:
        del batch[at : at + source.randrange(1, 30)]
    elif kind == 4:
        piece = batch[at : at + source.randrange(1, 30)]
        batch[at:at] = piece
    else:
        batch += source.randbytes(source.randrange(1, 30))


class GuardedBuffer:
    """Memory that ends at a page which cannot be read or written."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._size = size
        guard = ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) + size
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def holding(self, data: bytes) -> memoryview:
        """The data, so that its last byte is the last one that may be read."""
        start = self._size - len(data)
        self._memory[start : self._size] = data
        return memoryview(self._memory)[start : self._size]


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _hung(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"one case took more than {CASE_SECONDS_MAX} s")


if __name__ == "__main__":
    main()
