"""The fleet's own certificate authority, the certificates that it issues, and what TLS makes of them."""

from __future__ import annotations

from kakeya_ops.certificates.authority import Authority, authority_path, read_authority, write_authority
from kakeya_ops.certificates.material import Certificates, read_certificates

__all__ = ["Authority", "Certificates", "authority_path", "read_authority", "read_certificates", "write_authority"]
