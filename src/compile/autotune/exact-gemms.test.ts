/** Autotuning of f32 GEMMs that native kernels compute exactly: alone and in groups, the fastest tile is selected and remembered. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { storageWithoutMemory } from "../../../test/support/null-gpu.js";
import { bufferOf } from "../../../test/support/row-calls.js";
import { openPrintingDriver } from "../../../test/support/source-recording-driver.js";
import { testEnvironment } from "../../../test/support/test-device.js";
import { timed } from "../../../test/support/timed-driver.js";
import { interceptCalls } from "../../driver/index.js";
import { openRuntime, type Runtime, type RuntimeOptions } from "../../runtime/index.js";
import { listSources } from "../execute/emit.js";
import { type Call, type GemmCall, type GroupedGemmCall, Program } from "../program/program.js";
import { autotuneExactGemms, exactAlgorithmsIn } from "./exact-gemms.js";
import type { KnownChoices } from "./tune-calls.js";

interface Bench {
  readonly runtime: Runtime;
  readonly launches: readonly string[];
  tune(calls: readonly Call[], known?: KnownChoices): readonly Call[];
}

/** Runs `use` on a Hopper GPU that computes nothing, where the kernel `fastest` takes a third of the others' time. */
function onDevice(
  fastest: (runtime: Runtime) => string,
  use: (bench: Bench) => void,
  options: RuntimeOptions = {},
): void {
  const printing = openPrintingDriver({ parallelism: 4 });
  const launches: string[] = [];
  const { driver, clock } = timed(printing.driver, ({ cuda }) => {
    launches.push(cuda?.code ?? "");
    return cuda?.code === fastest(runtime) ? 0.1 : 0.3;
  });
  const notes = new Map<string, string>();
  const noting = Object.assign(
    interceptCalls(driver, (_call, _args, proceed) => proceed()),
    {
      recall: (key: string) => notes.get(key),
      remember: (key: string, note: string) => void notes.set(key, note),
    },
  );
  const runtime = openRuntime({
    ...{ driver: noting, memory: "64MiB", stallAfter: "off", environment: testEnvironment },
    ...{ print: () => {}, ...options },
  });
  try {
    const ownKnown: KnownChoices = new Map();
    const tune: Bench["tune"] = (calls, known = ownKnown) => {
      const program = new Program(calls);
      autotuneExactGemms(runtime, program, { known, clock });
      return program.calls;
    };
    use({ runtime, launches, tune });
  } finally {
    runtime.close();
    driver.close();
  }
}

/** Rows that do not begin at multiples of 16 bytes: DMMA computes these GEMMs. */
const [m, n, k] = [126, 126, 530];

function problemOf(more: Partial<GemmCall["problem"]> = {}): GemmCall["problem"] {
  const matrix = (rows: number, columns: number) => ({
    slice: bufferOf([rows * columns]).slice,
    rowStride: columns,
  });
  return { ...{ dtype: "f32", m, n, k }, ...{ a: matrix(m, k), b: matrix(k, n), c: matrix(m, n) }, ...more };
}

const single = (more: Partial<GemmCall["problem"]> = {}): Call & { readonly work: GemmCall } => ({
  op: "linear",
  work: { kind: "gemm", problem: problemOf(more) },
});

/** Of one GEMM: for a launch with two results, the driver would record two nodes. */
const group = (more: Partial<GemmCall["problem"]> = {}): Call & { readonly work: GroupedGemmCall } => ({
  op: "weightGradient",
  work: { kind: "grouped-gemm", problems: [problemOf(more)] },
});

const codeOf = (runtime: Runtime, call: Call): string =>
  listSources(runtime, [call], storageWithoutMemory)[0]?.cuda?.code ?? "";

test("the fastest tile is selected for a GEMM and for a group, and their calls change in nothing else", () => {
  for (const make of [single, group]) {
    for (const algorithm of [1, 3]) {
      onDevice(
        (runtime) => codeOf(runtime, make({ algorithm })),
        ({ runtime, tune }) => {
          const call = make();
          const [tuned] = tune([call]);
          const withTile = (problem: GemmCall["problem"]) => ({ ...problem, algorithm });
          const work =
            call.work.kind === "gemm"
              ? { ...call.work, problem: withTile(call.work.problem) }
              : { ...call.work, problems: call.work.problems.map(withTile) };
          assert.deepEqual(tuned, { ...call, work });
          assert.equal(tuned && codeOf(runtime, tuned), codeOf(runtime, make({ algorithm })));
        },
      );
    }
  }
});

test("equal GEMMs are measured once, and a later step, process or repeated plan measures nothing", () => {
  onDevice(
    (runtime) => codeOf(runtime, single({ algorithm: 2 })),
    ({ runtime, launches, tune }) => {
      const algorithmsOf = (calls: readonly Call[]) =>
        calls.map(({ work }) => (work.kind === "gemm" ? (work.problem.algorithm ?? 0) : undefined));
      const tuned = tune([single(), single()]);
      assert.deepEqual(algorithmsOf(tuned), [2, 2]);
      const count = launches.length;
      assert.deepEqual(algorithmsOf(tune([single()])), [2]);
      assert.deepEqual(algorithmsOf(tune([single()], new Map())), [2]);
      assert.deepEqual(algorithmsOf(tune([single()], exactAlgorithmsIn(runtime, tuned))), [2]);
      assert.equal(launches.length, count);
    },
  );
});

test("GEMMs that take less than a launch, or that no native kernel computes exactly, are not measured", () => {
  const unmeasured = (call: Call, options: RuntimeOptions = {}) =>
    onDevice(
      () => "",
      ({ launches, tune }) => {
        assert.deepEqual(tune([call]), [call]);
        assert.deepEqual(launches, []);
      },
      options,
    );
  unmeasured(single(), { precision: "tf32" });
  unmeasured(group(), { precision: "tf32" });
  unmeasured(single({ k: 64 }));
  unmeasured(single({ dtype: "f64" }));
});
