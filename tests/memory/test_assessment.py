"""One host in one role, from the inventory, the model and the facts to the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.errors import ExitCode, FootprintUnknown, ModelDirectoryError
from kakeya_ops.inventory import load_inventory
from kakeya_ops.memory.assessment import DoesNotFit, Model, Surroundings, assess, facts_of, read_model
from kakeya_ops.memory.demand import Overrides
from kakeya_ops.memory.facts import pinned
from memory.checkpoints import write_checkpoint
from memory.machines import ABSENT, GIB, mac
from memory.public_models import GEMMA_FILES_BYTES, write_founding_model
from test_layout import ROOT

INVENTORY = load_inventory(ROOT / "inventory.yaml")


@pytest.fixture(scope="module")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_founding_model(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module")
def model(founding: Path) -> Model:
    return read_model(founding)


def test_the_founding_model_is_made_as_it_lies_on_disk(founding: Path) -> None:
    files = sum(path.stat().st_size for path in founding.glob("*.safetensors"))
    assert files == pytest.approx(GEMMA_FILES_BYTES, abs=300_000)  # the headers


def test_the_founding_worker_does_not_fit_and_the_working_set_is_the_first_failure(model: Model) -> None:
    host = INVENTORY.host("allens")
    assessment = assess(INVENTORY, host, model, Surroundings(pinned(16)))
    verdict = assessment.verdict
    assert (verdict.answer, verdict.first_failure and verdict.first_failure.name) == ("does not fit", "working set")
    assert verdict.pinned
    # Weights alone are more than two thirds of 16 GiB, so neither context nor concurrency can help.
    told = {change.kind: change.sentence for change in assessment.changes}
    assert told == {
        "cache peer": "role: cache: it keeps 4.0 GiB of KV for the others, without a model",
        "quantization": "the model in 2 bits: about 7.3 GiB of weights instead of 13.2 GiB, "
        "and pool_gb: 1.5 instead of 4",
    }


def test_the_founding_head_by_hand(model: Model) -> None:
    """Every term of the 24 GB head, from the configuration, at 4 × 8192 tokens, sink 4, window 2048, blocks of 64."""
    assessment = assess(INVENTORY, INVENTORY.host("head"), model, Surroundings(pinned(24)))
    need = assessment.verdict.need
    assert need is not None
    terms = {term.name: term.nbytes for term in need.terms}
    sliding, full = 25, 5
    sliding_row = 2 * 8 * 256 * 2  # keys and values, kv heads, width, two bytes
    full_row = 2 * 2 * 512 * 2
    decoding = sliding * sliding_row * 1024 + full * full_row * (2048 + 4)
    # Being prefilled, a window holds what the chunk of 64 tokens appends to it, but for the oldest row.
    prefilling = sliding * sliding_row * (1024 - 1 + 64) + full * full_row * (2048 + 4 - 1 + 64)
    assert terms == {
        "weights": 14_198_823_936,
        "KV": 3 * decoding + prefilling,
        "prefill step": prefilling,  # a conversation that joins the others is copied; scores and experts are less
        "export": 2 * 64 * (sliding * sliding_row + full * full_row),
        "spare buffers": 64 * 2**20,
        "MLX": 800_000_000,
        "process": 300_000_000,
        "pool": 4 * GIB,
    }
    gpu = sum(terms.values()) - terms["process"] - terms["spare buffers"]
    assert need.gpu_bytes == gpu
    # Two thirds of 24 GiB are 16 GiB: 3.2 GiB too little. 24 GiB less 3 GiB for macOS would do, tightly.
    working_set, buffer, total, now = assessment.verdict.inequalities
    assert (working_set.outcome, working_set.limit_bytes) == ("fails", 16 * GIB)
    assert working_set.left_bytes == 16 * GIB - gpu
    assert round(gpu / GIB, 1) == 19.2
    assert (buffer.outcome, buffer.need_bytes, buffer.limit_bytes) == ("holds", 262144 * 2816 * 4 // 8, 12 * GIB)
    assert (total.outcome, total.limit_bytes) == ("narrow", 21 * GIB)
    assert now.outcome == "unknown"
    assert assessment.verdict.answer == "does not fit"
    told = {change.kind: change for change in assessment.changes}
    assert list(told) == ["pool", "wired limit", "cache peer", "quantization"]
    assert told["pool"].sentence == "pool_gb: 0.75 instead of 4"
    assert told["wired limit"].command == f"sudo sysctl iogpu.wired_limit_mb={-(-gpu // 2**20)}"


def test_what_a_person_asks_is_judged_and_nothing_is_shrunk_silently(model: Model) -> None:
    asked = assess(INVENTORY, INVENTORY.host("allens"), model, Surroundings(pinned(16)), Overrides("cache"))
    assert asked.verdict.answer == "fits"
    long = assess(
        INVENTORY, INVENTORY.host("head"), model, Surroundings(pinned(128)), Overrides(context_tokens=200_000)
    )
    assert long.question.load.context_tokens == 200_000


def test_a_model_that_kakeya_has_no_formulas_for_is_unknown_except_to_a_cache_peer(tmp_path: Path) -> None:
    strange = read_model(write_checkpoint(tmp_path, {"model_type": "rwkv9"}))
    assert isinstance(strange, FootprintUnknown)
    host = INVENTORY.host("allens")
    unknown = assess(INVENTORY, host, strange, Surroundings(pinned(16)))
    assert (unknown.verdict.answer, unknown.changes) == ("unknown", ())
    assert "rwkv9" in unknown.summary
    assert assess(INVENTORY, host, strange, Surroundings(pinned(16)), Overrides("cache")).verdict.answer == "fits"


def test_a_directory_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelDirectoryError):
        read_model(tmp_path)


def test_a_refusal_names_role_and_reason(model: Model) -> None:
    error = DoesNotFit(assess(INVENTORY, INVENTORY.host("allens"), model, Surroundings(pinned(16))))
    assert error.exit_code is ExitCode.NO
    assert error.message.startswith("allens as a worker does not fit: working set: 19.0 GiB of 10.7 GiB")
    assert "--force REASON" in str(error.hint)


def test_what_was_read_wins_over_the_inventory_s_word() -> None:
    host, read = INVENTORY.host("allens"), mac(32)
    assert facts_of(host, read) is read
    silent = mac(16, total_bytes=ABSENT)
    for told in (None, silent):
        facts = facts_of(host, told)
        assert facts is not None
        assert (facts.total_bytes.nbytes, facts.total_bytes.origin) == (16 * GIB, "pinned")
    nameless = host.model_copy(update={"memory_gb": None})
    assert facts_of(nameless, None) is None
    assert facts_of(nameless, silent) is silent
