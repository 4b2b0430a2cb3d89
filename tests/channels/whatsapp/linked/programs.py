"""Stand-ins for Node.js and npm: real programs of a few lines of shell."""

from __future__ import annotations

from pathlib import Path

NEW_ENOUGH = "v22.11.0"

BUILDS = """
case "$1" in
    ci) mkdir node_modules ;;
    run) mkdir dist && cat src/*.ts >dist/main.js ;;
esac
"""
"""An npm without network: it installs nothing, and builds by copying."""


def program(path: Path, script: str) -> Path:
    """Create a program that runs the shell `script`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def node_and_npm(folder: Path, npm: str = BUILDS, *, version: str = NEW_ENOUGH) -> Path:
    """Create a `node` that prints `version`, with an `npm` next to it, and return its path."""
    program(folder / "npm", npm)
    return program(folder / "node", f"echo {version}")


def helper_sources(folder: Path, content: str = "one") -> Path:
    """Create almost empty sources of a helper, as in the package."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "main.ts").write_text(f"// {content}\n")
    (folder / ".npmrc").write_text("omit-lockfile-registry-resolved=true\n")
    for name in ("tsconfig.json", "tsconfig.build.json"):
        (folder / name).write_text("{}\n")
    build = "mkdir dist && cp src/main.ts dist/main.js"
    (folder / "package.json").write_text(
        f'{{"name": "little", "version": "1.0.0", "scripts": {{"build": "{build}"}}}}\n'
    )
    (folder / "package-lock.json").write_text(
        '{"name": "little", "version": "1.0.0", "lockfileVersion": 3, "requires": true,'
        ' "packages": {"": {"name": "little", "version": "1.0.0"}}}\n'
    )
    return folder
