/** The inspector beside a training: it answers while the thread that trains does nothing but train. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { makeFolder } from "../../test/support/folders.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { openInspectorAside } from "./aside.js";

test("it answers while this thread is blocked", async () => {
  const { path } = writeSampleRun(makeFolder(), "a", { steps: 3 });
  const { url, close } = await openInspectorAside({ root: path });
  after(close);
  const answered = new Int32Array(new SharedArrayBuffer(4));
  const asks = `
    const { workerData: { address, answered } } = require("node:worker_threads");
    fetch(address).then(({ status }) => {
      Atomics.store(answered, 0, status);
      Atomics.notify(answered, 0);
    });`;
  const address = new URL("/api/runs/a/steps", url).href;
  new Worker(asks, { eval: true, workerData: { address, answered } }).on("error", () => undefined);
  assert.notEqual(Atomics.wait(answered, 0, 0, 20_000), "timed-out");
  assert.equal(Atomics.load(answered, 0), 200);
});

test("what keeps it from opening is told as it would be here", async () => {
  await assert.rejects(openInspectorAside({ root: "/no/such/folder" }), {
    code: "BAD_FILE",
    message: /is no folder/,
  });
});
