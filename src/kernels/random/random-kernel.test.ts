/**
 * The random kernels against the plain Philox, word for word: any length, any number of threads, and in graphs, where each
 * replay must draw anew (regression C11: masks that were frozen into the graph).
 */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { expectedWords } from "../../../test/support/expected-words.js";
import { cudaMissing } from "../../../test/support/kernel-runtime.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { openTestDriver, openTestGpu, testDevice } from "../../../test/support/test-device.js";
import { type Driver, openCpuDriver, strict } from "../../driver/index.js";
import { openRuntime, type Runtime, type Storage } from "../../runtime/index.js";
import { blocksForWords, randomKernels, wordsPerBlock } from "./random-kernel.js";
import { decodeState, encodeState, type RandomState, stateBytes } from "./random-state.js";

const guardByte = 0xa5;
const guardWords = 20;
const seed = 0x0123456789abcdefn;

/** An open device with a state and memory for words, and the actions of the tests. */
class Bench {
  readonly runtime: Runtime;
  readonly state: Storage;
  readonly words: Storage;
  readonly #closeDevice: () => void;

  constructor(device: Driver, room = 4 * wordsPerBlock) {
    this.#closeDevice = () => device.close();
    const driver = strict(device);
    this.runtime = openRuntime({
      driver,
      capture: "on",
      stallAfter: "off",
      environment: {},
      print: () => {},
    });
    const region = this.runtime.persistent.place("scalars", "random", [
      { name: "state", size: stateBytes },
      { name: "words", size: 4 * (room + guardWords) },
    ]);
    this.state = region.storages[0]!;
    this.words = region.storages[1]!;
    this.setState({ seed, counter: 0n });
  }

  setState(state: RandomState): void {
    this.runtime.upload([{ source: encodeState(state), target: this.state }]);
  }

  readState(): RandomState {
    return decodeState(this.runtime.read(this.state));
  }

  randomBits(count: number, blocks = blocksForWords(count), words = this.words): void {
    const kernel = this.runtime.kernel(randomKernels.randomBits);
    const values = [words, this.state, count];
    this.runtime.launch({ op: "randomBits", kernel, blocks, arguments: values });
  }

  /** The copy that it makes is in the first words. */
  reserveDraw(blocks = 1): RandomState {
    const kernel = this.runtime.kernel(randomKernels.reserveDraw);
    const draw = this.runtime.view(this.words, 0, stateBytes);
    this.runtime.launch({ op: "reserveDraw", kernel, blocks, arguments: [draw, this.state] });
    return decodeState(this.runtime.read(draw));
  }

  advance(blocks = 1): void {
    const kernel = this.runtime.kernel(randomKernels.advance);
    this.runtime.launch({ op: "advance", kernel, blocks, arguments: [this.state] });
  }

  readWords(): Uint32Array {
    return new Uint32Array(this.runtime.read(this.words).buffer);
  }

