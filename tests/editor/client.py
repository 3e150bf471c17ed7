"""A language client as small as it gets: JSON-RPC over the server's stdin and stdout."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
URI = "file:///kernels/one.sass"


class Failed(Exception):
    """The server answered with an error."""


class Client:
    def __init__(self, *arguments, capabilities=None, options=None):
        command = [sys.executable, "-m", "turingas", "lsp", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=os.environ)  # fmt: skip
        self.number, self.version = 0, 0
        self.got: queue.Queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        given = {"processId": None, "rootUri": None, "capabilities": capabilities or {}}
        self.can = self.ask("initialize", given | {"initializationOptions": options})["capabilities"]
        self.tell("initialized", {})

    def _read(self):
        stream = self.process.stdout
        while line := stream.readline():
            size = int(line.split(b":")[1])
            while stream.readline().strip():
                pass
            self.got.put(json.loads(stream.read(size)))
        self.got.put(None)

    def _send(self, message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def tell(self, method, params):
        self._send({"method": method, "params": params})

    def _next(self):
        message = self.got.get(timeout=30)
        assert message is not None, "the server has ended"
        return message

    def ask(self, method, params):
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == self.number and "method" not in message:
                if "error" in message:
                    raise Failed(message["error"]["message"])
                return message["result"]

    def diagnostics(self):
        """Those that are published next."""
        while True:
            message = self._next()
            if message.get("method") == "textDocument/publishDiagnostics":
                return message["params"]["diagnostics"]

    def open(self, text, uri=URI):
        self.version += 1
        document = {"uri": uri, "languageId": "nvsass", "version": self.version, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics()

    def close(self, uri=URI):
        self.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
        assert self.diagnostics() == []

    def at(self, what, line, column, uri=URI, **more):
        where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
        return self.ask(f"textDocument/{what}", where | more)

    def of(self, what, uri=URI, **more):
        return self.ask(f"textDocument/{what}", {"textDocument": {"uri": uri}, **more})

    def end(self):
        self.ask("shutdown", None)
        self.tell("exit", None)
        return self.process.wait(timeout=30)
