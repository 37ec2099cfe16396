"""How the packages of FlashAttention are found and called: with packages that only keep their arguments."""

import importlib
import sys
from pathlib import Path

import pytest

RECORDS = """
calls = []
def flash_attn_func(*tensors, **options):
    calls.append(options)
    return tensors[0], "logsumexp"
"""


class Tensor:
    def transpose(self, *_):
        return self


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "scripts/lib")
    for name in [name for name in sys.modules if name.startswith("flash_attn")]:
        monkeypatch.delitem(sys.modules, name)

    def install(*modules):
        for module in modules:
            folder = tmp_path / module.replace(".", "/")
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(RECORDS)
        importlib.invalidate_caches()
        packages = importlib.import_module("torch_program.packages")
        return {provider.name: provider for provider in packages.packages()}

    return install


def window_size(provider, module, **problem):
    problem = {"softmax_scale": 0.5, "mask": "none", "q_len": 8, "kv_len": 8, **problem}
    provider.attend(Tensor(), Tensor(), Tensor(), problem)
    return importlib.import_module(module).calls[-1].get("window_size")


def test_the_folder_around_flash_attention_4_is_not_flash_attention_2(installed):
    assert list(installed("flash_attn.cute")) == ["fa4"]


def test_all_packages(installed):
    assert list(installed("flash_attn", "flash_attn_interface", "flash_attn.cute")) == ["fa2", "fa3", "fa4"]


def test_a_window_without_an_end(installed):
    providers = installed("flash_attn", "flash_attn.cute")
    for name, module, all_keys in [("fa2", "flash_attn", -1), ("fa4", "flash_attn.cute", None)]:
        assert window_size(providers[name], module, window_left=3) == (3, all_keys)
        assert window_size(providers[name], module, window_right=3) == (all_keys, 3)
        assert window_size(providers[name], module, window_left=3, mask="causal_bottom_right") == (3, 0)
        assert window_size(providers[name], module) is None


def test_a_causal_mask_at_the_top_left_is_refused(installed):
    providers = installed("flash_attn")
    with pytest.raises(Exception, match="bottom right corner"):
        window_size(providers["fa2"], "flash_attn", mask="causal_top_left", kv_len=9)
