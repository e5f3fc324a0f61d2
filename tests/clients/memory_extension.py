"""A VS Code extension for tests: a file system of its own, `memfs:`, as a virtual workspace has one."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

FILE = "def add(a, b):\n    return a + b\n"
#: the query of a window on its one folder, with its one file open; a workspace file the editor may read too late
FAR = {"folder": "memfs:/far", "payload": json.dumps([["openFile", "memfs:/far/far.py"]])}

_MANIFEST = {
    "name": "memory",
    "publisher": "test",
    "version": "0.0.1",
    "engines": {"vscode": "^1.100.0"},
    "main": "./extension.js",
    "activationEvents": ["onFileSystem:memfs"],
    "capabilities": {"virtualWorkspaces": True, "untrustedWorkspaces": {"supported": True}},
}
_SOURCE = """
const vscode = require('vscode');
const file = new TextEncoder().encode(%s);
const entries = { '/': [['far', 2]], '/far': [['far.py', 1]] };

exports.activate = (context) => {
  const nothing = new vscode.EventEmitter();
  const readOnly = () => { throw vscode.FileSystemError.NoPermissions(); };
  const stat = (uri) => {
    const folder = uri.path in entries;
    if (!folder && uri.path !== '/far/far.py') {
      throw vscode.FileSystemError.FileNotFound(uri);
    }
    return { type: folder ? 2 : 1, ctime: 0, mtime: 0, size: folder ? 0 : file.length };
  };
  const provider = {
    onDidChangeFile: nothing.event,
    watch: () => new vscode.Disposable(() => undefined),
    stat,
    readDirectory: (uri) => entries[uri.path] ?? [],
    readFile: (uri) => { stat(uri); return file; },
    writeFile: readOnly, createDirectory: readOnly, delete: readOnly, rename: readOnly,
  };
  context.subscriptions.push(vscode.workspace.registerFileSystemProvider('memfs', provider, { isCaseSensitive: true }));
};
"""
_PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata><Identity Language="en-US" Id="memory" Version="0.0.1" Publisher="test"/></Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation><Dependencies/>
<Assets><Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/></Assets>
</PackageManifest>
"""
_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension=".json" ContentType="application/json"/><Default Extension=".js" ContentType="text/javascript"/>
<Default Extension=".vsixmanifest" ContentType="text/xml"/></Types>
"""


def memory_extension(target: Path) -> Path:
    """The packed extension."""
    with zipfile.ZipFile(target, "w") as package:
        package.writestr("[Content_Types].xml", _TYPES)
        package.writestr("extension.vsixmanifest", _PACKAGE)
        package.writestr("extension/package.json", json.dumps(_MANIFEST))
        package.writestr("extension/extension.js", _SOURCE % json.dumps(FILE))
    return target
