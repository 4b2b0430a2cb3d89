"""The built-in offline model: answers by rules, with no key and no network.

`model` is the provider; `turn` decides the next step; `understand` finds what the person wants;
`remembering` and `files` do it with tools, as stories (`steps`); `recall` answers by overlap;
`facts` and `grammar` keep the memory; `summarise` consolidates.
"""

from nanobot.providers.offline.model import OfflineModel

__all__ = ["OfflineModel"]
