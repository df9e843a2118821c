/**
 * `npm run bench:gpu -- --only start`: from the start of a process to the end of CrossAsset's first training
 * step, with an empty kernel cache and with a full one, each in its own process, phase by phase.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { readOptions } from "../../test/support/command-line.js";
import { type CountedDriver, countCalls } from "./counted-driver.js";
import { commonArguments, commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";
import { makeRows, median, Training } from "./training.js";

/** Milliseconds since 1970, on the clock that both processes share. */
const now = (): number => performance.timeOrigin + performance.now();
const importedAt = now();

const options = readOptions(import.meta.url, {
  ...commonOptions,
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "4096" },
  cold: { type: "string", default: "3" },
  warm: { type: "string", default: "5" },
  precision: { type: "string", default: "tf32" },
  /** True in the measured process. */
  child: { type: "boolean", default: false },
});
const targetSeconds = { cold: 10, warm: 2 } as const;

interface Phases {
  /** The time at the end of the step. */
  readonly endedAt: number;
  /** Each relative to the one before, in milliseconds. */
  readonly node: number;
  readonly imports: number;
  readonly device: number;
  readonly model: number;
  readonly step: number;
  /** Fractions of the last two. */
  readonly compiled: number;
  readonly cached: number;
  readonly loadMs: number;
  readonly gemms: number;
  readonly gemmMs: number;
  readonly copyMs: number;
  readonly bytesUp: number;
}

/** The measured process: all work of a training program until its first step ends. */
function startOnce(): Phases {
  // Data exists before a program starts, so generating it does not count.
  const madeFrom = now();
  const rows = makeRows(count("rows", options.rows), "random");
  const making = now() - madeFrom;
  const counted: { calls?: CountedDriver } = {};
  const openedFrom = now();
  const gpu = openGpu(options, {
    device: { precision: options.precision as "f32" | "tf32" | "bf16" },
    wrap: (driver) => {
      counted.calls = countCalls(driver);
      return counted.calls.driver;
    },
  });
  const openedAt = now();
  const training = new Training(gpu.device, rows, { batch: count("batch", options.batch) });
  gpu.device.runtime.synchronize();
  const placedAt = now();
  training.steps(1);
  const endedAt = now();
  const {
    loadMs = 0,
    algorithms = 0,
    algorithmMs = 0,
    copyMs = 0,
    bytesUp = 0,
  } = counted.calls?.counts ?? {};
  const phases: Phases = {
    endedAt: endedAt - making,
    node: performance.timeOrigin,
    imports: importedAt - performance.timeOrigin,
    device: openedAt - openedFrom,
    model: placedAt - openedAt,
    step: endedAt - placedAt,
    ...gpu.driver.compiled,
    loadMs,
    gemms: algorithms,
    gemmMs: algorithmMs,
    copyMs,
    bytesUp,
  };
  gpu.close();
  return phases;
}

interface Start extends Phases {
  readonly totalMs: number;
}

function measure(cache: string): Start {
  const args = [
    "--child",
    "--batch",
    options.batch,
    "--rows",
    options.rows,
    "--precision",
    options.precision,
  ];
  const startedAt = now();
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    [fileURLToPath(import.meta.url), ...args, ...commonArguments({ ...options, cache })],
    { encoding: "utf8", timeout: 300_000 },
  );
  if (status !== 0) throw new Error(`The measured process ended with ${status}:\n${stderr}`);
  const phases = JSON.parse(stdout.trim().split("\n").at(-1)!) as Phases;
  return { ...phases, node: phases.node - startedAt, totalMs: phases.endedAt - startedAt };
}

const columns: readonly (readonly [string, (start: Start) => string])[] = [
  ["total", ({ totalMs }) => totalMs.toFixed(0)],
  ["Node", ({ node }) => node.toFixed(0)],
  ["imports", ({ imports }) => imports.toFixed(0)],
  ["open device", ({ device }) => device.toFixed(0)],
  ["model and data", ({ model }) => model.toFixed(0)],
  ["first step", ({ step }) => step.toFixed(0)],
  ["│ kernels: compiled", ({ compiled }) => `│ ${compiled}`],
  ["cached", ({ cached }) => String(cached)],
  ["ms", ({ loadMs }) => loadMs.toFixed(0)],
  ["GEMMs", ({ gemms }) => String(gemms)],
  ["ms", ({ gemmMs }) => gemmMs.toFixed(0)],
  ["MB up", ({ bytesUp }) => (bytesUp / 1e6).toFixed(1)],
];

async function measureAll(results: Results): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-start-"));
  const starts: { readonly kind: "cold" | "warm"; readonly start: Start }[] = [];
  const measureNext = (kind: "cold" | "warm", cache: string): Promise<void> =>
    results.attempt(`a ${kind} start`, () => {
      const start = measure(join(folder, cache));
      starts.push({ kind, start });
      console.log(`${kind}: ${start.totalMs.toFixed(0)} ms`);
    });
  try {
    const colds = count("cold", options.cold);
    for (let run = 0; run < colds; run++) await measureNext("cold", `cache-${run}`);
    for (let run = 0; run < count("warm", options.warm); run++) await measureNext("warm", "cache-0");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  results.line(`until the end of the first step of ${options.batch} rows in ${options.precision}, in ms`);
  results.table([
    ["start", ...columns.map(([title]) => title)],
    ...starts.map(({ kind, start }) => [kind, ...columns.map(([, cell]) => cell(start))]),
  ]);
  for (const kind of ["cold", "warm"] as const) {
    const seconds = median(
      starts.filter((entry) => entry.kind === kind).map((entry) => entry.start.totalMs / 1000),
    );
    const target = targetSeconds[kind];
    results.aim(
      seconds < target,
      `${kind} start to the first step: ${seconds.toFixed(2)} s; target ${target}`,
    );
  }
}

if (options.child) {
  console.log(JSON.stringify(startOnce()));
} else {
  const results = new Results("start", options);
  await measureAll(results);
  results.finish();
}
