/**
 * The fuzzing targets: for each reader valid inputs to start with, and how it gets one. Only a HoldfastError
 * may be thrown.
 */

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { barColumns } from "../../../src/crossasset/bars/bars.js";
import { generateBars } from "../../../src/crossasset/bars/generate.js";
import { readBars } from "../../../src/crossasset/bars/read.js";
import { readParquet } from "../../../src/crossasset/bars/read-parquet.js";
import { loadSafetensors, writeSafetensors } from "../../../src/data/index.js";
import { HoldfastError } from "../../../src/errors/index.js";
import { exportMemorySnapshot, exportTrace } from "../../../src/inspect/exports/index.js";
import { viewAsText } from "../../../src/inspect/index.js";
import { findRun } from "../../../src/inspect/run-list.js";
import { listLines, RunView } from "../../../src/inspect/run-view.js";
import { CheckpointStore, healthOf, readInspection, readRun, readSteps } from "../../../src/train/index.js";
import { readMetricsPage } from "../../../src/train/metrics-page.js";
import { sampleIncidents, writeSampleRun } from "../sample-run.js";
import { httpTarget } from "./http-target.js";
import { modelsTarget } from "./models-target.js";
import type { SeededRandom } from "./mutate.js";
import { bombFile, parquetBombs, randomParquet } from "./parquet-bombs.js";
import type { FuzzTargetName } from "./target-names.js";

export type GiveInput = (input: Uint8Array) => void | Promise<void>;

export interface FuzzTarget {
  /** Valid inputs, and inputs that have done harm. */
  seeds(folder: string): readonly Uint8Array[];
  /** An input with a valid envelope and arbitrary contents; default: only seeds are mutated. */
  draw?(random: SeededRandom): Uint8Array;
  /** `folder` is empty and only for this target. */
  open(folder: string): GiveInput | Promise<GiveInput>;
}

const bars = generateBars({ bars: 40, seed: 7 });

const parquet: FuzzTarget = {
  seeds() {
    const compressors = { GZIP: (input: Uint8Array) => new Uint8Array(gzipSync(input)) };
    const makeFile = (time: Partial<ColumnSource>, numbers: Partial<ColumnSource>): Uint8Array => {
      const columnData = barColumns.map((name): ColumnSource => {
        if (name !== "time")
          return { name, data: [...bars[name]], type: "DOUBLE", nullable: false, ...numbers };
        return { name, data: [...bars.time].map(BigInt), type: "INT64", nullable: false, ...time };
      });
      return new Uint8Array(parquetWriteBuffer({ columnData, rowGroupSize: 20, compressors }));
    };
    const dates = [...bars.time].map((time) => new Date(time));
    const texts = dates.map((date) => date.toISOString());
    return [
      makeFile({}, { encoding: "PLAIN", codec: "UNCOMPRESSED" }),
      makeFile({ data: dates, type: "TIMESTAMP" }, { nullable: true }),
      makeFile({ encoding: "DELTA_BINARY_PACKED" }, { encoding: "RLE_DICTIONARY" }),
      makeFile({ data: texts, type: "STRING" }, { encoding: "BYTE_STREAM_SPLIT" }),
      makeFile({ data: texts, type: "STRING", encoding: "DELTA_LENGTH_BYTE_ARRAY" }, { codec: "GZIP" }),
      bombFile(),
      ...Object.values(parquetBombs),
    ];
  },
  draw: randomParquet,
  open(folder) {
    const path = join(folder, "input.parquet");
    let count = 0;
    return async (input) => {
      writeFileSync(path, input);
      try {
        await readParquet(path, { inThread: false });
      } finally {
        // The thread is started only for a few inputs: it takes far longer than the decoding.
        if (count++ % 64 === 0) await readBars(path);
      }
    };
  },
};

const csv: FuzzTarget = {
  seeds() {
    const lines = Array.from(bars.time.subarray(0, 8), (time, at) => `${time},1,2,1,${bars.close[at]},0`);
    const header = barColumns.join(",");
    const texts = [
      [header, ...lines].join("\n"),
      [`\uFEFF${header.toUpperCase()}`, ...lines, "", ""].join("\r\n"),
      `"time","open","high",low,close,volume,"a ""note"""\n2020-01-01,1,2,1,1,0,"x\ny"\n2020-01-02 00:01:30.5+01:00,1,2,1,1e0,3,\n`,
      `${header}\n20200101,1,2,1,1,0\n20200102,1,2,1,1,0\n`,
    ];
    return texts.map((text) => new Uint8Array(Buffer.from(text)));
  },
  open(folder) {
    const path = join(folder, "input.csv");
    return async (input) => {
      writeFileSync(path, input);
      await readBars(path);
    };
  },
};

