"""What a person sees: values of the library as tables, messages and JSON documents. Nothing here decides or fetches."""

__all__: list[str] = []
