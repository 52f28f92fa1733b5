from __future__ import annotations

import numpy as np

from sglang_lite.kernels.cpu.packing import pack_bytes, pack_nibbles, split_nibbles


def test_a_vector_holds_four_inputs_of_each_of_eight_outputs() -> None:
    q = np.arange(16 * 32, dtype=np.int64).reshape(16, 1, 32).astype(np.uint8)
    block = pack_bytes(q, np.ones((16, 1, 1), dtype=np.float16))[1, 0]
    assert block[:256].reshape(8, 8, 4)[2, 5].tolist() == q[13, 0, 8:12].tolist()
    assert block[256:].view(np.float16).tolist() == [1.0] * 8


def test_nibbles_of_the_second_half_lie_high() -> None:
    q = np.random.default_rng(0).integers(0, 16, (16, 2, 32), dtype=np.uint8)
    d, m = (np.arange(32, dtype=np.float16).reshape(16, 2) + add for add in (0, np.float16(100)))
    block = pack_nibbles(q, d, m)[0, 1]
    packed = block[:128].reshape(4, 8, 4)[1, 3]
    assert (packed & 15).tolist() == q[3, 1, 4:8].tolist()
    assert (packed >> 4).tolist() == q[3, 1, 20:24].tolist()
    assert block[128:144].view(np.float16).tolist() == d[:8, 1].tolist()
    assert block[144:].view(np.float16).tolist() == m[:8, 1].tolist()


def test_outputs_are_filled_up_to_sixteen_with_zeros() -> None:
    packed = pack_bytes(np.full((3, 1, 32), 7, dtype=np.uint8), np.ones((3, 1, 1), dtype=np.float16))
    assert packed.shape == (2, 1, 272)
    assert not packed[1].any()


def test_halves_of_bytes_come_low_ones_first() -> None:
    assert split_nibbles(np.array([0x21, 0x43], dtype=np.uint8)).tolist() == [1, 3, 2, 4]
