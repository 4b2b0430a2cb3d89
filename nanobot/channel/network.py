"""Why a request to a platform failed, for people: a library's class names say little to them."""

from __future__ import annotations

_WORDS = {
    "ConnectError": "no connection",
    "ConnectTimeout": "no connection in time",
    "PoolTimeout": "no connection in time",
    "ProxyError": "the proxy does not let it through",
    "ReadError": "the connection broke",
    "ReadTimeout": "no answer in time",
    "RemoteProtocolError": "the connection broke",
    "WriteError": "the connection broke",
    "WriteTimeout": "it could not be sent in time",
}


def fault_in_words(error: Exception, said: str) -> str:
    """What an error of the HTTP client means, with what it `said`, which must hold no secret."""
    name = type(error).__name__
    words = _WORDS.get(name, name)
    return f"{words} ({said})" if said else words
