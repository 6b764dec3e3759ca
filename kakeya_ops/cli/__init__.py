"""The `kakeya` command: options in, one library call, one view, one exit code. One module for each command.

Modules here import what is heavy (the engine, the HTTP servers, the model readers) inside their command's body, so that
help and usage errors answer at once.
"""

__all__: list[str] = []
