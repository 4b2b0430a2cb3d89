"""The web for the agent: `web_fetch` and `web_search`, both through `security.egress`.

`pages` finds the text in bytes and reads HTML in a child process (`page_worker`).
"""

from nanobot.tools.web.fetch import Addresses, WebFetch
from nanobot.tools.web.search import ProviderName, SearchSettings, WebSearch

__all__ = ["Addresses", "ProviderName", "SearchSettings", "WebFetch", "WebSearch"]
