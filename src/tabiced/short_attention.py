"""Attention over short sequences as one Triton kernel per direction, for training on a GPU.

The cells of a row make sequences of a few dozen tokens, of which a step has tens of thousands.
General attention kernels pad each to 128 tokens and spend a quarter of the step on that. Here a
whole sequence of one head fits into one tile, so the forward pass is a softmax between two small
products, and the backward pass recomputes it: nothing but q, k and v is kept.
"""

# mypy: disable-error-code="no-untyped-def"
# (the arguments of Triton kernels are pointers and numbers of Triton's own kinds)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128


@triton.jit
def _forward(
    q_ptr, k_ptr, v_ptr, o_ptr,
    q_row, q_head, q_pos, k_row, k_head, k_pos, v_row, v_head, v_pos, o_row, o_head, o_pos,
    queries, length, scale,
    QUERIES: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, j, c = tl.arange(0, QUERIES), tl.arange(0, LENGTH), tl.arange(0, WIDTH)
    in_q, in_k = (i < queries)[:, None], (j < length)[:, None]
    q = tl.load(q_ptr + row * q_row + head * q_head + i[:, None] * q_pos + c[None], in_q, 0.0)
    k = tl.load(k_ptr + row * k_row + head * k_head + j[:, None] * k_pos + c[None], in_k, 0.0)
    v = tl.load(v_ptr + row * v_row + head * v_head + j[:, None] * v_pos + c[None], in_k, 0.0)
    s = tl.where((j < length)[None], tl.dot(q, tl.trans(k)) * scale, -1e30)
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    o = tl.dot(p.to(v.dtype), v)
    at = o_ptr + row * o_row + head * o_head + i[:, None] * o_pos + c[None]
    tl.store(at, o.to(o_ptr.dtype.element_ty), in_q)


@triton.jit
def _backward(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr,
    q_row, q_head, q_pos, k_row, k_head, k_pos, v_row, v_head, v_pos, do_row, do_head, do_pos,
    dq_row, dq_head, dq_pos, dk_row, dk_head, dk_pos,
    queries, length, scale,
    QUERIES: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, j, c = tl.arange(0, QUERIES), tl.arange(0, LENGTH), tl.arange(0, WIDTH)
    in_q, in_k = (i < queries)[:, None], (j < length)[:, None]
    q = tl.load(q_ptr + row * q_row + head * q_head + i[:, None] * q_pos + c[None], in_q, 0.0)
    k = tl.load(k_ptr + row * k_row + head * k_head + j[:, None] * k_pos + c[None], in_k, 0.0)
    v = tl.load(v_ptr + row * v_row + head * v_head + j[:, None] * v_pos + c[None], in_k, 0.0)
    do = tl.load(do_ptr + row * do_row + head * do_head + i[:, None] * do_pos + c[None], in_q, 0.0)
    s = tl.where((j < length)[None], tl.dot(q, tl.trans(k)) * scale, -1e30)
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    dp = tl.dot(do, tl.trans(v))
    ds = p * (dp - tl.sum(p * dp, 1)[:, None]) * scale
    # Rows beyond `queries` have do = 0, so they add nothing to dk and dv.
    dv = tl.dot(tl.trans(p.to(do.dtype)), do)
    dq = tl.dot(ds.to(k.dtype), k)
    dk = tl.dot(tl.trans(ds.to(q.dtype)), q)
    at = row * dq_row + head * dq_head + i[:, None] * dq_pos + c[None]
    tl.store(dq_ptr + at, dq.to(dq_ptr.dtype.element_ty), in_q)
    at = row * dk_row + head * dk_head + j[:, None] * dk_pos + c[None]
    tl.store(dk_ptr + at, dk.to(dk_ptr.dtype.element_ty), in_k)
    tl.store(dv_ptr + at, dv.to(dv_ptr.dtype.element_ty), in_k)


def _strides(x: Tensor) -> tuple[int, int, int]:
    assert x.stride(3) == 1
    return x.stride(0), x.stride(1), x.stride(2)


def _like(x: Tensor) -> Tensor:
    """Allocate (R, heads, S, width) so that merging the heads afterwards is free."""
    rows, heads, length, width = x.shape
    return x.new_empty(rows, length, heads, width).transpose(1, 2)


def _sizes(q: Tensor, k: Tensor) -> dict[str, int]:
    pad = [max(16, triton.next_power_of_2(x.shape[2])) for x in (q, k)]
    warps = 1 if pad[1] <= 16 else 2 if pad[1] <= 32 else 4 if pad[1] <= 64 else 8
    return {"QUERIES": pad[0], "LENGTH": pad[1], "WIDTH": q.shape[3], "num_warps": warps}


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        o = _like(q)
        strides = (*_strides(q), *_strides(k), *_strides(v), *_strides(o))
        scale = q.shape[3] ** -0.5
        grid = (q.shape[0], q.shape[1])
        _forward[grid](q, k, v, o, *strides, q.shape[2], k.shape[2], scale, **_sizes(q, k))
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = ctx.saved_tensors
        do = do if do.stride(3) == 1 else do.contiguous()
        dq, dk, dv = _like(q), _like(k), _like(k)
        strides = (
            *_strides(q), *_strides(k), *_strides(v), *_strides(do), *_strides(dq), *_strides(dk)
        )  # fmt: skip
        scale = q.shape[3] ** -0.5
        grid = (q.shape[0], q.shape[1])
        _backward[grid](
            q, k, v, do, dq, dk, dv, *strides, q.shape[2], k.shape[2], scale, **_sizes(q, k)
        )
        return dq, dk, dv


def short_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with (R, heads, S, width) tensors of at most LONGEST tokens, width a power of two."""
    return _ShortAttention.apply(q, k, v)
