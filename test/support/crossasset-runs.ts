/** The results of a run of the CrossAsset job, for tests that compare two of them bit for bit. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { crossasset } from "holdfast";
import type { JsonRecord } from "../../src/records/index.js";
import { readJsonLog } from "../../src/train/files/json-log.js";
import { inspectionFiles, readRun, readSteps } from "../../src/train/index.js";
import { repositoryRoot } from "./repository.js";
import { plainDevice } from "./short-process.js";
import { testEnvironment } from "./test-device.js";

/** The program, as installed. */
export const holdfastProgram = join(repositoryRoot, "dist/lib/main.js");

/** A model that trains in milliseconds, for tests of everything around it. */
export const tinySizes = { width: 32, layers: 1 } as const;

/** The same, as options of `holdfast train crossasset`. */
export const tinyModel: readonly string[] = ["--width", "32", "--layers", "1"];

const { PATH = "", TEST_HOLDFAST_SIZES = "" } = process.env;

/** The variables for the commands of the job: the same in all test files, so that they share one command host. */
export const jobEnvironment = { PATH, TEST_HOLDFAST_SIZES, ...plainDevice, ...testEnvironment } as const;

/** All results that follow from the weights; times differ from run to run. */
export function measuredIn(run: string): string {
  const { folds } = JSON.parse(readFileSync(join(run, "results.json"), "utf8")) as crossasset.JobResults;
  return JSON.stringify(
    folds.map(({ test: figures, perScale, epochs }) => [figures, perScale, epochs.map(({ loss }) => loss)]),
  );
}

/** The bytes of all tensors in the latest checkpoint: weights, moments, random state, normaliser. */
export function tensorsIn(run: string): string {
  const checkpoints = join(run, "checkpoints");
  const last = readdirSync(checkpoints)
    .filter((name) => name.endsWith(".safetensors"))
    .sort()
    .at(-1);
  const bytes = readFileSync(join(checkpoints, last ?? "none"));
  const header = Number(bytes.readBigUInt64LE(0));
  return bytes.subarray(8 + header).toString("latin1");
}

/** The contents of a run's logs and results without times: the same for a run that was ended and resumed. */
export function recordsIn(run: string): Readonly<Record<string, unknown>> {
  const { metrics, results } = readRun(run);
  const steps = readSteps(join(run, inspectionFiles.steps));
  const lines = (name: string) => readJsonLog(join(run, name)).records.map(untimed);
  return {
    metrics: metrics.map(untimed),
    results: results && untimed(results),
    steps: Object.fromEntries(
      Object.entries(untimed(steps)).map(([name, values]) => [name, [...(values as Float64Array)]]),
    ),
    plans: distinct(lines(inspectionFiles.plans)),
    incidents: lines(inspectionFiles.incidents),
  };
}

/** A plan's mode is autotuned, and reported again when it changes. */
const timings: ReadonlySet<string> = new Set([
  ...["seconds", "samplesPerSecond", "tokensPerSecond", "time", "hostMs", "at", "phases", "us"],
  ...["mode", "reason", "isRejected", "text"],
]);

/** The first of equal records, whatever their step. */
function distinct(records: readonly JsonRecord[]): readonly JsonRecord[] {
  const seen = new Set<string>();
  return records.filter(({ step: _, ...record }) => {
    const text = JSON.stringify(record);
    return !seen.has(text) && seen.add(text);
  });
}

/** A copy without timings, at any depth. */
function untimed<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(untimed) as Value;
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  const entries = Object.entries(value).filter(([name]) => !timings.has(name));
  return Object.fromEntries(entries.map(([name, item]) => [name, untimed(item)])) as Value;
}
