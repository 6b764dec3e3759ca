"""The head's API port: the OpenAI API, the network's state, and the process that serves them."""

__all__: list[str] = []
