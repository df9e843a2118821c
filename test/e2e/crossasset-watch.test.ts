/** The CrossAsset job as a cluster sees it: phases and a heartbeat in its status, and its metrics over HTTP. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { crossasset } from "holdfast";
import { startCommandHost } from "../support/command-host.js";
import { tinyModel, tinySizes } from "../support/crossasset-runs.js";
import { openDevice } from "../support/devices.js";
import { readExposition } from "../support/exposition-format.js";
import { makeFolder } from "../support/folders.js";
import { repositoryRoot } from "../support/repository.js";
import { testDevice } from "../support/test-device.js";

const main = join(repositoryRoot, "dist/lib/main.js");
// The program takes a second to load: one process runs the commands that are rejected.
const host = startCommandHost(process.cwd(), process.env);
after(() => host.close());
const onDevice = { skip: testDevice === "emulator" && "minutes of training on an emulator" };

test(
  "every phase stands in the status before it begins, none while steps are made, and the heart beats in the long ones",
  onDevice,
  async () => {
    const path = join(makeFolder(), "run");
    const run = crossasset.openJobRun({ path, settings: {}, device: "x" });
    const status = () => JSON.parse(readFileSync(join(path, "status.json"), "utf8"));
    const beats: string[] = [];
    run.beat = () => void beats.push(status().phase);
    const told: string[] = [];
    const bars = crossasset.generateBars({ bars: 9000, seed: 42 });
    const results = await crossasset.runJob({
      ...{ device: openDevice({ memory: "2GiB" }), bars, source: "the generator", cacheFolder: "off", run },
      settings: { ...crossasset.defaultSettings, stride: 4, folds: 1, epochs: 1, batch: 32, ...tinySizes },
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
    const { trainSamples = 0, testSamples = 0 } = results?.folds[0] ?? {};
    const beatsIn = (phase: string): number => beats.filter((one) => one === phase).length;
    assert.equal(beatsIn("preparing features"), 2, "more than 256 samples, in chunks of 256");
    assert.equal(beatsIn("testing"), Math.ceil(testSamples / 32));
    assert.equal(beats.length, beatsIn("preparing features") + beatsIn("testing"));
    run.end(results, 0);
    const { phase, figures, step } = status();
    assert.equal(phase, undefined);
    assert.equal(figures.samples, trainSamples, "one epoch of one fold");
    assert.deepEqual([figures.skipped, step], [0, Math.ceil(trainSamples / 32)]);
    assert.ok(figures.usedBytes > 0 && figures.budgetBytes === 2 * 2 ** 30);
  },
);

test(
  "a signal is heard while a fold is tested, and who goes on tests again and finds the same",
  onDevice,
  async () => {
    const bars = crossasset.generateBars({ bars: 9000, seed: 42 });
    const sizes = { stride: 20, folds: 1, epochs: 1, batch: 9, ...tinySizes };
    const settings = { ...crossasset.defaultSettings, ...sizes };
    const runIn = async (path: string, endsAtTest: boolean): Promise<crossasset.JobResults | undefined> => {
      const halt = new AbortController();
      const run = crossasset.openJobRun({ path, settings: {}, device: "x" });
      const results = await crossasset.runJob({
        ...{
          device: openDevice({ memory: "2GiB" }),
          bars,
          source: "the generator",
          cacheFolder: "off",
          run,
          settings,
        },
        signal: halt.signal,
        listen: (event) => {
          if (endsAtTest && event.kind === "phase" && event.phase === "testing")
            setImmediate(() => halt.abort());
        },
      });
      run.end(results, results ? 0 : 3);
      return results;
    };
    const folder = makeFolder();
    const whole = await runIn(join(folder, "whole"), false);
    assert.equal(await runIn(join(folder, "cut"), true), undefined);
    const goneOn = await runIn(join(folder, "cut"), false);
    const figures = (results: crossasset.JobResults | undefined) =>
      results?.folds.map(({ test: found, perScale, epochs }) => [
        found,
        perScale,
        epochs.map(({ loss }) => loss),
      ]);
    assert.deepEqual(figures(goneOn), figures(whole));
    assert.ok(whole);
  },
);

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

const trainOn = (port: number, folder: string): string[] => [
  ...[
    "train",
    "crossasset",
    "--device",
    "cpu",
    "--generate",
    "9000",
    "--stride",
    "20",
    "--batch",
    "9",
    "--epochs",
    "99",
    ...tinyModel,
  ],
  ...["--metrics-port", String(port), "--out", join(folder, "run")],
];

test("a run that is asked to serves its metrics while it trains, and says where", onDevice, async () => {
  const port = await freePort();
  const folder = makeFolder();
  const child = spawn(process.execPath, [main, ...trainOn(port, folder)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  try {
    const [first] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string];
    assert.match(first, new RegExp(`^metrics {2}http://127\\.0\\.0\\.1:${port}/metrics\n`));
    // Until the first losses are known; a run that never comes so far ends, and then the connection is rejected.
    for (;;) {
      const page = await fetch(`http://127.0.0.1:${port}/metrics`);
      const text = await page.text();
      if (page.status !== 200) continue;
      const metrics = readExposition(text);
      // Losses come to the host some steps late.
      if (!metrics.has("holdfast_loss")) continue;
      assert.ok(
        (metrics.get("holdfast_loss")?.value ?? 0) > 0 && (metrics.get("holdfast_step")?.value ?? 0) > 0,
      );
      assert.equal(metrics.get("holdfast_run_info")?.labels["state"], "running");
      break;
    }
    const health = await fetch(`http://127.0.0.1:${port}/healthz`);
    assert.match(`${health.status} ${await health.text()}`, /^200 alive: It is at step /);
  } finally {
    child.kill("SIGTERM");
  }
  const [code] = (await ended) as [number | null];
  assert.equal(code, 3, "the server is no reason to go on");
});

test("an occupied port ends the command with one line before anything starts", async () => {
  const holder = createServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  const folder = makeFolder();
  const { status, stdout, stderr } = await host.run(trainOn(port, folder));
  holder.close();
  assert.deepEqual([status, stdout], [1, ""]);
  assert.match(
    stderr,
    /^holdfast: BAD_SETTING: Metrics can't be served on 127\.0\.0\.1, port \d+: EADDRINUSE\. .*\n$/,
  );
  assert.equal(existsSync(join(folder, "run")), false);
});

test("an invalid port, and a host without a port, are rejected", async () => {
  const rejection = (...args: readonly string[]) => host.run(["train", "crossasset", ...args]);
  for (const port of ["0", "65536"]) {
    const { status, stderr } = await rejection("--metrics-port", port);
    assert.equal(status, 2);
    assert.match(stderr, /--metrics-port.*whole number from 1 to 65535/);
  }
  const { status, stderr } = await rejection("--metrics-host", "0.0.0.0");
  assert.equal(status, 4);
  assert.match(stderr, /^holdfast: BAD_ARGUMENT: --metrics-host 0\.0\.0\.0 needs a port/);
});
