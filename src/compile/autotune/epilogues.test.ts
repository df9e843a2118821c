/** GEMMs with an epilogue: fused if that is faster than two launches, with the fastest tile, measured once. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openPrintingDriver } from "../../../test/support/source-recording-driver.js";
import { testEnvironment } from "../../../test/support/test-device.js";
import { timed } from "../../../test/support/timed-driver.js";
import type { KernelSource } from "../../driver/index.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import { openRuntime, type Runtime } from "../../runtime/index.js";
import type { FakeClock } from "../../units/index.js";
import { fuseEpilogues } from "../fusion/epilogue.js";
import { type Buffer, type BufferSlice, type Call, type GemmCall, Program } from "../program/program.js";
import { autotuneEpilogues, epilogueTilesIn, measureFusions } from "./epilogues.js";
import type { KnownChoices } from "./tune-calls.js";

/** Milliseconds of a launch: by cuBLASLt, and by a native kernel with each tile. */
interface Costs {
  readonly library: number;
  readonly large: number;
  readonly paired: number;
  readonly wide: number;
  readonly pingPong: number;
}

interface Bench {
  readonly runtime: Runtime;
  readonly clock: FakeClock;
  readonly known: KnownChoices;
  readonly launches: () => number;
}

function withCosts(costs: Costs, use: (bench: Bench) => void): void {
  let launches = 0;
  const { driver: printing } = openPrintingDriver({ parallelism: 2 });
  const { driver, clock } = timed(printing, (source) => {
    launches++;
    return source.gemm ? costs.library : costs[tileOf(source)];
  });
  const runtime = openRuntime({
    ...{ driver, memory: "64MiB", stallAfter: "off", environment: testEnvironment, precision: "bf16" },
    print: () => {},
  });
  try {
    use({ runtime, clock, known: new Map(), launches: () => launches });
  } finally {
    runtime.close();
    printing.close();
  }
}

/** Large tiles have three warpgroups of consumers; of the others, only paired CTAs leave half of the shared memory. */
function tileOf({ cuda }: KernelSource): Exclude<keyof Costs, "library"> {
  if (cuda?.code.includes("setmaxnreg")) return "pingPong";
  if ((cuda?.threads ?? 0) > 400) return "large";
  return (cuda?.sharedBytes ?? 0) < 114 * 1024 ? "paired" : "wide";
}

const [m, n, k] = [512, 256, 640];

const twice: RowKernel = {
  ...{ name: "twice", inputs: ["f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.mul(2, term.load(0, "f32")) }],
};

/** A GEMM, and a row kernel on its result. */
function calls(rows = m): readonly Call[] {
  const bufferOf = (id: number, bytes: number): Buffer => ({ id, bytes, label: `b${id}` });
  const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });
  const [a, b] = [bufferOf(1, 2 * rows * k), bufferOf(2, 2 * n * k)];
  const [c, target] = [bufferOf(3, 4 * rows * n), bufferOf(4, 2 * rows * n)];
  const problem: GemmCall["problem"] = {
    ...{ dtype: "bf16", resultDtype: "f32", m: rows, n, k },
    a: { slice: whole(a), rowStride: k },
    b: { slice: whole(b), rowStride: k, isTransposed: true },
    c: { slice: whole(c), rowStride: n },
  };
  const iteration = iterateElements([rows * n], [[1], [1]]);
  const operands = [whole(c), whole(target)];
  return [
    { op: "linear", work: { kind: "gemm", problem } },
    { op: "twice", work: { kind: "row", kernel: twice, iteration, operands, scalars: [] } },
  ];
}

function fuse({ runtime, known, clock }: Bench, rows?: number): Program {
  const program = new Program(calls(rows));
  fuseEpilogues(runtime, program, (candidates) => measureFusions(runtime, candidates, { known, clock }));
  return program;
}

const kindsIn = ({ calls }: Program): readonly string[] => calls.map(({ work }) => work.kind);

describe("elementwise work on the result of a large GEMM", () => {
  test("runs in the epilogue if one of its tiles is faster than two launches, and then with that tile", () => {
    withCosts({ library: 1, large: 1.2, paired: 0.9, wide: 1.1, pingPong: 1.2 }, (bench) => {
      const { runtime, known, clock, launches } = bench;
      const program = fuse(bench);
      assert.deepEqual(kindsIn(program), ["gemm-epilogue"]);
      autotuneEpilogues(runtime, program, { known, clock });
      const [{ work } = assert.fail()] = program.calls;
      assert.ok(work.kind === "gemm-epilogue");
      assert.equal(work.problem.algorithm, 1, "the default tile is the first, paired CTAs are the second");
      const measured = launches();
      const again = fuse(bench);
      autotuneEpilogues(runtime, again, { known: epilogueTilesIn(runtime, program.calls), clock });
      assert.deepEqual(again.calls, program.calls);
      assert.equal(launches(), measured, "measured once");
    });
  });

  test("runs in a persistent kernel if that is the fastest", () => {
    withCosts({ library: 1, large: 1.2, paired: 0.9, wide: 1.1, pingPong: 0.8 }, (bench) => {
      const { runtime, known, clock } = bench;
      const program = fuse(bench);
      autotuneEpilogues(runtime, program, { known, clock });
      const [{ work } = assert.fail()] = program.calls;
      assert.ok(work.kind === "gemm-epilogue");
      assert.equal(work.problem.algorithm, 3, "the last candidate");
    });
  });

  test("runs alone if every tile is slower", () => {
    withCosts({ library: 1, large: 1.5, paired: 1.4, wide: 1.3, pingPong: 1.2 }, (bench) =>
      assert.deepEqual(kindsIn(fuse(bench)), ["gemm", "row"]),
    );
  });

  test("is not measured for a small GEMM: there the estimate decides, which is against a large K", () => {
    withCosts({ library: 1, large: 0.1, paired: 0.1, wide: 0.1, pingPong: 0.1 }, (bench) => {
      assert.deepEqual(kindsIn(fuse(bench, 128)), ["gemm", "row"]);
      assert.equal(bench.launches(), 0);
    });
  });
});
