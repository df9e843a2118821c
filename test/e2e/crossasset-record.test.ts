/** What a CrossAsset run leaves for those who look at it, and the page and the curves that it offers while it goes on. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { exitCodes } from "../../src/errors/index.js";
import { viewAsText } from "../../src/inspect/index.js";
import { readInspection, readRun, readSteps } from "../../src/train/index.js";
import { readMetricsPage } from "../../src/train/metrics-page.js";
import { type CommandHost, startCommandHost } from "../support/command-host.js";
import { jobEnvironment, measuredIn, tensorsIn, tinyModel } from "../support/crossasset-runs.js";
import { readEventFile } from "../support/event-file.js";
import { makeFolder } from "../support/folders.js";
import { testDevice } from "../support/test-device.js";

const skip = testDevice === "emulator" && "minutes of training on an emulator";
/** Two folds of 1 and 2 batches, which have different numbers of rows; two epochs each. */
const job = [
  ...["train", "crossasset", "--generate", "9000", "--stride", "40"],
  ...["--batch", "12", "--epochs", "2"],
];

/** Enough memory for the weights, and not for their gradients. */
const short =
  testDevice === "cpu"
    ? { args: [...tinyModel, "--memory", "1280KiB"], env: { HOLDFAST_STAGING: "512KiB" } }
    : { args: ["--memory", "60MiB"], env: {} };

describe("a run's record", { skip }, () => {
  // The program takes a second to load: one process runs all commands.
  let host: CommandHost;
  before(() => {
    host = startCommandHost(process.cwd(), jobEnvironment);
  });
  after(() => host.close());

  test("is served during the run, and at its end agrees with its metrics, its plans and its curves", async () => {
    const folder = makeFolder();
    const [out, boards] = [join(folder, "first"), join(folder, "boards")];
    const looks = ["--profile", "--test-epochs", "--ui", "--tensorboard", boards];
    const args = [...job, ...tinyModel, "--out", out, ...looks];
    let answer: Promise<Response> | undefined;
    const ended = await host.run(args, {
      signal: { at: "inspect  http" },
      onSignal: (printed) => {
        const [, url = ""] = /inspect {2}(http\S+)/.exec(printed) ?? [];
        answer = fetch(new URL("/api/runs", url));
      },
    });
    assert.equal(ended.status, 0, ended.stdout + ended.stderr);
    const runs = (await (await answer)?.json()) as { readonly name: string; readonly isLive: boolean }[];
    assert.deepEqual([runs[0]?.name, runs[0]?.isLive], ["first", true]);

    const { metrics } = readRun(out);
    const { step, loss, fold, epoch, samples } = readSteps(join(out, "steps.bin"));
    assert.deepEqual(
      [...step],
      Array.from({ length: step.length }, (_, index) => index + 1),
    );
    for (const record of metrics.filter((one) => one["epoch"] !== undefined)) {
      let [sum, rows] = [0, 0];
      for (const [index, count] of samples.entries()) {
        if (fold[index] !== record["fold"] || epoch[index] !== record["epoch"]) continue;
        sum += (loss[index] ?? 0) * count;
        rows += count;
      }
      assert.equal(sum / rows, record["loss"], "an epoch's loss is the mean over its rows");
    }
    for (const tested of metrics.filter((one) => one["test"] !== undefined)) {
      const last = metrics.findLast((one) => one["fold"] === tested["fold"] && one["epoch"] !== undefined);
      const { accuracy, loss } = tested["test"] as Readonly<Record<string, number>>;
      assert.deepEqual(last?.["figures"], { accuracy, loss }, "the last epoch's test is the fold's");
    }
    const { status } = readRun(out);
    const pace = metrics.findLast((one) => one["epoch"] !== undefined)?.["samplesPerSecond"];
    assert.equal(status?.figures?.samplesPerSecond, pace, "the status ends with the last epoch's speed");
    assert.ok(readMetricsPage(out)?.includes(`holdfast_samples_per_second ${pace}\n`));
    assert.ok(
      viewAsText(out)
        .print()
        .includes(`speed     ${Math.round(Number(pace)).toLocaleString("en")} samples/s`),
    );
    const plain = join(folder, "plain");
    assert.equal((await host.run([...job, ...tinyModel, "--out", plain, "--quiet"])).status, 0);
    assert.equal(measuredIn(plain), measuredIn(out), "looking on changes nothing");
    assert.equal(tensorsIn(plain), tensorsIn(out), "nor any weight");

    const { plans, memory, incidents, messages } = readInspection(out);
    assert.deepEqual([incidents, messages], [[], []]);
    assert.ok(plans.length > 0 && memory.length > 0);
    assert.ok(plans.every(({ calls }) => calls.some(({ us }) => us !== undefined && us > 0)));

    const [events] = readdirSync(join(boards, "first"));
    const points = readEventFile(readFileSync(join(boards, "first", events ?? "none")));
    const epochLosses = points.filter(({ tag }) => tag?.startsWith("epoch/loss/")).map(({ value }) => value);
    const wanted = metrics.flatMap((one) =>
      one["epoch"] === undefined ? [] : [Math.fround(Number(one["loss"]))],
    );
    assert.deepEqual(epochLosses, wanted);
    assert.ok(points.some(({ tag }) => tag === "test/accuracy"));
  });

  test("has an incident for a run that exceeded its memory, with the table of holders", async () => {
    const out = join(makeFolder(), "short");
    const { status } = await host.run([...job, ...short.args, "--out", out], { env: short.env });
    assert.equal(status, exitCodes.failed.code);
    const { incidents } = readInspection(out);
    assert.equal(incidents.length, 1);
    assert.equal(incidents[0]?.kind, "over budget");
    assert.match(incidents[0]?.message ?? "", /^OUT_OF_BUDGET/);
    assert.match(incidents[0]?.details ?? "", /weights/);
  });

  test("has stall reports in it, as incidents, and a damaged one as a message", () => {
    const folder = makeFolder();
    const report = {
      ...{ format: "holdfast stall report 1", time: "2026-01-02T03:04:05.000Z", pid: 9, noticedBy: "thread" },
      what: {
        ...{ kind: "stall", phase: "step", number: 7, call: "launch", op: "matmul", step: 7 },
        phases: [{ title: "step 7", openMs: 31_000 }],
        ...{ elapsedMs: 31_000, limitMs: 30_000 },
      },
      ...{ ending: "exit", notes: [], budget: null, arena: null, events: [], process: { threads: [] } },
      versions: { node: "v20", platform: "linux", arch: "x64" },
    };
    writeFileSync(join(folder, "holdfast-stall-9-20260102T030405.000Z.json"), JSON.stringify(report));
    writeFileSync(join(folder, "holdfast-stall-9-20260102T030406.000Z.json"), '{"format":');
    const { incidents, messages } = readInspection(folder);
    assert.deepEqual(
      incidents.map(({ kind, step, time, phases }) => [kind, step, new Date(time).toISOString(), phases]),
      [["stall", 7, "2026-01-02T03:04:05.000Z", ["step 7 is running for 31s"]]],
    );
    assert.match(
      incidents[0]?.message ?? "",
      /driver call launch \(last op matmul\) has not returned for 31s/,
    );
    assert.equal(messages.length, 1);
    assert.match(messages[0] ?? "", /holdfast-stall-9-20260102T030406\.000Z\.json can't be read/);
  });
});