  /** Draws into a storage filled with guard words, and compares all of it with the expected words and the guards after them. */
  assertDraws(count: number, state: RandomState, blocks?: number): void {
    this.setState(state);
    this.runtime.fill(this.words, guardByte);
    this.randomBits(count, blocks);
    const actual = this.readWords();
    const expected = new Uint32Array(actual.length).fill(guardByte * 0x01010101);
    expected.set(expectedWords(state, count));
    sameBytes(actual, expected, `${count} words`);
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

const benchOfTestDevice = (): Bench => benchOn("the device under test", () => openTestDriver({ threads: 1 }));

const devices = [
  ...[1, 2, 4].map((threads) => ({
    on: `${threads} threads`,
    skip: false,
    open: () => openCpuDriver({ threads }),
  })),
  { on: "CUDA", skip: cudaMissing, open: openTestGpu },
] as const;

describe("randomBits", () => {
  for (const { on, skip, open } of devices) {
    test(`gives the words of the reference Philox and writes nothing after them, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      const counts = fc.oneof(
        fc.integer({ min: 0, max: 40 }),
        fc.integer({ min: wordsPerBlock - 5, max: wordsPerBlock + 5 }),
        fc.integer({ min: 0, max: 4 * wordsPerBlock }),
      );
      const wide = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
      fc.assert(
        fc.property(counts, wide, wide, (count, seed, counter) =>
          bench.assertDraws(count, { seed, counter }),
        ),
        { numRuns: effort({ quick: 8, thorough: 100 }) },
      );
    });
  }

  for (const { on, skip, open } of devices) {
    test(`gives the same words at an address that is not aligned to 16 bytes, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      const count = wordsPerBlock + 7;
      for (const before of [1, 2, 3]) {
        bench.runtime.fill(bench.words, guardByte);
        bench.randomBits(count, undefined, bench.runtime.view(bench.words, 4 * before, 4 * count));
        const expected = new Uint32Array(bench.readWords().length).fill(guardByte * 0x01010101);
        expected.set(expectedWords({ seed, counter: 0n }, count), before);
        sameBytes(bench.readWords(), expected, `${before} words on`);
      }
    });
  }

  test("every count from 0 to 40 is correct, also with too many blocks", () => {
    bench = benchOfTestDevice();
    for (let count = 0; count <= 40; count++) bench.assertDraws(count, { seed, counter: 5n }, 3);
  });

  test("blocks far after the end write nothing, also with the largest block numbers", () => {
    bench = benchOfTestDevice();
    // The emulator runs them one by one, and a GPU takes its time for billions.
    const counts = {
      cpu: [2 ** 20 + 1, 2 ** 31 - 1],
      cuda: [2 ** 20 + 1, 2 ** 26 + 1],
      emulator: [2 ** 12 + 1],
    }[testDevice];
    for (const blocks of counts) bench.assertDraws(5, { seed, counter: 0n }, blocks);
  });

  test("many blocks give the same words on 1, 2 and 4 threads", () => {
    const room = effort({ quick: 100, thorough: 1000 }) * wordsPerBlock - 3;
    const [first, ...others] = [1, 2, 4].map((threads) => {
      bench = new Bench(openCpuDriver({ threads }), room);
      bench.randomBits(room);
      const words = bench.readWords().slice(0, room);
      bench.close();
      return words;
    });
    for (const other of others) sameBytes(other, first!, "the words of more threads");
  });

  test("the first words of seed 42 are frozen", () => {
    bench = benchOfTestDevice();
    bench.setState({ seed: 42n, counter: 0n });
    bench.randomBits(6);
    assert.deepEqual(
      [...bench.readWords().slice(0, 6)],
      [0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7, 0xfcdb2127, 0x53ba6cfd],
    );
  });
});

describe("advance", () => {
  for (const { on, skip, open } of devices) {
    test(`increments the counter, carries into its high half, and wraps at the end, on ${on}`, {
      skip,
    }, () => {
      bench = benchOn(on, open);
      for (const [before, after] of [
        [0n, 1n],
        [2n ** 32n - 1n, 2n ** 32n],
        [2n ** 64n - 1n, 0n],
      ] as const) {
        bench.setState({ seed, counter: before });
        bench.advance();
        assert.deepEqual(bench.readState(), { seed, counter: after });
      }
    });

    test(`reserveDraw copies the state, and increments it as advance does, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      const state = { seed, counter: 2n ** 32n - 1n };
      bench.setState(state);
      assert.deepEqual(bench.reserveDraw(3), state);
      assert.deepEqual(bench.readState(), { seed, counter: 2n ** 32n });
    });

    test(`counts once for every number of blocks, on ${on}`, { skip }, () => {
      bench = benchOn(on, open);
      for (let launch = 0; launch < 20; launch++) bench.advance(64);
      assert.equal(bench.readState().counter, 20n);
    });
  }
});

describe("in a graph", () => {
  const count = wordsPerBlock + 3;
  const draw = (): void => {
    bench.randomBits(count);
    bench.advance();
  };

  for (const { on, skip, open } of devices) {
    test(`twenty replays draw the same words as twenty direct runs, new ones each time, on ${on}`, {
      skip,
    }, () => {
      bench = benchOn(on, open);
      const drawTwenty = (once: () => void): Uint32Array[] =>
        Array.from({ length: 20 }, () => {
          once();
          return bench.readWords().slice(0, count);
        });
      const direct = drawTwenty(draw);
      bench.setState({ seed, counter: 0n });
      const graph = bench.runtime.capture("draw", draw);
      assert.equal(graph.mode, "graph");
      assert.deepEqual(bench.readState(), { seed, counter: 0n }, "a capture draws nothing");
      const replayed = drawTwenty(() => graph.replay());
      for (const [turn, words] of replayed.entries()) sameBytes(words, direct[turn]!, `replay ${turn}`);
      assert.equal(new Set(replayed.map((words) => words.join())).size, 20);
      assert.deepEqual(bench.readState(), { seed, counter: 20n });
    });
  }

  test("without advance every replay draws the same words", () => {
    bench = benchOfTestDevice();
    const graph = bench.runtime.capture("stuck", () => bench.randomBits(count));
    graph.replay();
    const first = bench.readWords();
    graph.replay();
    sameBytes(bench.readWords(), first, "the second replay");
  });

  test("a replay draws from the current state, such as that of a checkpoint", () => {
    bench = benchOfTestDevice();
    const graph = bench.runtime.capture("draw", draw);
    graph.replay();
    const resumed = { seed: 7n, counter: 2n ** 40n };
    bench.setState(resumed);
    graph.replay();
    sameBytes(bench.readWords().slice(0, count), expectedWords(resumed, count), "the resumed draw");
  });

  test("a rejected capture leaves the state and the words as they were", () => {
    bench = benchOfTestDevice();
    draw();
    const [state, words] = [bench.readState(), bench.readWords()];
    rejects("CAPTURE_REJECTED", () =>
      bench.runtime.capture("bad", () => {
        draw();
        bench.readState();
      }),
    );
    let calls = 0;
    rejects("CAPTURE_REJECTED", () =>
      bench.runtime.capture("restless", () => {
        for (let time = 0; time <= calls; time++) draw();
        calls += 1;
      }),
    );
    assert.deepEqual(bench.readState(), state);
    sameBytes(bench.readWords(), words, "the words");
  });
});
