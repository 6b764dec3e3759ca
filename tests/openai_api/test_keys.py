from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.errors import InputError
from kakeya_ops.openai_api.keys import ApiKeys, read_api_keys

ANNA = "anna-0123456789abcdef"
BERT = "bert-0123456789abcdef"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("header", "tenant"),
    [
        (f"Bearer {ANNA}", "family"),
        (f"bearer  {BERT} ", "guests"),
        (f"Basic {ANNA}", None),
        (ANNA, None),
        (f"Bearer {ANNA}x", None),
        ("Bearer ", None),
        ("Bearer \u00e9\u00e9", None),
        ("", None),
        (None, None),
    ],
)
def test_a_key_names_its_tenant(header: str | None, tenant: str | None) -> None:
    assert ApiKeys({ANNA: "family", BERT: "guests"}).tenant_of(header) == tenant


def test_keys_do_not_show_themselves() -> None:
    keys = ApiKeys({ANNA: "family"})
    assert ANNA not in repr(keys) + repr(vars(keys))


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    keys = read_api_keys(write(tmp_path / "keys", f"# who may ask\n{ANNA}: family\n{BERT}: guests\n"))
    assert len(keys) == 2
    assert keys.tenant_of(f"Bearer {BERT}") == "guests"


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (f"{ANNA}: family\n", 0o644, "open to other users"),
        (f"{ANNA}: family\n", 0o640, "open to other users"),
        ("", 0o600, "holds no keys"),
        (f"- {ANNA}\n", 0o600, "holds no keys"),
        ("short: family\n", 0o600, "shorter than 16"),
        (f"'{ANNA} x': family\n", 0o600, "without spaces"),
        (f"{ANNA}: 5\n", 0o600, "not text"),
        (f"{ANNA}:\n", 0o600, "not text"),
        ("1234567890123456: family\n", 0o600, "not text"),
        (f"{ANNA}: [\n", 0o600, "cannot be read"),
        (f'{ANNA}: "family\\x1fab"\n', 0o600, "printable letters"),
        (f"{ANNA}: {'f' * 201}\n", 0o600, "printable letters"),
        (f"{ANNA}: family\n{ANNA}: : x\n", 0o600, "cannot be read"),
    ],
)
def test_a_faulty_file_is_refused_without_showing_a_key(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_api_keys(write(tmp_path / "keys", text, mode))
    assert ANNA not in str(caught.value)
    assert str(tmp_path / "keys") in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_api_keys(tmp_path / "keys")
