"""Tools of other people's programs: MCP servers, local ones and ones on the network.

Invariant: a program runs shut in unless the owner says otherwise, and is started when it is needed;
what it says is bounded before it is parsed and is never trusted; a tool whose description is not
the one the owner has accepted is not offered. The SDK is imported when a server is started.

`values` are what servers and tools are and what was accepted, `connections` reach a server,
`server` keeps one alive, `servers` keeps them all.
"""