const safetensors: FuzzTarget = {
  seeds(folder) {
    const store = new CheckpointStore(join(folder, "seed"));
    store.prepare();
    store.save({ step: 1, tensors: new Map(), state: { loss: 0.5, order: [1, 2] } });
    const checkpoint = new Uint8Array(readFileSync(store.list()[0]?.path ?? ""));
    const tensor = (name: string, shape: readonly number[]) =>
      ({ name, dtype: "f32", shape, bytes: new Uint8Array(4 * shape.reduce((a, b) => a * b, 1)) }) as const;
    const mask = { name: "mask", dtype: "bool", shape: [2], bytes: new Uint8Array([1, 0]) } as const;
    const metadata = new Map([["format", "pt"]]);
    return [
      checkpoint,
      writeSafetensors([tensor("weight", [3, 2]), tensor("bias", [3])], metadata),
      writeSafetensors([tensor("scalar", []), tensor("empty", [0, 4]), mask]),
      writeSafetensors([]),
    ];
  },
  open(folder) {
    const checkpoints = join(folder, "checkpoints");
    mkdirSync(checkpoints);
    const path = join(checkpoints, "step-000000001.safetensors");
    return (input) => {
      writeFileSync(path, input);
      const rejections: unknown[] = [];
      for (const read of [
        () => loadSafetensors(path),
        () => new CheckpointStore(checkpoints).load("latest"),
      ]) {
        try {
          read();
        } catch (error) {
          if (!(error instanceof HoldfastError)) throw error;
          rejections.push(error);
        }
      }
      if (rejections.length > 0) throw rejections[0];
    };
  },
};

/** Files that replace files of a run folder: the first byte of an input selects one. */
const runFileNames = [
  ...["status.json", "run.json", "results.json", "metrics.jsonl", "plans.jsonl", "memory.jsonl"],
  ...["incidents.jsonl", "steps.bin", "recorder.log", "holdfast-stall-1-20260101T000000Z.json"],
] as const;

const runs: FuzzTarget = {
  seeds(folder) {
    const run = writeSampleRun(folder, "seed", { steps: 30, incidents: sampleIncidents() });
    run.close();
    const names = new Set(readdirSync(run.path));
    const seeds = runFileNames.map((name, index) => {
      const content = names.has(name) ? readFileSync(join(run.path, name)) : Buffer.from(stallReport);
      return Uint8Array.from([index, ...content]);
    });
    const blank = [3, 4, 5, 6].map((index) => new Uint8Array(4096).fill(0x0a).fill(index, 0, 1));
    rmSync(run.path, { recursive: true });
    return [...seeds, ...blank];
  },
  open(folder) {
    const { path } = writeSampleRun(folder, "run", { steps: 30, incidents: sampleIncidents() });
    const originals = new Map(
      runFileNames.map((name) => [
        name,
        readdirSync(path).includes(name) ? readFileSync(join(path, name)) : undefined,
      ]),
    );
    let count = 0;
    return (input) => {
      const name = runFileNames[(input[0] ?? 0) % runFileNames.length] ?? "status.json";
      writeFileSync(join(path, name), input.subarray(1));
      try {
        look(folder, path, count++);
      } finally {
        const content = originals.get(name);
        if (content) writeFileSync(join(path, name), content);
        else rmSync(join(path, name));
      }
    };
  },
};

/** Seeds and corpus run all reads; a mutant runs a few in turn, because all of them take long. */
const firstLooks = 100;
const readsAtOnce = 3;

/** All reads of a run folder. A HoldfastError of one does not skip the others. */
function look(folder: string, path: string, round: number): void {
  const reads = [
    () => healthOf(path),
    () => readMetricsPage(path),
    () => readRun(path),
    () => readInspection(path),
    () => readSteps(join(path, "steps.bin")),
    () => JSON.stringify(listLines({ root: folder })),
    () => requirePlain(viewAsText(path).print({ columns: 100 })),
    () => requirePlain(viewAsText(folder).print({ columns: 60 })),
    () => exportTrace(path),
    () => exportMemorySnapshot(path, 0),
    () => {
      const run = findRun({ root: folder }, "run");
      const view = run && new RunView(run);
      JSON.stringify([view?.detail(), view?.memory(), view?.phases()]);
      view?.steps.refresh();
      view?.steps.points({ points: 50 });
    },
  ];
  let rejection: unknown;
  for (const [index, read] of reads.entries()) {
    if (round >= firstLooks && (index + round) % reads.length >= readsAtOnce) continue;
    try {
      read();
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      rejection = error;
    }
  }
  if (rejection !== undefined) throw rejection;
}

/** A terminal executes control characters. */
function requirePlain(text: string): void {
  const control = /[^\P{Cc}\n]/u.exec(text);
  if (control) throw new Error(`a terminal is shown the control character ${control[0].charCodeAt(0)}`);
}

const stallReport = JSON.stringify({
  ...{ format: "holdfast stall report 1", time: "2026-01-02T03:04:05.000Z", pid: 9, noticedBy: "thread" },
  what: {
    ...{ kind: "stall", phase: "step", number: 7, call: "launch", op: "matmul", step: 7 },
    phases: [{ title: "step 7", openMs: 31_000 }],
    ...{ elapsedMs: 31_000, limitMs: 30_000 },
  },
  ...{ ending: "exit", notes: [], budget: null, arena: null, events: [], process: { threads: [] } },
  versions: { node: "v20", platform: "linux", arch: "x64" },
});

export const fuzzTargets: Readonly<Record<FuzzTargetName, FuzzTarget>> = {
  ...{ parquet, csv, safetensors, runs },
  http: httpTarget,
  models: modelsTarget,
};
