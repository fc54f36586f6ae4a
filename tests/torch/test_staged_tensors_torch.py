# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Torch tensors as attachments: exact in type, shape and bits, views of what was read, or refused by name."""

from __future__ import annotations

import warnings

import pytest
import safetensors.torch
import torch

from gym_objstore import StagingSink, StagingSource
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.staged_attachments import pack, unpack
from gym_objstore.staged_tensors import CODES, tensor_of, value_of
from gym_objstore.testing.staged_rollouts import staged_call

BITS = torch.arange(48, dtype=torch.uint8).reshape(3, 16)
DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def same(found, given) -> bool:
    def bits(tensor):
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)

    exact = not given.numel() or torch.equal(bits(found), bits(given))
    return type(found) is torch.Tensor and found.dtype == given.dtype and found.shape == given.shape and exact


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_comes_back_bit_for_bit(name):
    given = BITS.clone().view(getattr(torch, name))
    stored = tensor_of(given, "/a")
    assert stored.code == CODES.get(name, "U8")
    assert same(value_of(stored), given)


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(2.5),
        torch.empty(0, 4, dtype=torch.bfloat16),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12)[::3],
        torch.tensor(1.5).expand(3, 4),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(2, requires_grad=True) * 2,
        torch.tensor([float("nan"), -0.0, float("inf")]),
    ],
    ids=lambda given: f"{given.dtype}-{tuple(given.shape)}-{given.is_contiguous()}",
)
def test_odd_shapes_and_views_come_back_exactly(given):
    assert same(value_of(tensor_of(given, "/a")), given)


def test_a_tensor_in_one_piece_is_not_copied():
    given = torch.zeros(4)
    stored = tensor_of(given, "/a")
    given[0] = 1.0
    assert bytes(stored.data[:4]) == b"\x00\x00\x80\x3f"


def test_what_comes_back_lies_in_the_bytes_that_were_read_and_warns_of_nothing():
    stored = tensor_of(torch.arange(4.0), "/a")
    body = bytearray(stored.data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = value_of(stored._replace(data=memoryview(body).toreadonly()))
    body[3] = 0x41
    assert found[0].item() == 8.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2).to_sparse(),
        lambda: torch.empty(2, device="meta"),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
        lambda: torch.Tensor._make_subclass(type("Mine", (torch.Tensor,), {}), torch.ones(2)),
    ],
    ids=["sparse", "meta", "nested", "quantized", "subclass"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_could_not_come_back_exactly_is_refused_by_name(make):
    with pytest.raises(Invalid, match="the attachment '/media/0' cannot be stored"):
        tensor_of(make(), "/media/0")


@pytest.mark.parametrize("change", [{"dtype": "float7"}, {"origin_shape": (5,)}])
def test_bytes_that_do_not_fit_their_description_are_corrupt(change):
    with pytest.raises(Corrupt):
        value_of(tensor_of(torch.arange(4.0), "/a")._replace(**change))


def test_the_safetensors_library_reads_the_same_file():
    tensors = {
        "image": torch.rand(3, 4),
        "mask": torch.tensor([True, False]),
        "bf": torch.ones(3, dtype=torch.bfloat16),
    }
    container = pack(tensors)
    body = container.header + b"".join(container.buffers)
    found = safetensors.torch.load(body)
    assert {name: same(found[f"/{name}"], given) for name, given in tensors.items()} == dict.fromkeys(tensors, True)
    assert list(unpack(body, len(container.header), container.digest)) == ["image", "mask", "bf"]


def test_tensors_are_staged_with_their_row(tmp_path):
    place = {"url": f"file://{tmp_path}/store", "run_id": "run-1", "spill_dir": str(tmp_path / "spill")}
    given = {"pixels": torch.rand(16, 16).to(torch.bfloat16), "grid": {"thw": torch.tensor([[1, 2, 3]])}}
    result = StagingSink(**place).stage(staged_call("c1"), attachments=given)
    found = StagingSource(**place).load_attachments(result.staging_key)
    assert same(found["pixels"], given["pixels"])
    assert same(found["grid"]["thw"], given["grid"]["thw"])


def test_tensors_on_an_accelerator_come_back_on_the_host():
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    given = torch.arange(6, device=device).reshape(2, 3)
    assert same(value_of(tensor_of(given, "/a")), given.cpu())
