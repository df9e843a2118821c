/** GEMM autotuning: the fastest algorithm is selected with its scratch memory, measured once, on separate memory. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { openEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { testEnvironment } from "../../../test/support/test-device.js";
import { timed } from "../../../test/support/timed-driver.js";
import { type DeviceInfo, interceptCalls, type KernelSource, strict } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { gemmCalls, submit } from "../../kernels/index.js";
import {
  openRuntime,
  type Region,
  type Runtime,
  type RuntimeOptions,
  type Storage,
} from "../../runtime/index.js";
import type { FakeClock } from "../../units/index.js";
import { emitCommands, submitCommands } from "../execute/emit.js";
import { type Buffer, type BufferSlice, type Call, type GemmCall, Program } from "../program/program.js";
import { autotuneGemms, fastestOf, type GemmReport, type KnownAlgorithms } from "./gemms.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

interface Bench {
  readonly runtime: Runtime;
  readonly clock: FakeClock;
  readonly known: KnownAlgorithms;
  /** The number of GEMM launches by algorithm; graphs count while they are recorded. */
  readonly launches: Map<number, number>;
  /** The number of kernels of each call of `compileKernels`. */
  readonly compiled: readonly number[];
  choose(calls: readonly Call[]): { readonly calls: readonly Call[]; readonly report: GemmReport };
}

interface BenchOptions {
  readonly options?: RuntimeOptions;
  readonly cacheFolder?: string;
  /** The time to compile a native kernel. */
  readonly compileMs?: number;
}

/** Runs `use` on a device where a launch takes `costMs` milliseconds. */
function onDevice(
  costMs: (source: KernelSource) => number,
  use: (bench: Omit<Bench, "launches">) => void,
  { options = {}, cacheFolder = "off", compileMs = 0 }: BenchOptions,
): void {
  const device = openEmulatorDriver({ cacheFolder });
  const { driver, clock } = timed(device, costMs);
  const compiled: number[] = [];
  const compiling = interceptCalls(driver, (call, args, proceed) => {
    if (call === "compileKernels")
      compiled.push((args[0] as readonly KernelSource[]).filter(({ cuda }) => cuda).length);
    if (call === "loadKernel" && !(args[0] as KernelSource).gemm) clock.advance(compileMs);
    return proceed();
  });
  try {
    const runtime = openRuntime({
      ...{
        driver: strict(compiling),
        memory: "256MiB",
        poison: true,
        stallAfter: "off",
        environment: testEnvironment,
      },
      ...{ print: () => {}, ...options },
    });
    try {
      const known: KnownAlgorithms = new Map();
      const choose: Bench["choose"] = (calls) => {
        const program = new Program(calls);
        const report = autotuneGemms(runtime, program, { known, clock });
        return { calls: program.calls, report };
      };
      use({ runtime, clock, known, choose, compiled });
    } finally {
      runtime.close();
    }
  } finally {
    device.close();
  }
}

/** Runs `use` on a device where a GEMM takes `costs[algorithm]` milliseconds; NaN: it can't be launched. */
function withCosts(
  costs: readonly number[],
  use: (bench: Bench) => void,
  options: RuntimeOptions = {},
  cacheFolder = "off",
): void {
  const launches = new Map<number, number>();
  const costMs = ({ gemm }: KernelSource): number => {
    if (!gemm) return 0;
    const { algorithm = 0 } = gemm;
    launches.set(algorithm, (launches.get(algorithm) ?? 0) + 1);
    const cost = costs[algorithm] ?? 1;
    if (Number.isNaN(cost)) throw new HoldfastError("DRIVER_FAILED", "CUBLAS_STATUS_NOT_SUPPORTED");
    return cost;
  };
  onDevice(costMs, (bench) => use({ ...bench, launches }), { options, cacheFolder });
}

const [m, n, k] = [6, 5, 40];

/** Weights B [k, n] in persistent memory, 16 bytes after its start, and A [m, k], C [m, n] in step memory. */
function gemmOf(region: Region, id = 0): Call & { readonly work: GemmCall } {
  const step = (offset: number, floats: number, label: string): BufferSlice => {
    const buffer: Buffer = { id: id + offset, bytes: 4 * floats, label };
    return { buffer, offset: 0, size: buffer.bytes };
  };
  const weights: Buffer = { id: 100, bytes: region.whole.span.size, label: "weights", storage: region.whole };
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: step(0, m * k, "a"), rowStride: k },
    b: { slice: { buffer: weights, offset: 16, size: 4 * k * n }, rowStride: n },
    c: { slice: step(1, m * n, "c"), rowStride: n },
  };
  return { op: "matmul", work: { kind: "gemm", problem } };
}

