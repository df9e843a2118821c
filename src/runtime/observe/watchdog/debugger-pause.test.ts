/** Detects from the sockets in /proc whether this process can be debugged. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { isListening } from "./debugger-pause.js";

const skip = existsSync("/proc/self/net/tcp") ? false : "needs /proc";

test("a process is listening while a server is open", { skip }, async () => {
  assert.equal(isListening(), false);
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  assert.equal(isListening(), true);
  server.close();
  await once(server, "close");
  assert.equal(isListening(), false);
});

test("without /proc a debugger is possible", () => {
  assert.equal(isListening("/no/such/folder"), true);
});
