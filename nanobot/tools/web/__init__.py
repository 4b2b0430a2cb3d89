"""The web for the agent: `web_fetch` and `web_search`, both through `security.egress`.

`known` decides which addresses need nobody's word (pure); `pages` reads HTML in a child process,
`charsets` finds the text in bytes, `providers` knows the search engines.
"""

from nanobot.tools.web.fetch import WebFetch
from nanobot.tools.web.search import Addresses, ProviderName, SearchSettings, WebSearch

__all__ = ["Addresses", "ProviderName", "SearchSettings", "WebFetch", "WebSearch"]
