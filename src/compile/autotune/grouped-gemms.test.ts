/** Grouped GEMMs: the fastest tile and split of K is selected, measured once, and repeated for another program of the same bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openPrintingDriver } from "../../../test/support/source-recording-driver.js";
import { testEnvironment } from "../../../test/support/test-device.js";
import { timed } from "../../../test/support/timed-driver.js";
import { openRuntime, type Runtime } from "../../runtime/index.js";
import type { FakeClock } from "../../units/index.js";
import { type Buffer, type BufferSlice, type Call, type GemmCall, Program } from "../program/program.js";
import { autotuneGroupedGemms, groupedAlgorithmsIn, tunedGroupsIn } from "./grouped-gemms.js";
import type { KnownChoices } from "./tune-calls.js";

interface Bench {
  readonly runtime: Runtime;
  readonly clock: FakeClock;
  readonly launches: () => number;
}

/** A GPU of 132 SMs on which a launch takes `plainMs` without split-K, and `splitMs` with it. */
function withCosts(plainMs: number, splitMs: number, use: (bench: Bench) => void): void {
  let launches = 0;
  const { driver: printing } = openPrintingDriver({ parallelism: 132 });
  const { driver, clock } = timed(printing, ({ cuda }) => {
    launches++;
    return cuda?.code.includes("const unsigned rank") ? splitMs : plainMs;
  });
  const runtime = openRuntime({
    ...{ driver, memory: "64MiB", stallAfter: "off", environment: testEnvironment, precision: "bf16" },
    print: () => {},
  });
  try {
    use({ runtime, clock, launches: () => launches });
  } finally {
    runtime.close();
    printing.close();
  }
}

/** A group of one weight gradient, which has tiles for a few SMs. The printing driver records a node for each result. */
function group(k = 2048): Call {
  const [m, n] = [128, 256];
  const sliceOf = (id: number, size: number): BufferSlice => {
    const buffer: Buffer = { id, bytes: size, label: `b${id}` };
    return { buffer, offset: 0, size };
  };
  const problem: GemmCall["problem"] = {
    ...{ dtype: "bf16", resultDtype: "f32", m, n, k },
    a: { slice: sliceOf(1, 2 * m * k), rowStride: m, isTransposed: true },
    b: { slice: sliceOf(2, 2 * n * k), rowStride: n },
    c: { slice: sliceOf(3, 4 * m * n), rowStride: n },
  };
  return { op: "weightGradient", work: { kind: "grouped-gemm", problems: [problem] } };
}

const algorithmsOf = ({ calls }: Program): readonly (number | undefined)[] =>
  calls.map(({ work }) => (work.kind === "grouped-gemm" ? work.algorithm : assert.fail()));

describe("a grouped GEMM", () => {
  test("splits K if that was faster, which is measured once, and repeated in a program of the same bits", () => {
    withCosts(1, 0.8, ({ runtime, clock, launches }) => {
      const known: KnownChoices = new Map();
      const program = new Program([group()]);
      autotuneGroupedGemms(runtime, program, { known, clock });
      assert.deepEqual(algorithmsOf(program), [1], "the candidate with the shortest estimate");
      const measured = launches();
      for (const results of [known, groupedAlgorithmsIn(runtime, program.calls)]) {
        const again = new Program([group()]);
        assert.notEqual(tunedGroupsIn(again.calls), tunedGroupsIn(program.calls));
        autotuneGroupedGemms(runtime, again, { known: results, clock });
        assert.deepEqual(again.calls, program.calls);
        assert.equal(tunedGroupsIn(again.calls), tunedGroupsIn(program.calls));
      }
      assert.equal(launches(), measured);
    });
  });

  test("keeps the plain grid if split-K is not faster", () => {
    withCosts(1, 1, ({ runtime, clock }) => {
      const program = new Program([group()]);
      autotuneGroupedGemms(runtime, program, { known: new Map(), clock });
      assert.deepEqual(algorithmsOf(program), [undefined]);
    });
  });

  test("is not measured if it has one algorithm", () => {
    withCosts(1, 0.8, ({ runtime, clock, launches }) => {
      const program = new Program([group(1024)]);
      autotuneGroupedGemms(runtime, program, { known: new Map(), clock });
      assert.deepEqual(algorithmsOf(program), [undefined]);
      assert.equal(launches(), 0);
    });
  });
});
