/** If the system rejects threads, fewer threads are used, with a warning. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Device, ones, stopOnSignals } from "holdfast";
import { openCpuDriver } from "holdfast/internals";
import { Recorder } from "../src/runtime/observe/recorder.js";
import { SharedStatus } from "../src/runtime/observe/shared-status.js";
import { startWatchdog } from "../src/runtime/observe/watchdog/index.js";
import { withoutThreads } from "./support/rejected-threads.js";

for (const [allowed, left] of [
  [0, 1],
  [2, 3],
] as const) {
  test(`the CPU driver continues with ${left} of 4 threads, and warns once`, async () => {
    const driver = openCpuDriver({ threads: 4 });
    const device = new Device("cpu", { driver, stallAfter: "off", print: () => {} });
    const x = ones([512, 512], { device });
    const { result, warnings } = await withoutThreads(
      () => [1, 2, 3].map(() => x.matmul(x).sum().item()),
      allowed,
    );
    device.close();
    driver.close();
    assert.deepEqual(result, [512 ** 3, 512 ** 3, 512 ** 3]);
    assert.equal(warnings.length, 1);
    assert.match(
      warnings[0] ?? "",
      new RegExp(
        `^HOLDFAST_FEWER_THREADS .*\\(EAGAIN\\)\\. Kernels run on ${left} of 4 threads\\. .*pids\\.max`,
      ),
    );
  });
}

test("stopOnSignals still aborts its signal without a second thread, and warns", async () => {
  const { result, warnings } = await withoutThreads(async () => {
    const stop = stopOnSignals();
    await stop.ready;
    stop.markRun("/nowhere");
    const aborted = once(stop.signal, "abort");
    process.kill(process.pid, "SIGTERM");
    await aborted;
    stop.close();
    return stop.signal.aborted;
  });
  assert.equal(result, true);
  assert.match(warnings.join(), /^HOLDFAST_SIGNALS The signal thread can't run \(.*EAGAIN/);
});

test("a run continues without the watchdog's thread, and says so on stderr", async (t) => {
  const printed: string[] = [];
  t.mock.method(process.stderr, "write", (text: string) => void printed.push(text));
  const recorder = new Recorder();
  const { result: watchdog } = await withoutThreads(() =>
    startWatchdog({
      ...{ sharedStatus: new SharedStatus(), recorder, labels: recorder.labels },
      ...{ stallAfterMs: 1000, reportDir: "/nowhere", onStall: "end" },
    }),
  );
  await watchdog.ready;
  watchdog.close();
  t.mock.restoreAll();
  assert.match(
    printed.join(""),
    /^holdfast: The watchdog's thread could not start \(EAGAIN\)\. The run continues/,
  );
});
