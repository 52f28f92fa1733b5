"""Run in a process of its own with TRITON_INTERPRET=1: attention kernels and the KV store against their plain definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from sglang_lite.kernels.reference import cascade_attention as plain_cascade
from sglang_lite.kernels.reference import decode_attention as plain_decode
from sglang_lite.kernels.reference import extend_attention as plain_extend
from sglang_lite.kernels.reference import store_kv as plain_store
from sglang_lite.kernels.triton import decode_attention as decode_module
from sglang_lite.kernels.triton.cascade_attention import cascade_attention
from sglang_lite.kernels.triton.decode_attention import decode_attention, split_attention
from sglang_lite.kernels.triton.extend_attention import FIXED, LARGE, attend_tiles, extend_attention, plan_tiles
from sglang_lite.kernels.triton.split_plan import SPLIT, plan_split
from sglang_lite.kernels.triton.split_work import SplitWork
from sglang_lite.kernels.triton.store_kv import store_kv
from tests.support.paged_case import PagedCase, paged_case

HALF = (torch.bfloat16, torch.float16)
Options = tuple[int | None, float | None]
PLAIN: Options = (None, None)


def stored(
    prefix: list[int], extend: list[int], page_size: int, heads: tuple[int, int], dim: int, dtype: torch.dtype
) -> PagedCase:
    """A batch whose new keys and values are stored already; what no row owns is NaN."""
    case = paged_case(prefix, extend, page_size, *heads, dim, token_major=True, dtype=dtype)
    store_kv(case.k, case.v, case.pool.k[0], case.pool.v[0], case.fb.out_slots)
    return case


def agree(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, what: object) -> None:
    """Equal up to the rounding of weights to the pages' type."""
    tolerance = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    worst = float((got - expected).abs().max()) if got.numel() else 0.0
    assert got.shape == expected.shape, f"{what}: {got.shape}"
    assert worst < tolerance, f"{what}: off by {worst}"  # NaN is not below either


def store() -> int:
    """All types and page sizes, strided inputs; no slot is touched but those named."""
    count = 0
    for new, kept, page_size, heads, dim in (
        (torch.float32, torch.float32, 16, 3, 64),
        (torch.bfloat16, torch.bfloat16, 1, 1, 80),
        (torch.float16, torch.float16, 4, 5, 24),
        (torch.float32, torch.bfloat16, 16, 33, 128),
    ):
        for tokens in (0, 1, 7):
            merged = torch.randn(tokens, 3 * heads, dim).to(kept).to(new)  # the interpreter cuts off what GPUs round
            k, v = merged[:, heads : 2 * heads], merged[:, 2 * heads :]
            pages = torch.randn(2, 9, heads, page_size, dim).to(kept)
            expected = pages.clone()
            slots = torch.randperm(8 * page_size)[:tokens] + page_size
            plain_store.store_kv(k, v, expected[0].transpose(-1, -2), expected[1], slots)
            store_kv(k, v, pages[0], pages[1], slots)
            assert torch.equal(pages, expected), f"{tokens} tokens of {heads} heads of {dim}, {new} to {kept}"
            count += 1
    pages = torch.zeros(2, 3, 1, 4, 16)
    store_kv(torch.ones(3, 1, 16), torch.ones(3, 1, 16), pages[0], pages[1], torch.tensor([0, 0, 5]))
    assert int(pages[:, 1:].sum()) == int(pages[:, 1].sum()) == 2 * 16, "writes to the sink page reach others"
    return count + 1


def decode() -> int:
    """Rows around the ends of pages and pieces, groups that fill tiles in part, and over several; all options."""
    count = 0
    lengths = [1, 15, 16, 17, SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT + 40]
    for seq_lens, page_size, heads, dim, dtype, options in (
        ([1], 16, (1, 1), 16, torch.float32, PLAIN),
        (lengths, 16, (6, 2), 64, torch.float32, PLAIN),
        (lengths[-3:], 1, (8, 1), 80, torch.float32, PLAIN),
        (lengths[-2:], 4, (20, 1), 24, torch.float32, (None, 2.0)),
        (lengths[-3:], 16, (4, 1), 128, torch.bfloat16, (None, 30.0)),
        (lengths[-4:], 16, (2, 2), 64, torch.float16, (70, None)),
        (lengths, 16, (3, 1), 32, torch.float32, (SPLIT, 1.5)),
        ([40, 90], 48, (4, 2), 256, torch.bfloat16, (1, None)),
    ):
        case = stored([n - 1 for n in seq_lens], [1] * len(seq_lens), page_size, heads, dim, dtype)
        rows = (case.fb.page_table, case.fb.seq_lens)
        pages = (case.pool.k[0], case.pool.v[0])
        q = case.q.to(dtype).float()
        expected = plain_decode.decode_attention(q, *pages, *rows, 0.3, *options)
        agree(decode_attention(q, *pages, *rows, 0.3, *options), expected, dtype, (seq_lens, heads, dim, options))
        if dtype in HALF:
            agree(decode_attention(q.to(dtype), *pages, *rows, 0.3, *options).float(), expected, dtype, "rounded q")
        count += 1
    none = torch.zeros(0, dtype=torch.int32)
    pages = torch.zeros(2, 2, 16, 64)
    empty = decode_attention(torch.zeros(0, 6, 64), pages, pages, none.view(0, 3), none, 1.0)
    assert empty.shape == (0, 6, 64)
    return count + 1


