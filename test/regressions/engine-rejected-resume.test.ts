/** S9: a resume with other settings was rejected, and the intact run then counted as failed. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { crossasset, type ErrorCode, HoldfastError } from "holdfast";
import {
  CheckpointStore,
  healthOf,
  inspectionFiles,
  RunFolder,
  runFiles,
  StepLog,
} from "../../src/train/index.js";
import { openDevice } from "../support/devices.js";
import { bytesIn } from "../support/folder-bytes.js";
import { makeFolder } from "../support/folders.js";
import { patternedCheckpoint } from "../support/patterned-checkpoint.js";
import { regressionRow } from "../support/regressions.js";
import { rejects } from "../support/rejects.js";

type Options = Parameters<typeof crossasset.openJobRun>[0];

const settings = { epochs: 3, lr: 0.001, bars: "market.csv", checksum: "0123456789abcdef", precision: "f32" };
const deadPid = spawnSync(process.execPath, ["-e", ""]).pid;
const lockFile = "lock.json";

/** A run that was stopped and whose process was then killed: it also has state that a resume would repair. */
function stoppedRun(): string {
  const path = join(makeFolder(), "run");
  const folder = RunFolder.create(path, { settings, device: "CPU" });
  for (const step of [2, 4, 6]) folder.appendMetrics({ step, loss: 1 / step });
  folder.noteProgress({ step: 6, of: 9 });
  folder.end({ state: "stopped", reason: "a signal", exitCode: 3 });
  appendFileSync(join(path, runFiles.metrics), '{"step":8,"lo');
  const store = new CheckpointStore(join(path, runFiles.checkpoints));
  for (const step of [2, 4]) {
    const { tensors, state } = patternedCheckpoint(step);
    store.save({ step, tensors, state: { ...state, model: "CrossAsset", settings } });
  }
  const steps = new StepLog(join(path, inspectionFiles.steps));
  for (const step of [1, 2, 3, 4, 5, 6])
    steps.append({ step, time: step, loss: 1, lr: 0.001, fold: 0, epoch: 0, samples: 32, hostMs: 1 });
  steps.close();
  writeFileSync(join(path, `status.json.${deadPid}-${"0".repeat(36)}.part`), "{");
  writeFileSync(join(path, lockFile), JSON.stringify({ pid: deadPid, host: hostname() }));
  return path;
}

function latestCheckpoint(path: string): string {
  const folder = join(path, runFiles.checkpoints);
  return join(folder, readdirSync(folder).sort().at(-1) ?? "none");
}

function damage(file: string): void {
  const bytes = readFileSync(file);
  bytes[bytes.length - 9]! ^= 1;
  writeFileSync(file, bytes);
}

interface Rejection {
  readonly code: ErrorCode;
  /** What is wrong with the run. */
  readonly damage?: (path: string) => void;
  /** The requested settings. */
  readonly settings?: Partial<Options>;
}

const rejections: Readonly<Record<string, Rejection>> = {
  "another setting": { code: "BAD_SETTING", settings: { settings: { ...settings, lr: 0.002 } } },
  "an extra setting": { code: "BAD_SETTING", settings: { settings: { ...settings, dropout: 0.1 } } },
  "other data": {
    code: "BAD_SETTING",
    settings: { settings: { ...settings, checksum: "fedcba9876543210" } },
  },
  "another precision": { code: "BAD_SETTING", settings: { settings: { ...settings, precision: "bf16" } } },
  "a living process owns it": {
    code: "RUN_LOCKED",
    damage: (path) => writeFileSync(join(path, lockFile), JSON.stringify({ pid: 1, host: hostname() })),
  },
  "a damaged checkpoint": { code: "BAD_FILE", damage: (path) => damage(latestCheckpoint(path)) },
  "a truncated checkpoint": {
    code: "BAD_FILE",
    damage: (path) =>
      writeFileSync(latestCheckpoint(path), readFileSync(latestCheckpoint(path)).subarray(0, 99)),
  },
  "no intact checkpoint at all": {
    code: "BAD_FILE",
    settings: { allowOlder: true },
    damage: (path) => {
      const folder = join(path, runFiles.checkpoints);
      for (const name of readdirSync(folder)) damage(join(folder, name));
    },
  },
  "a checkpoint of another model": {
    code: "BAD_STATE",
    damage: (path) => new CheckpointStore(join(path, runFiles.checkpoints)).save(patternedCheckpoint(8)),
  },
  "a damaged run.json": {
    code: "BAD_FILE",
    damage: (path) => writeFileSync(join(path, runFiles.run), '{"settings":'),
  },
  "a step log of another kind": {
    code: "BAD_FILE",
    settings: { recordedDevice: openDevice({ memory: "64MiB" }) },
    damage: (path) => {
      rmSync(join(path, runFiles.checkpoints), { recursive: true });
      writeFileSync(join(path, inspectionFiles.steps), "x".repeat(2000));
    },
  },
};

/** How a resume is tried. */
type Resume = (options: Options) => void;

regressionRow<Resume>({
  row: "S9",
  rule: "a rejected resume leaves every byte of the run unchanged, and its health",
  sound: (options) => void crossasset.openJobRun(options),
  faults: {
    "the status says running before the settings are compared": (options) => {
      const folder = RunFolder.open(options.path);
      folder.beat();
      folder.close();
      crossasset.openJobRun(options);
    },
    "the lock is taken before the settings are compared": (options) => {
      RunFolder.open(options.path).close();
      crossasset.openJobRun(options);
    },
    "metrics after the checkpoint are dropped before it is read": (options) => {
      const folder = RunFolder.open(options.path);
      folder.dropMetricsAfter(4);
      folder.close();
      crossasset.openJobRun(options);
    },
  },
  check: (resume) => {
    for (const [what, { code, damage, settings: asked = {} }] of Object.entries(rejections)) {
      const path = stoppedRun();
      damage?.(path);
      const before = bytesIn(path);
      rejects(code, () => resume({ path, settings, device: "CPU", ...asked }));
      assert.deepEqual(bytesIn(path), before, what);
      assert.equal(healthOf(path).state, "stopped", what);
    }
  },
});

/** Failures between opening a run and its first event: a port in use, a folder that can't be created. */
type Fail = (run: crossasset.JobRun, error: Error) => void;

regressionRow<Fail>({
  row: "S9",
  rule: "a resume that fails before the job has begun leaves every byte of the run unchanged",
  sound: (run, error) => run.fail(error, 4),
  faults: {
    "every error counts as the run's": (run) => run.end(undefined, 4),
  },
  check: (fail) => {
    const path = stoppedRun();
    for (const name of [lockFile, runFiles.checkpoints]) rmSync(join(path, name), { recursive: true });
    const before = bytesIn(path);
    const recordedDevice = openDevice({ memory: "64MiB" });
    const run = crossasset.openJobRun({ path, settings, device: "CPU", recordedDevice });
    fail(run, new HoldfastError("BAD_SETTING", "Metrics can't be served on port 80."));
    assert.deepEqual(bytesIn(path), before);
  },
});
