/**
 * The random kernels against the plain Philox: any length, any number of threads, and in graphs, where each replay must draw anew
 * (regression C11: masks that were frozen into the graph).
 */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { expectedNumbers } from "../../../test/support/expected-numbers.js";
import { cudaMissing } from "../../../test/support/kernel-runtime.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { openTestDriver, openTestGpu } from "../../../test/support/test-device.js";
import { type Driver, openCpuDriver, strict } from "../../driver/index.js";
import { openRuntime, type Runtime, type Storage } from "../../runtime/index.js";
import { keepMask } from "./distributions.js";
import { blocksForCalls, callsPerBlock, randomKernels } from "./random-kernel.js";
import { decodeState, encodeState, type RandomState, stateBytes } from "./random-state.js";

const guardByte = 0xa5;
const guardBytes = 80;
const seed = 0x0123456789abcdefn;
const maxCalls = 4 * callsPerBlock;

/** An open device with a state, a draw and memory for a mask, and the actions of the tests. */
class Bench {
  readonly runtime: Runtime;
  readonly #state: Storage;
  readonly #draw: Storage;
  readonly #mask: Storage;
  readonly #closeDevice: () => void;

  constructor(device: Driver, calls = maxCalls) {
    this.#closeDevice = () => device.close();
    const driver = strict(device);
    this.runtime = openRuntime({
      driver,
      capture: "on",
      stallAfter: "off",
      environment: {},
      print: () => {},
    });
    const { storages } = this.runtime.persistent.place("scalars", "random", [
      { name: "state", size: stateBytes },
      { name: "draw", size: stateBytes },
      { name: "mask", size: 8 * calls + guardBytes },
    ]);
    [this.#state, this.#draw, this.#mask] = [storages[0]!, storages[1]!, storages[2]!];
    this.setState({ seed, counter: 0n });
  }

  setState(state: RandomState): void {
    this.runtime.upload([{ source: encodeState(state), target: this.#state }]);
  }

  readState(): RandomState {
    return decodeState(this.runtime.read(this.#state));
  }

  readDraw(): RandomState {
    return decodeState(this.runtime.read(this.#draw));
  }

  reserveDraw(blocks = 1, draws = this.#draw): void {
    const kernel = this.runtime.kernel(randomKernels.reserveDraw);
    const values = [draws, this.#state, draws.span.size / stateBytes];
    this.runtime.launch({ op: "reserveDraw", kernel, blocks, arguments: values });
  }

  /** Reserves draws in the memory of the mask, and returns them. */
  reserveDraws(count: number): readonly RandomState[] {
    this.runtime.fill(this.#mask, guardByte);
    this.reserveDraw(1, this.runtime.view(this.#mask, 0, count * stateBytes));
    const bytes = this.runtime.read(this.#mask);
    assert.ok(bytes.slice(count * stateBytes).every((byte) => byte === guardByte));
    return Array.from({ length: count }, (_, draw) =>
      decodeState(bytes.slice(draw * stateBytes, (draw + 1) * stateBytes)),
    );
  }

  /** Of the CPU. */
  drawMask(calls: number, threshold: number, blocks = blocksForCalls(calls)): void {
    const kernel = this.runtime.kernel(randomKernels.drawMask);
    const mask = this.runtime.view(this.#mask, 0, Math.max(1, 8 * calls));
    const values = [mask, this.#draw, calls, threshold];
    this.runtime.launch({ op: "drawMask", kernel, blocks, arguments: values });
  }

  readMask(): Uint8Array {
    return this.runtime.read(this.#mask);
  }

  /** Draws into memory filled with guard bytes, and compares all of it with the expected mask and the guards after it. */
  assertDraws(calls: number, threshold: number, state: RandomState, blocks?: number): void {
    this.setState(state);
    this.reserveDraw();
    this.runtime.fill(this.#mask, guardByte);
    this.drawMask(calls, threshold, blocks);
    const actual = this.readMask();
    const expected = new Uint8Array(actual.length).fill(guardByte);
    expected.set(keepMask(expectedNumbers(state, 8 * calls), threshold));
    sameBytes(actual, expected, `${calls} calls`);
  }

  close(): void {
    this.runtime.close();
    this.#closeDevice();
  }
}

const benches = new Map<string, Bench>();
after(() => {
  for (const opened of benches.values()) opened.close();
});

let bench: Bench;

/** The bench of a device, in its first state. */
function benchOn(name: string, open: () => Driver): Bench {
  const opened = benches.get(name) ?? new Bench(open());
  benches.set(name, opened);
  opened.setState({ seed, counter: 0n });
  return opened;
}

const cpus = [1, 2, 4].map((threads) => ({
  on: `${threads} threads`,
  skip: false as const,
  open: () => openCpuDriver({ threads }),
}));
const devices = [...cpus, { on: "CUDA", skip: cudaMissing, open: openTestGpu }] as const;
const benchOfCpu = (): Bench => benchOn("1 threads", () => openCpuDriver({ threads: 1 }));

describe("drawMask", () => {
  for (const { on, open } of cpus) {
    test(`compares the numbers of the reference Philox and writes nothing after them, on ${on}`, () => {
      bench = benchOn(on, open);
      const calls = fc.oneof(
        fc.integer({ min: 0, max: 5 }),
        fc.integer({ min: callsPerBlock - 2, max: callsPerBlock + 2 }),
        fc.integer({ min: 0, max: maxCalls }),
      );
      const wide = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
      const thresholds = fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0, 1, 0x8000, 0xffff));
      fc.assert(
        fc.property(calls, thresholds, wide, wide, (count, threshold, seed, counter) =>
          bench.assertDraws(count, threshold, { seed, counter }),
        ),
        { numRuns: effort({ quick: 8, thorough: 100 }) },
      );
    });
  }

  test("blocks after the end write nothing, also with the largest block numbers", () => {
    bench = benchOfCpu();
    for (const blocks of [3, 2 ** 20 + 1, 2 ** 31 - 1])
      bench.assertDraws(5, 0x4000, { seed, counter: 0n }, blocks);
  });

  test("many blocks give the same mask on 1, 2 and 4 threads", () => {
    const calls = effort({ quick: 50, thorough: 500 }) * callsPerBlock - 3;
    const [first, ...others] = [1, 2, 4].map((threads) => {
      bench = new Bench(openCpuDriver({ threads }), calls);
      bench.reserveDraw();
      bench.drawMask(calls, 0x8000);
      const mask = bench.readMask().slice(0, 8 * calls);
      bench.close();
      return mask;
    });
    for (const other of others) sameBytes(other, first!, "the mask of more threads");
  });

  test("the first decisions of seed 42 are frozen", () => {
    bench = benchOfCpu();
    bench.setState({ seed: 42n, counter: 0n });
    bench.reserveDraw();
    bench.drawMask(4, 0xc000);
    assert.equal(bench.readMask().slice(0, 32).join(""), "01111111101111111011111011111111");
  });
});

describe("reserveDraw", () => {
  for (const { on, skip, open } of devices) {
    test(`copies the state and increments its counter, with the carry into the high half, on ${on}`, {
      skip,
    }, () => {
      bench = benchOn(on, open);
      for (const [before, after] of [
        [0n, 1n],
        [2n ** 32n - 1n, 2n ** 32n],
        [2n ** 64n - 1n, 0n],
      ] as const) {
        bench.setState({ seed, counter: before });
        bench.reserveDraw(3);
        assert.deepEqual(bench.readDraw(), { seed, counter: before });
        assert.deepEqual(bench.readState(), { seed, counter: after });
      }
    });

    test(`reserves several draws as so many launches would, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      const first = 2n ** 32n - 5n;
      bench.setState({ seed, counter: first });
      const expected = Array.from({ length: 70 }, (_, draw) => ({ seed, counter: first + BigInt(draw) }));
      assert.deepEqual(bench.reserveDraws(70), expected);
      assert.deepEqual(bench.readState(), { seed, counter: first + 70n });
    });

    test(`counts once for every number of blocks, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      for (let launch = 0; launch < 20; launch++) bench.reserveDraw(64);
      assert.equal(bench.readState().counter, 20n);
    });

    test(`twenty replays of a graph reserve twenty draws, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      const graph = bench.runtime.capture("draw", () => bench.reserveDraw());
      assert.equal(graph.mode, "graph");
      assert.deepEqual(bench.readState(), { seed, counter: 0n }, "a capture draws nothing");
      for (let draw = 0n; draw < 20n; draw++) {
        graph.replay();
        assert.deepEqual(bench.readDraw(), { seed, counter: draw });
      }
      assert.deepEqual(bench.readState(), { seed, counter: 20n });
    });
  }

  test("a replay draws from the current state, such as that of a checkpoint", () => {
    bench = benchOn("the device under test", () => openTestDriver({ threads: 1 }));
    const graph = bench.runtime.capture("draw", () => bench.reserveDraw());
    graph.replay();
    const resumed = { seed: 7n, counter: 2n ** 40n };
    bench.setState(resumed);
    graph.replay();
    assert.deepEqual(bench.readDraw(), resumed);
  });

  test("a rejected capture leaves the state and the draw as they were", () => {
    bench = benchOn("the device under test", () => openTestDriver({ threads: 1 }));
    bench.reserveDraw();
    const [state, draw] = [bench.readState(), bench.readDraw()];
    rejects("CAPTURE_REJECTED", () =>
      bench.runtime.capture("bad", () => {
        bench.reserveDraw();
        bench.readState();
      }),
    );
    let calls = 0;
    rejects("CAPTURE_REJECTED", () =>
      bench.runtime.capture("restless", () => {
        for (let time = 0; time <= calls; time++) bench.reserveDraw();
        calls += 1;
      }),
    );
    assert.deepEqual(bench.readState(), state);
    assert.deepEqual(bench.readDraw(), draw);
  });
});
