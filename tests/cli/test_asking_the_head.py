from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.cli.asking_the_head import fleet_keys, head_url, read_api_key
from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory, parse_inventory

TEXT = """
fleet: {{name: f, tenant: t, key_file: {key}}}
model: {{path: /m}}
hosts:
  h:
    role: head
    api: {{bind: "{bind}", port: 8080, keys_file: /keys}}
    endpoints: [{{network: lan, address: {address}, port: 9, trusted: true}}]
"""


def inventory(bind: str = "127.0.0.1", key: str = "/key", address: str = "10.0.0.7") -> Inventory:
    return parse_inventory(TEXT.format(bind=bind, key=key, address=address).encode(), "f.yaml")


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("::1", "http://[::1]:8080"),
        ("head.local", "http://head.local:8080"),
        ("0.0.0.0", "http://10.0.0.7:8080"),
        ("::", "http://10.0.0.7:8080"),
    ],
)
def test_the_head_is_asked_where_it_can_be_reached(bind: str, url: str) -> None:
    assert head_url(inventory(bind)) == url
    assert head_url(inventory(bind), "http://elsewhere") == "http://elsewhere"


def test_an_unsigned_fleet_cannot_be_proved() -> None:
    with pytest.raises(InputError, match="unsigned"):
        fleet_keys(inventory(key="null", address="127.0.0.1"))


def test_an_api_key_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret-key\n")
    key = read_api_key(path)
    assert key is not None
    assert key.reveal() == b"secret-key"


def test_no_file_is_no_key() -> None:
    assert read_api_key(None) is None


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "schlüssel"])
def test_what_is_no_api_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    with pytest.raises(InputError, match="API key file"):
        read_api_key(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_api_key(tmp_path / "absent")
