"""The web for the agent: `web_fetch` and `web_search`, both through `security.egress`.

`pages` decodes text and reads HTML in a child process (`page_worker`)."""