def decode_bits() -> int:
    """A row's bits do not depend on batch mates, its place, or the number of programs."""
    seq_lens = [SPLIT + 9, 3, 2 * SPLIT + 100, 50, SPLIT]
    case = stored([n - 1 for n in seq_lens], [1] * 5, 16, (6, 2), 64, torch.float32)
    pages = (case.pool.k[0], case.pool.v[0])

    def rows(*chosen: int) -> torch.Tensor:
        index = torch.tensor(chosen)
        return decode_attention(case.q[index], *pages, case.fb.page_table[index], case.fb.seq_lens[index], 0.125)

    whole = rows(0, 1, 2, 3, 4)
    for chosen in ((0,), (2,), (4, 2), (3, 2, 0)):
        assert torch.equal(rows(*chosen), whole[list(chosen)]), f"rows {chosen}"
    kept = decode_module._PROGRAMS_ON_CPU
    for programs in (1, 100):
        decode_module._PROGRAMS_ON_CPU = programs
        decode_module._most_programs.cache_clear()
        assert torch.equal(rows(0, 1, 2, 3, 4), whole), f"{programs} programs"
    decode_module._PROGRAMS_ON_CPU = kept
    decode_module._most_programs.cache_clear()
    return 6


def sharing_case(dtype: torch.dtype) -> tuple[PagedCase, torch.Tensor, torch.Tensor]:
    """Seven rows: five begin with the same 20 pages, three of them with 36; with their page table and lengths."""
    lengths = [20 * 16 + 5, 700, 640, 36 * 16 + 1, 33, 800, 36 * 16]
    case = stored([n - 1 for n in lengths], [1] * 7, 16, (6, 2), 64, dtype)
    # What no row owns is finite here: pages of other rows stand for those that are shared.
    table = case.fb.page_table.clone()
    for row, shared in ((0, 20), (3, 36), (5, 36), (6, 20)):
        table[row, :shared] = table[1, :shared]
    table[2, :36] = table[1, :36]
    return case, table, case.fb.seq_lens


def cascade() -> int:
    """Shared pages are read once, with no bit changed; drafts of a row share what they see, and give decode's bits."""
    for dtype, options in ((torch.float32, PLAIN), (torch.float32, (300, 2.0)), (torch.bfloat16, PLAIN)):
        case, table, seq_lens = sharing_case(dtype)
        pages = (case.pool.k[0], case.pool.v[0])
        alone = decode_attention(case.q, *pages, table, seq_lens, 0.125, *options)
        together = cascade_attention(case.q, *pages, table, seq_lens, 0.125, *options)
        assert torch.equal(together, alone), f"sharing changes bits: {dtype}, {options}"
        if options is PLAIN:
            who = torch.tensor([0, 1, 2, 3, 5, 6])
            arguments = (case.q.to(dtype).float()[who], *pages, table[who], seq_lens[who], 20, 0.125)
            agree(together[who], plain_cascade.cascade_attention(*arguments), dtype, "two parts")
    index = np.arange(7, dtype=np.int32)
    case, table, seq_lens = sharing_case(torch.float32)
    plans = [plan_split(index, index, seq_lens.numpy(), table.numpy(), 16, 3, share=share) for share in (True, False)]
    joined, apart = (len(plan.items) for plan in plans)
    assert joined < apart, f"nothing is shared: {joined} items"
    return 4 + drafts()


def drafts() -> int:
    """Four tokens of one row as queries of one step: each the bits of a decode step of its own."""
    case = stored([SPLIT - 2, 20], [4, 1], 16, (6, 2), 64, torch.float32)
    pages = (case.pool.k[0], case.pool.v[0])
    rows = np.array([0, 0, 0, 0, 1], np.int32)
    limits = (case.fb.host.positions + 1).astype(np.int32)
    plan = plan_split(np.arange(5, dtype=np.int32), rows, limits, case.fb.host.page_table, 16, 3)
    assert len(plan.items) == 3, plan.items
    out = torch.empty_like(case.q)
    split_attention(case.q, *pages, case.fb.page_table, SplitWork.of(plan, 6, 64, case.q.device), out, 0.125)
    expected = [
        decode_attention(case.q[i : i + 1], *pages, case.fb.page_table[row : row + 1], torch.tensor([limit]), 0.125)
        for i, (row, limit) in enumerate(zip(rows.tolist(), limits.tolist(), strict=True))
    ]
    assert torch.equal(out, torch.cat(expected)), "drafts differ from decode"
    return 1


