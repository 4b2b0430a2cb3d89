"""Tools of third-party programs: local and remote MCP servers.

Invariant: a program runs in the sandbox unless the owner disables it, and starts when it is needed.
Its output is limited before parsing and never trusted. A tool is offered only while its description
equals the accepted one. The SDK is imported when a server starts.

`values` defines servers, tools and accepted descriptions, `connections` reaches a server, `server`
keeps one running, `servers` manages all."""
