/** The CrossAsset job as a cluster sees it: phases and a heartbeat in its status, and its metrics over HTTP. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { crossasset } from "holdfast";
import { type CommandResult, startCommandHost } from "../support/command-host.js";
import { jobEnvironment, tinyModel, tinySizes } from "../support/crossasset-runs.js";
import { openDevice } from "../support/devices.js";
import { readExposition } from "../support/exposition-format.js";
import { makeFolder } from "../support/folders.js";
import { testDevice } from "../support/test-device.js";

const onDevice = { skip: testDevice === "emulator" && "minutes of training on an emulator" };

describe("a job that is watched", onDevice, () => {
  const folder = makeFolder();
  const device = openDevice({ memory: "2GiB", threads: 1 });
  const bars = crossasset.generateBars({ bars: 9000, seed: 42 });
  /** More than 256 samples, so that their features take two chunks. */
  const settings: crossasset.JobSettings = {
    ...{ ...crossasset.defaultSettings, stride: 4, folds: 1, epochs: 1, batch: 45 },
    ...tinySizes,
  };
  const job = { device, bars, source: "the generator", cacheFolder: join(folder, "cache"), settings };
  let whole: crossasset.JobResults | undefined;

  test("shows each phase in its status before the phase begins, shows none during steps, and sends heartbeats in long phases", async () => {
    const path = join(folder, "whole");
    const run = crossasset.openJobRun({ path, settings: {}, device: "x" });
    const status = () => JSON.parse(readFileSync(join(path, "status.json"), "utf8"));
    const beats: string[] = [];
    run.beat = () => void beats.push(status().phase);
    const told: string[] = [];
    whole = await crossasset.runJob({
      ...{ ...job, run },
      listen: (event) => {
        if (event.kind === "phase") {
          assert.equal(status().phase, event.phase);
          told.push(event.phase);
        } else if (event.kind === "step") {
          assert.equal(status().phase, undefined);
          if (told.at(-1) !== "steps") told.push("steps");
        }
      },
    });
    assert.deepEqual(told, ["preparing features", "preparing a fold", "compiling", "steps", "testing"]);
    const { trainSamples = 0, testSamples = 0 } = whole?.folds[0] ?? {};
    const beatsIn = (phase: string): number => beats.filter((one) => one === phase).length;
    assert.equal(beatsIn("preparing features"), 2, "more than 256 samples, in chunks of 256");
    assert.equal(beatsIn("testing"), Math.ceil(testSamples / 45));
    assert.equal(beats.length, beatsIn("preparing features") + beatsIn("testing"));
    run.end(whole, 0);
    const { phase, figures, step } = status();
    assert.equal(phase, undefined);
    assert.equal(figures.samples, trainSamples, "one epoch of one fold");
    assert.deepEqual([figures.skipped, step], [0, Math.ceil(trainSamples / 45)]);
    assert.ok(figures.usedBytes > 0 && figures.budgetBytes === 2 * 2 ** 30);
  });

  test("stops on a signal during the test of a fold; a resumed job repeats the test and gets the same results", async () => {
    const runCut = async (endsAtTest: boolean): Promise<crossasset.JobResults | undefined> => {
      const halt = new AbortController();
      const run = crossasset.openJobRun({ path: join(folder, "cut"), settings: {}, device: "x" });
      const results = await crossasset.runJob({
        ...{ ...job, run, signal: halt.signal },
        listen: (event) => {
          if (endsAtTest && event.kind === "phase" && event.phase === "testing")
            setImmediate(() => halt.abort());
        },
      });
      run.end(results, results ? 0 : 3);
      return results;
    };
    assert.equal(await runCut(true), undefined);
    const goneOn = await runCut(false);
    const figures = (results: crossasset.JobResults | undefined) =>
      results?.folds.map(({ test: found, perScale, epochs }) => [
        found,
        perScale,
        epochs.map(({ loss }) => loss),
      ]);
    assert.deepEqual(figures(goneOn), figures(whole));
    assert.ok(whole);
  });
});

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

test("a run that is asked to serves its metrics while it trains, and says where", onDevice, async () => {
  const port = await freePort();
  const folder = makeFolder();
  const host = startCommandHost(folder, jobEnvironment);
  after(() => host.close());
  const args = [
    ...["train", "crossasset", "--device", "cpu", "--generate", "9000", "--stride", "40", "--batch", "16"],
    ...["--epochs", "99", ...tinyModel, "--metrics-port", String(port), "--out", "run"],
  ];
  const page = `http://127.0.0.1:${port}`;
  let ended: Promise<CommandResult> | undefined;
  const first = await new Promise<string>((onSignal) => {
    ended = host.run(args, { signal: { at: "\n" }, onSignal });
  });
  try {
    assert.match(first, new RegExp(`^metrics {2}${page}/metrics\n`));
    // Until the first losses are known; a run that never comes so far ends, and then the connection is rejected.
    for (;;) {
      await setTimeout(20);
      const answer = await fetch(`${page}/metrics`);
      const text = await answer.text();
      if (answer.status !== 200) continue;
      const metrics = readExposition(text);
      // Losses come to the host some steps late.
      if (!metrics.has("holdfast_loss")) continue;
      assert.ok(
        (metrics.get("holdfast_loss")?.value ?? 0) > 0 && (metrics.get("holdfast_step")?.value ?? 0) > 0,
      );
      assert.equal(metrics.get("holdfast_run_info")?.labels["state"], "running");
      break;
    }
    const health = await fetch(`${page}/healthz`);
    assert.match(`${health.status} ${await health.text()}`, /^200 alive: It is at step /);
  } finally {
    host.process.kill("SIGTERM");
  }
  assert.equal((await ended)?.status, 3);
  await assert.rejects(fetch(`${page}/metrics`), "the server ends with the run");
});
