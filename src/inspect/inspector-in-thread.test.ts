/** The inspector in a thread next to a training: it answers while the training thread is busy. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { openDevice } from "../../test/support/devices.js";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { type Tensor, tensor } from "../tensor/index.js";
import { openInspectorInThread } from "./inspector-in-thread.js";

const { path } = writeSampleRun(makeFolder(), "a", { steps: 3 });
const { url, close } = await openInspectorInThread({ root: path });
after(close);

test("it answers while this thread is blocked", async () => {
  const answered = new Int32Array(new SharedArrayBuffer(4));
  const asks = `
    const { workerData: { address, answered } } = require("node:worker_threads");
    require("node:http").get(address, ({ statusCode }) => {
      Atomics.store(answered, 0, statusCode);
      Atomics.notify(answered, 0);
    });`;
  const address = new URL("/api/runs/a/steps", url).href;
  new Worker(asks, { eval: true, workerData: { address, answered } }).on("error", () => undefined);
  assert.notEqual(Atomics.wait(answered, 0, 0, 20_000), "timed-out");
  assert.equal(Atomics.load(answered, 0), 200);
});

test("an error at the start is the same as without the thread", async () => {
  await assert.rejects(openInspectorInThread({ root: "/no/such/folder" }), {
    code: "BAD_FILE",
    message: /is not a folder/,
  });
});

test("a training has the same losses while many clients never complete their requests", async () => {
  const device = openDevice();
  const train = (): number[] => {
    const weight = tensor(
      Array.from({ length: 64 }, (_, index) => index / 64),
      { device },
    );
    const step = device.compile((x: Tensor) => ({ loss: x.sub(0.5).square().mean() }));
    const losses = Array.from({ length: 10 }, (_, turn) => step(weight.mul(turn)).loss.item());
    step.close();
    return losses;
  };
  const alone = train();
  const { hostname, port } = new URL(url);
  const clients = Array.from({ length: effort({ quick: 100, thorough: 200 }) }, () =>
    connect(Number(port), hostname),
  );
  for (const client of clients) client.on("error", () => undefined);
  await Promise.all(clients.map((client) => once(client, "connect")));
  for (const client of clients) client.write("GET / HTTP/1.1\r\nHo");
  assert.deepEqual(train(), alone);
  const [answer] = (await once(get(new URL("/api/runs", url)), "response")) as [IncomingMessage];
  assert.equal(answer.resume().statusCode, 200);
  for (const client of clients) client.destroy();
});
