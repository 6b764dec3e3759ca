"""The fleet's own certificate authority, the certificates that it issues, and what TLS makes of them.

`authority` and `facts` are slow to import: whoever may do without TLS imports them where it turns out to be needed.
"""

from __future__ import annotations

from kakeya_ops.certificates.material import Certificates, read_certificates
from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path

__all__ = ["Certificates", "authorities_path", "authority_path", "certificate_path", "read_certificates"]
