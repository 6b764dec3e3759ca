"""The head's dashboard: a live page in a browser, on an event loop of its own. NiceGUI is imported here only."""