function placeWeights(runtime: Runtime): Region {
  const region = runtime.persistent.place("weights", "model", [{ name: "b", size: 16 + 4 * k * n }]);
  runtime.upload([{ source: valuesOf(4 + k * n, 3), target: region.storages[0]! }]);
  return region;
}

function valuesOf(length: number, seed: number): Float32Array {
  return Float32Array.from({ length }, (_, index) => Math.sin(seed + index));
}

const heldBy = ({ budget, arena: { figures } }: Runtime) => ({
  used: budget.used,
  live: figures.live,
  committed: figures.committed,
});

function problemOf(call: Call | undefined): GemmCall["problem"] {
  assert.ok(call?.work.kind === "gemm");
  return call.work.problem;
}

describe("a GEMM", { skip }, () => {
  test("uses the algorithm that an earlier process measured, if the driver has a valid note", () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-notes-"));
    try {
      const costs = [0.5, 0.3, 0.2];
      const chooseNew = (change?: (runtime: Runtime) => void) => {
        let found: { choice: number | undefined; measured: number } | undefined;
        withCosts(
          costs,
          ({ runtime, choose }) => {
            change?.(runtime);
            const { calls, report } = choose([gemmOf(placeWeights(runtime))]);
            found = { choice: problemOf(calls[0]).algorithm, measured: report.measured };
          },
          {},
          folder,
        );
        return found;
      };
      assert.deepEqual(chooseNew(), { choice: 2, measured: 1 });
      costs.reverse();
      assert.deepEqual(chooseNew(), { choice: 2, measured: 0 });
      const invalidate = (runtime: Runtime): void => {
        runtime.recall = () => '{"choice":"2"}';
      };
      assert.deepEqual(chooseNew(invalidate), { choice: undefined, measured: 1 });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("gets its fastest algorithm, with a scratch buffer of the size that the algorithm needs", () => {
    withCosts([0.5, 0.3, 0.2], ({ runtime, choose }) => {
      const call = gemmOf(placeWeights(runtime));
      const { calls, report } = choose([call, gemmOf(placeWeights(runtime), 10)]);
      const [first, second] = calls.map(problemOf);
      assert.deepEqual([first?.algorithm, second?.algorithm], [2, 2]);
      assert.deepEqual([first?.scratch?.size, first?.scratch?.buffer.bytes], [2048, 2048]);
      const ids = [first, second].map((one) => one?.scratch?.buffer.id);
      assert.deepEqual(ids, [101, 102], "numbers of their own, which no other buffer has");
      const { elapsedMs, beforeUs, afterUs, ...counts } = report;
      assert.deepEqual(counts, { gemms: 2, changed: 2, measured: 1 });
      assert.deepEqual([Math.round(beforeUs), Math.round(afterUs)], [1000, 400]);
      assert.ok(elapsedMs > 0);
    });
  });

  test("keeps the library's first algorithm among those within two percent of the fastest", () => {
    withCosts([1, 0.5, 0.495], ({ runtime, choose }) => {
      assert.equal(problemOf(choose([gemmOf(placeWeights(runtime))]).calls[0]).algorithm, 1);
    });
    withCosts([0.5, 0.495, 0.6], ({ runtime, choose }) => {
      const call = gemmOf(placeWeights(runtime));
      assert.equal(choose([call]).calls[0], call);
    });
  });

  test("loses scratch memory that its algorithm does not need", () => {
    emulator.set("gemmUnsound", 0);
    withCosts([1, 0.5], ({ runtime, choose }) => {
      // As if it had been traced with an algorithm that needs this much; the selected one needs 2 KiB.
      const traced = gemmOf(placeWeights(runtime));
      const scratch: BufferSlice = { buffer: { id: 50, bytes: 4096, label: "old" }, offset: 0, size: 4096 };
      const { calls } = choose([
        { ...traced, work: { kind: "gemm", problem: { ...traced.work.problem, scratch } } },
      ]);
      assert.equal(problemOf(calls[0]).scratch?.size, 2048);
    });
  });

  test("runs with the selected algorithm: its bits are those of that algorithm", () => {
    emulator.set("gemmsDiffer", 1);
    withCosts([1, 1, 0.5], ({ runtime, choose }) => {
      const region = placeWeights(runtime);
      const { calls } = choose([gemmOf(region)]);
      runtime.step(() => {
        const a = runtime.arena.allocate(4 * m * k, "a");
        runtime.upload([{ source: valuesOf(m * k, 1), target: a }]);
        const run = (choice: number): Uint8Array => {
          const c = runtime.arena.allocate(4 * m * n, "c");
          const scratch = runtime.arena.allocate(4096, "scratch");
          const b = runtime.view(region.whole, 16, 4 * k * n);
          const lying = (storage: Storage, rowStride: number) => ({ storage, rowStride });
          submit(
            runtime,
            gemmCalls({
              ...{
                dtype: "f32",
                m,
                n,
                k,
                a: lying(a, k),
                b: lying(b, n),
                c: lying(c, n),
                scratch,
                algorithm: choice,
              },
            }),
          );
          return runtime.read(c);
        };
        const c = runtime.arena.allocate(4 * m * n, "c");
        const pieces = emitCommands(runtime, calls, ({ buffer, offset, size }) => {
          if (buffer.label === "a") return a;
          if (buffer.label === "c") return c;
          if (buffer.storage) return runtime.view(buffer.storage, offset, size);
          return runtime.arena.allocate(size, "scratch");
        });
        submitCommands(runtime, pieces);
        const found = runtime.read(c);
        sameBytes(found, run(2), "the chosen algorithm");
        assert.notDeepEqual(found, run(0), "the library's first rounds otherwise");
      });
    });
  });

  test("is timed without algorithms that can't be launched, even the library's first", () => {
    withCosts([1, Number.NaN, 0.5], ({ runtime, choose, launches }) => {
      assert.equal(problemOf(choose([gemmOf(placeWeights(runtime))]).calls[0]).algorithm, 2);
      assert.equal(launches.get(1), 1);
    });
    withCosts([Number.NaN, 1, 0.5], ({ runtime, choose }) => {
      assert.equal(problemOf(choose([gemmOf(placeWeights(runtime))]).calls[0]).algorithm, 2);
    });
  });

  test("is unchanged if no algorithm can be launched, so that the step itself reports the error", () => {
    withCosts([Number.NaN, Number.NaN, Number.NaN], ({ runtime, choose }) => {
      const before = heldBy(runtime);
      const call = gemmOf(placeWeights(runtime));
      const { calls, report } = choose([call]);
      assert.equal(calls[0], call);
      assert.equal(report.measured, 0);
      assert.equal(heldBy(runtime).live, before.live);
    });
  });

  test("is unchanged if there is no memory for a trial", () => {
    withCosts([1, 0.5, 0.2], ({ runtime, choose }) => {
      const region = placeWeights(runtime);
      const full = runtime.budget.charge("data set", runtime.budget.left, "everything else");
      const call = gemmOf(region);
      assert.equal(choose([call]).calls[0], call);
      runtime.budget.release(full);
      assert.equal(problemOf(choose([call]).calls[0]).algorithm, 2, "a rejection is not kept for a result");
    });
  });
});

describe("measuring", { skip }, () => {
  test("happens once for GEMMs that are equal for the library", () => {
    withCosts([0.5, 0.3, 0.2], ({ runtime, choose, launches }) => {
      const region = placeWeights(runtime);
      choose([gemmOf(region), gemmOf(region, 10), gemmOf(region, 20)]);
      const after = [...launches];
      const { calls, report } = choose([gemmOf(region, 30)]);
      assert.deepEqual([...launches], after);
      assert.equal(report.measured, 0);
      assert.deepEqual([problemOf(calls[0]).algorithm, problemOf(calls[0]).scratch?.size], [2, 2048]);
      // Another alignment has another list of algorithms.
      const { problem } = gemmOf(region).work;
      const moved = { ...problem, b: { ...problem.b, slice: { ...problem.b.slice, offset: 12 } } };
      assert.equal(choose([{ op: "matmul", work: { kind: "gemm", problem: moved } }]).report.measured, 1);
    });
  });

  test("frees its memory and changes no value of the step", () => {
    withCosts([0.5, 0.3, Number.NaN], ({ runtime, choose }) => {
      const region = placeWeights(runtime);
      const before = { ...heldBy(runtime), weights: runtime.read(region.whole) };
      const call = gemmOf(region);
      const accumulating = { ...call.work.problem, beta: 1 };
      choose([call, { op: "matmul", work: { kind: "gemm", problem: accumulating } }]);
      const { weights, ...held } = before;
      assert.deepEqual(heldBy(runtime), held);
      sameBytes(runtime.read(region.whole), weights, "weights");
    });
  });

  test("times every native kernel, no matter how long it takes to compile", () => {
    // Its B is MN-major: there are configs with large tiles, and with small ones, which come second.
    const size = { m: 400, n: 264, k: 64 };
    const slice = (id: number, floats: number): BufferSlice => ({
      ...{ buffer: { id, bytes: 4 * floats, label: "operand" }, offset: 0, size: 4 * floats },
    });
    const problem: GemmCall["problem"] = {
      ...{ dtype: "f32", ...size },
      a: { slice: slice(0, size.m * size.k), rowStride: size.k },
      b: { slice: slice(1, size.k * size.n), rowStride: size.n },
      c: { slice: slice(2, size.m * size.n), rowStride: size.n },
    };
    const costMs = ({ gemm, cuda }: KernelSource): number => {
      if (gemm) return 2;
      return cuda?.code.includes("tileM = 64,") ? 1 : 3;
    };
    onDevice(
      costMs,
      ({ choose, compiled }) => {
        const { calls } = choose([{ op: "matmul", work: { kind: "gemm", problem } }]);
        assert.equal(problemOf(calls[0]).algorithm, -2);
        const [first = 0, ...others] = compiled;
        assert.ok(first >= 2, "the kernels of all candidates are compiled at once");
        assert.deepEqual(others, []);
      },
      { options: { precision: "tf32" }, compileMs: 1000 },
    );
  });

  test("credits native kernels for programmatic dependent launch, only where the device supports it", () => {
    const chosenOf = (supportsPdl: boolean, ...times: readonly [number, number][]): number | undefined =>
      fastestOf({ device: { supportsPdl } as DeviceInfo }, new Map(times))?.choice;
    assert.equal(chosenOf(true, [0, 6], [1, 7], [-1, 6.9]), -1);
    assert.equal(chosenOf(true, [0, 6], [1, 7], [-1, 7.3]), 0);
    assert.equal(chosenOf(true, [0, 6], [-1, 0.4], [-2, 0.9]), -1, "no time is less than none");
    assert.equal(chosenOf(false, [0, 6], [1, 5], [-1, 5.2]), 1);
    assert.equal(chosenOf(false, [0, 6], [1, 5], [-1, 4.8]), -1);
    assert.deepEqual(
      fastestOf(
        { device: { supportsPdl: true } as DeviceInfo },
        new Map([
          [0, 6],
          [-1, 6.9],
        ]),
      ),
      {
        ...{ choice: -1, firstUs: 6, tunedUs: 6.9 },
      },
    );
  });

  test("of about equal ones takes the one with the least scratch memory, then the first", () => {
    const device = { supportsPdl: false } as DeviceInfo;
    const times = new Map([
      [0, 5.1],
      [1, 5.05],
      [2, 5],
      [3, 6],
    ]);
    const chosenWith = (...bytes: readonly number[]): number | undefined =>
      fastestOf({ device }, times, new Map(bytes.entries()))?.choice;
    assert.equal(chosenWith(64, 64, 64, 0), 0);
    assert.equal(chosenWith(64, 32, 32, 0), 1);
    assert.equal(chosenWith(64, 64, 0, 0), 2);
  });

  test("ends in time: slow GEMMs are timed with few launches, and not with every algorithm", () => {
    withCosts([30, 20, 10], ({ runtime, choose, launches, clock }) => {
      const region = placeWeights(runtime);
      const { report } = choose([gemmOf(region)]);
      assert.equal(report.measured, 1);
      assert.equal(launches.get(1), undefined, "the first has used up half of the time");
      assert.ok(clock.nowMs() < 400, `${clock.nowMs()} ms`);
    });
  });

  test("of many GEMMs shares the time among them, and leaves the rest for later", () => {
    withCosts([200], ({ runtime, choose, clock }) => {
      emulator.set("gemmAlgorithms", 1);
      const region = placeWeights(runtime);
      const { problem } = gemmOf(region).work;
      const calls = Array.from({ length: 20 }, (_, index): Call => {
        const work: GemmCall = { kind: "gemm", problem: { ...problem, alpha: index } };
        return { op: "matmul", work };
      });
      const { report } = choose(calls);
      assert.ok(report.measured > 0 && report.measured < 20, `${report.measured} measured`);
      assert.ok(clock.nowMs() < 4500, `${clock.nowMs()} ms`);
      assert.ok(choose(calls).report.measured > 0);
    });
  });

  test("works with captures disabled", () => {
    withCosts(
      [0.5, 0.3, 0.2],
      ({ runtime, choose }) => {
        assert.equal(problemOf(choose([gemmOf(placeWeights(runtime))]).calls[0]).algorithm, 2);
        assert.equal(emulator.get("captures.threadLocal"), 0);
      },
      { capture: "off" },
    );
  });
});
