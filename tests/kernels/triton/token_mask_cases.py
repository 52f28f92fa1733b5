"""Run in a process of its own with TRITON_INTERPRET=1: the Triton mask against the plain definition, on the CPU."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference import token_mask as reference
from sglang_lite.kernels.triton.token_mask import BLOCK, apply_token_mask


def main() -> None:
    """Assert equality on vocabularies around words and blocks; says how many cases there were."""
    num_cases = 0
    for vocab in (1, 31, 32, 33, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 40):
        for batch, chosen in ((1, []), (1, [0]), (3, [2]), (3, [0, 1]), (4, [3, 0, 2])):
            random = np.random.default_rng(vocab + batch)
            logits = random.standard_normal((batch, vocab)).astype(np.float32)
            words = max(-(-vocab // 32) - (batch == 4), 1)
            bitmask = random.integers(-(2**31), 2**31, (batch, words)).astype(np.int32)
            rows = np.array(chosen, np.int64)
            masked, expected = torch.from_numpy(logits.copy()), logits.copy()
            apply_token_mask(masked, torch.from_numpy(bitmask), torch.from_numpy(rows))
            reference.apply_token_mask(expected, bitmask, rows)
            np.testing.assert_array_equal(masked.numpy(), expected)
            num_cases += 1
    wide = torch.zeros(2, 100)
    apply_token_mask(wide[:, :40], torch.zeros(2, 3, dtype=torch.int32)[:, :2], torch.tensor([1]))
    assert wide.isinf().nonzero().tolist() == [[1, i] for i in range(40)], "strides are not followed"
    for kind in (torch.bfloat16, torch.float16):
        narrow = torch.ones(1, 40, dtype=kind)
        apply_token_mask(narrow, torch.tensor([[-2]], dtype=torch.int32), torch.tensor([0]))
        assert narrow.isinf().nonzero().tolist() == [[0, i] for i in (0, *range(32, 40))]
    print(f"{num_cases} cases")


if __name__ == "__main__":
    main()
