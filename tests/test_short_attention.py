"""The Triton kernels against torch's attention; they need Triton and a GPU (or its interpreter)."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from tabiced.short_attention import short_attention


@pytest.mark.parametrize(("queries", "length"), [(6, 6), (4, 6), (30, 30), (4, 54), (128, 128)])
def test_values_and_gradients(queries, length):
    g = torch.Generator("cuda").manual_seed(0)
    q = torch.randn(300, queries, 128, generator=g, device="cuda", dtype=torch.bfloat16)
    kv = torch.randn(300, length, 256, generator=g, device="cuda", dtype=torch.bfloat16)
    k, v = kv.chunk(2, -1)
    inputs = [x.unflatten(-1, (2, -1)).transpose(1, 2).requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    out, truth = short_attention(*inputs), F.scaled_dot_product_attention(*exact)
    weight = torch.randn(out.shape, generator=g, device="cuda")
    found = [out, *torch.autograd.grad(out, inputs, weight.bfloat16())]
    expected = [truth, *torch.autograd.grad(truth, exact, weight.bfloat16().double())]
    for a, b in zip(found, expected, strict=True):
        assert (a.double() - b).norm() / b.norm() < 1e-2