def extend() -> int:
    """Long and short rows together, cached prefixes around pages and blocks, odd heads; all options; masks of drafts."""
    count = 0
    ragged = ([0, 40, 3, 64, 0], [70, 1, 30, 21, 1])
    for (prefix, new), page_size, heads, dim, dtype, options in (
        (([0], [1]), 16, (1, 1), 16, torch.float32, PLAIN),
        (ragged, 16, (6, 2), 64, torch.float32, PLAIN),
        (ragged, 4, (9, 3), 32, torch.float32, (9, None)),
        (ragged, 1, (8, 1), 80, torch.float32, (None, 1.5)),
        (([5], [9]), 16, (70, 1), 16, torch.float32, PLAIN),
        (([100, 0], [1, 40]), 16, (4, 1), 128, torch.bfloat16, (40, 30.0)),
        (([63, 64], [65, 64]), 48, (2, 2), 64, torch.float16, PLAIN),
        (([0], [200]), 16, (3, 1), 32, torch.bfloat16, PLAIN),
    ):
        case = stored(prefix, new, page_size, heads, dim, dtype)
        rows = (case.fb.page_table, case.fb.q_starts, case.fb.seq_lens)
        pages = (case.pool.k[0], case.pool.v[0])
        q = case.q.to(dtype).float()
        expected = plain_extend.extend_attention(q, *pages, *rows, 0.3, *options)
        agree(extend_attention(q, *pages, *rows, 0.3, *options), expected, dtype, (prefix, new, heads, dim, options))
        count += 1
    return count + masks() + extend_bits()


def masks() -> int:
    """Trees of drafts, one over the end of a block of keys and of a tile; a row without a mask beside them."""
    case = stored([60, 17, 0], [30, 3, 6], 16, (6, 2), 32, torch.float32)
    seen = [torch.eye(n, dtype=torch.bool) | (torch.rand(n, n) < 0.5) for n in (30, 6)]
    mask, starts = torch.cat([x.flatten() for x in seen]), torch.tensor([0, -1, 900])
    rows = (case.fb.page_table, case.fb.q_starts, case.fb.seq_lens)
    pages = (case.pool.k[0], case.pool.v[0])
    for window in (None, 4):
        arguments = (case.q, *pages, *rows, 0.3, window, None)
        got = extend_attention(*arguments, mask, starts)
        agree(got, plain_extend.extend_attention(*arguments, mask, starts), torch.float32, ("mask", window))
        assert not torch.allclose(got, extend_attention(*arguments)), "the mask hides nothing"
    return 2


def extend_bits() -> int:
    """With tiles of one size a token's bits do not depend on batch mates, nor on where its prompt was cut."""
    case = stored([0, 0, 90], [150, 40, 70], 16, (6, 2), 32, torch.float32)
    pages = (case.pool.k[0], case.pool.v[0])

    def part(row: int, first: int, end: int) -> torch.Tensor:
        """Tokens of one row computed alone, those before them cached."""
        at = int(case.fb.q_starts[row])
        prefix = int(case.fb.prefix_lens[row])
        q = case.q[at + first : at + end]
        starts, lens = torch.tensor([0, len(q)], dtype=torch.int32), torch.tensor([prefix + end], dtype=torch.int32)
        tiles = torch.from_numpy(plan_tiles(starts.diff().numpy(), lens.numpy(), 3, FIXED))
        out = torch.empty_like(q)
        attend_tiles(q, *pages, case.fb.page_table[row : row + 1], starts, lens, tiles, FIXED, out, 0.125)
        return out

    host = case.fb.host
    tiles = torch.from_numpy(plan_tiles(np.diff(host.q_starts), host.seq_lens, 3, FIXED))
    rows = (case.fb.page_table, case.fb.q_starts, case.fb.seq_lens)
    whole = torch.empty_like(case.q)
    attend_tiles(case.q, *pages, *rows, tiles, FIXED, whole, 0.125)
    for row, first, end in ((0, 0, 150), (0, 37, 150), (0, 100, 101), (1, 0, 40), (2, 5, 66)):
        at = int(case.fb.q_starts[row])
        assert torch.equal(part(row, first, end), whole[at + first : at + end]), f"tokens {first}:{end} of row {row}"
    large = torch.empty_like(case.q)
    wide = torch.from_numpy(plan_tiles(np.diff(host.q_starts), host.seq_lens, 3, LARGE))
    attend_tiles(case.q, *pages, *rows, wide, LARGE, large, 0.125)
    agree(large, whole, torch.float32, "large tiles")
    return 6


CASES: dict[str, Callable[[], int]] = {
    "store_kv": store,
    "decode": decode,
    "decode bits": decode_bits,
    "cascade": cascade,
    "extend": extend,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name, run in CASES.items():
        print(f"{name}: {run()} cases", flush=True)
