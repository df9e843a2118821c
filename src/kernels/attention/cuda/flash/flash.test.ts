/** Flash attention on CUDA, forward and backward, against float64. Without a GPU under test the kernels run on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { openRuntime, type Runtime, type Storage } from "holdfast/internals";
import {
  arrayOf,
  type Case,
  cases,
  plainCase,
  prepare,
  prepareMask,
  type Values,
} from "../../../../../test/support/attention-cases.js";
import { dropoutMemory, keptBy } from "../../../../../test/support/attention-dropout.js";
import {
  Dense,
  type Lookup,
  referenceAttention,
  referenceGradients,
} from "../../../../../test/support/attention-reference.js";
import { effort } from "../../../../../test/support/effort.js";
import { cudaMissing, put } from "../../../../../test/support/kernel-runtime.js";
import { openTestGpu, testDevice } from "../../../../../test/support/test-device.js";
import { interceptCalls, type KernelSource, strict } from "../../../../driver/index.js";
import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../../../ir/index.js";
import { submit } from "../../../submit.js";
import { attentionBackwardCalls, attentionCalls } from "../../attention.js";

type Element = "tf32" | "bf16" | "f16" | "f32" | "f64";

/** Of the largest element. For the tensor cores, the probabilities and their gradients are rounded to their elements. */
const tolerances: Readonly<Record<Element, number>> = {
  ...{ tf32: 3e-3, bf16: 2e-2, f16: 3e-3 },
  ...{ f32: 3e-6, f64: 1e-14 },
};

const codecs = {
  bf16: { narrow: narrowToBf16, widen: widenBf16 },
  f16: { narrow: narrowToF16, widen: widenF16 },
} as const;

/** Runs a function on a GPU whose precision is that of the elements. `alter` changes the code of kernels. */
function onGpu(element: Element, run: (runtime: Runtime) => void, alter = (code: string) => code): void {
  const gpu = openTestGpu();
  const driver = interceptCalls(strict(gpu), (call, args, proceed) => {
    const source = call === "loadKernel" ? (args[0] as KernelSource) : undefined;
    if (source?.cuda)
      Object.assign(args, [{ ...source, cuda: { ...source.cuda, code: alter(source.cuda.code) } }]);
    return proceed();
  });
  const runtime = openRuntime({
    ...{
      driver,
      memory: "64MiB",
      staging: "4MiB",
      poison: true,
      stallAfter: "off",
      environment: {},
      print: () => {},
    },
    precision: element === "tf32" || element === "f32" ? element : "bf16",
  });
  try {
    run(runtime);
  } finally {
    runtime.close();
    gpu.close();
  }
}

interface Options {
  /** Whether inputs and results are half floats in memory. */
  readonly areHalves?: boolean;
  /** The probability that a probability is dropped. */
  readonly dropoutP?: number;
  /** Whether backward reads the bits of kept probabilities; default: it draws again. */
  readonly storesBits?: boolean;
}

/** Of a red proof: those of its check, and of its case if they differ from the others'. */
interface ProofOptions extends Options {
  readonly element?: Element;
  readonly keyHeads?: number;
  /** The fault is a race, which a GPU may win. */
  readonly isRace?: boolean;
  readonly sizes?: { readonly rows: number; readonly columns: number };
}

/** Fails unless all results of a case are right, and the memory around them is unchanged. */
function checkFlash(
  on: Runtime,
  testCase: Case,
  element: Element,
  { areHalves = false, dropoutP, storesBits = false }: Options = {},
): void {
  const { batch, heads, keyHeads = heads, rows, columns, width, valueWidth, scale, isCausal } = testCase;
  const real = element === "f64" ? ("f64" as const) : ("f32" as const);
  const [operands, mask] = [prepare({ ...testCase, dtype: real }), prepareMask({ ...testCase, dtype: real })];
  // Inputs that every element type represents: what remains is the rounding inside of the kernels.
  for (const { values } of Object.values(operands))
    values.set(widenBf16(narrowToBf16(Float32Array.from(values))));
  const { narrow, widen } = codecs[element === "f16" ? "f16" : "bf16"];
  const dtype = element === "f16" ? ("f16" as const) : ("bf16" as const);
  const written = on.step(() => {
    const operand = (name: keyof typeof operands) => {
      const { layout, values } = operands[name];
      const input = areHalves ? narrow(values as Float32Array) : values;
      const { batchStride, headStride, rowStride, offset, extent } = layout;
      const [buffer, bytes] = [put(on, input, name), input.BYTES_PER_ELEMENT];
      const storage = on.view(buffer, offset * bytes, extent * bytes);
      const placed = { storage, batchStride, headStride, rowStride, ...(areHalves && ({ dtype } as const)) };
      return { buffer, placed } as const;
    };
    const numbers = (count: number, name: string) =>
      on.arena.allocate(arrayOf[real].BYTES_PER_ELEMENT * count, name);
    const results = {
      out: operand("out"),
      queryGradient: operand("queryGradient"),
      keyGradient: operand("keyGradient"),
      valueGradient: operand("valueGradient"),
    };
    const maskOperand = mask && { storage: put(on, mask.values, "mask"), ...mask.strides };
    const shape = { dtype: real, batch, heads, keyHeads, rows, columns, width, valueWidth } as const;
    const inputs = {
      ...{ ...shape, scale, isCausal, ...(areHalves && ({ resultDtype: dtype } as const)) },
      query: operand("query").placed,
      key: operand("key").placed,
      value: operand("value").placed,
      ...(maskOperand && { mask: maskOperand }),
      ...(dropoutP && { dropoutP }),
    };
    const dropout = dropoutP ? dropoutMemory(on, shape, storesBits) : undefined;
    const kept = { statistics: numbers(batch * heads * rows, "statistics"), out: results.out.placed };
    submit(on, attentionCalls({ ...inputs, ...kept, ...dropout?.forward }));
    const scoreGradient = mask && numbers(batch * heads * rows * columns, "scoreGradient");
    submit(
      on,
      attentionBackwardCalls({
        ...{ ...inputs, ...kept, ...dropout?.backward, deltas: numbers(batch * heads * rows, "deltas") },
        outGradient: operand("outGradient").placed,
        queryGradient: results.queryGradient.placed,
        keyGradient: results.keyGradient.placed,
        valueGradient: results.valueGradient.placed,
        ...(scoreGradient && { scoreGradient }),
      }),
    );
    const read = (storage: Storage): Values => {
      const bytes = on.read(storage).buffer;
      return areHalves ? widen(new Uint16Array(bytes)) : new arrayOf[real](bytes);
    };
    return {
      out: read(results.out.buffer),
      queryGradient: read(results.queryGradient.buffer),
      keyGradient: read(results.keyGradient.buffer),
      valueGradient: read(results.valueGradient.buffer),
      ...(scoreGradient && { scoreGradient: new arrayOf[real](on.read(scoreGradient).buffer) }),
    };
  });
  const { query, key, value, outGradient } = operands;
  const keyHeadOf = (head: number): number => Math.floor((head * keyHeads) / heads);
  const ofKeys = (at: Lookup): Lookup =>
    keyHeads === heads ? at : (b, h, row, d) => at(b, keyHeadOf(h), row, d);
  const inputs = { query: query.at, key: ofKeys(key.at), value: ofKeys(value.at) };
  const kept = dropoutP ? { kept: keptBy(testCase, dropoutP) } : {};
  const forward = referenceAttention(testCase, { ...inputs, ...kept, mask: mask?.at ?? (() => 0) });
  const backward = referenceGradients(testCase, {
    ...{ ...inputs, ...kept, probabilities: forward.probabilities.at, outGradient: outGradient.at },
  });
  const sumOfGroups = (dense: Dense, size: number): Dense => {
    if (keyHeads === heads) return dense;
    const sum = new Dense(batch, keyHeads, columns, size);
    eachElement([batch, heads, columns, size], (b, h, row, d) =>
      sum.add(b, keyHeadOf(h), row, d, dense.at(b, h, row, d)),
    );
    return sum;
  };
  const expected = {
    ...{ ...forward, ...backward },
    keyGradient: sumOfGroups(backward.keyGradient, width),
    valueGradient: sumOfGroups(backward.valueGradient, valueWidth),
  };
  const near = (name: string, found: number, wanted: number, size: number): void =>
    // Written so that NaN fails.
    assert.ok(Math.abs(found - wanted) <= tolerances[element] * size, `${name} is ${found}, not ${wanted}`);
  const sizeOf = (dense: Dense): number =>
    dense.values.reduce((most, one) => Math.max(most, Math.abs(one)), 1);
  for (const name of ["out", "queryGradient", "keyGradient", "valueGradient"] as const) {
    const { layout, values } = operands[name];
    const [dense, around] = [expected[name], new Set(values.keys())];
    const size = sizeOf(dense);
    const isOfRows = name === "out" || name === "queryGradient";
    const isWide = name === "out" || name === "valueGradient";
    eachElement(
      [batch, isOfRows ? heads : keyHeads, isOfRows ? rows : columns, isWide ? valueWidth : width],
      (...indices) => {
        const index = layout.indexOf(...indices);
        around.delete(index);
        near(`${name}[${indices}]`, written[name][index]!, dense.at(...indices), size);
      },
    );
    for (const index of around) assert.equal(written[name][index], values[index], `${name} at ${index}`);
  }
  if (!written.scoreGradient) return;
  const { values } = expected.scoreGradient;
  const size = sizeOf(expected.scoreGradient);
  for (const [index, wanted] of values.entries())
    near(`scoreGradient ${index}`, written.scoreGradient[index]!, wanted, size);
}

function eachElement(
  sizes: readonly [number, number, number, number],
  visit: (...indices: Parameters<Lookup>) => void,
) {
  const [batch, heads, rows, width] = sizes;
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let row = 0; row < rows; row++) for (let d = 0; d < width; d++) visit(b, h, row, d);
}

/** Rows and columns around the edges of tiles. */
const edges = fc.record({
  rows: fc.constantFrom(1, 15, 63, 64, 65, 90),
  columns: fc.constantFrom(1, 16, 31, 63, 65, 130),
  width: fc.constantFrom(1, 8, 15, 16, 17, 40, 64),
  valueWidth: fc.constantFrom(1, 9, 16, 24, 33, 64),
});

const severalTiles = { rows: 90, columns: 92 } as const;
const oneTile = { sizes: { rows: 18, columns: 20 } } as const;
const dropped = { dropoutP: 0.4, ...oneTile } as const;
const stored = { storesBits: true, dropoutP: 0.4 } as const;

const plain = {
  ...plainCase,
  heads: 2,
  rows: 70,
  columns: 67,
  width: 24,
  valueWidth: 17,
  scale: 0.4,
} as const;

describe("flash attention on CUDA", { skip: cudaMissing }, () => {
  for (const element of ["tf32", "bf16", "f32", "f64"] as const) {
    test(`in ${element} is right for every shape, layout and mask, and writes nothing else`, () => {
      onGpu(element, (runtime) => {
        const sizes = element === "f32" || element === "f64" ? { rows: 20, columns: 67, heads: 1 } : {};
        const order = "rows first" as const;
        const masked = { ...plain, ...sizes, isCausal: true, order, padding: 3, offset: 1 };
        checkFlash(runtime, { ...masked, mask: { shared: ["head"], hides: true } }, element);
        const numRuns = effort({ quick: 0, thorough: 25 });
        if (numRuns === 0) return;
        const random = fc.tuple(cases("f32"), edges).map(([one, sizes]) => ({ ...one, ...sizes, batch: 1 }));
        fc.assert(
          fc.property(random, (testCase) => checkFlash(runtime, { ...testCase, scale: 0.5 }, element)),
          { numRuns, seed: 11 },
        );
      });
    });
  }

  for (const element of ["bf16", "f16"] as const) {
    test(`of ${element} in memory copies aligned rows as they are, and rounds its results`, () => {
      onGpu(element, (runtime) => {
        // A width that is no multiple of 16: Hopper's kernels do not take it.
        const aligned = { ...plain, width: 24, valueWidth: 16, isCausal: true, order: "rows first" as const };
        checkFlash(runtime, aligned, element, { areHalves: true });
        checkFlash(runtime, { ...aligned, offset: 1, isCausal: false }, element, { areHalves: true });
      });
    });
  }

  test("drops the probabilities that the separate op drops, in both directions", () => {
    onGpu("bf16", (runtime) => {
      const narrow = { ...plain, width: 8, valueWidth: 8 };
      checkFlash(runtime, { ...narrow, rows: 70, columns: 20, isCausal: true }, "bf16", { dropoutP: 0.3 });
      checkFlash(runtime, { ...narrow, heads: 1, rows: 9, columns: 67 }, "bf16", { dropoutP: 0.3 });
    });
  });

  // Tiles of 64, 32 and 16 columns have a word of the bits, a half or a quarter.
  for (const element of ["bf16", "f32", "f64"] as const) {
    test(`in ${element} stores a bit for each probability, and drops the same in backward`, () => {
      const options = { dropoutP: 0.3, storesBits: true };
      const wide = { ...plain, heads: 2, keyHeads: 1, rows: 70, columns: 83, width: 64, valueWidth: 64 };
      onGpu(element, (runtime) =>
        checkFlash(runtime, { ...wide, scale: 0.1, isCausal: true }, element, options),
      );
    });
  }

  test("several heads of queries share a head of keys and values, with masks and dropout of their own", () => {
    onGpu("bf16", (runtime) => {
      const grouped = { ...plain, batch: 2, heads: 4, keyHeads: 2, rows: 18, columns: 20, isCausal: true };
      const mask = { shared: ["row"], hides: true } as const;
      checkFlash(runtime, { ...grouped, mask, order: "rows first" }, "bf16", { dropoutP: 0.2 });
    });
  });

  test("of heads of 256 computes the gradients of keys and values one after the other", () => {
    const wide = { ...plain, heads: 1, rows: 20, columns: 18, width: 256, valueWidth: 256, scale: 0.05 };
    onGpu("bf16", (runtime) => checkFlash(runtime, wide, "bf16", { areHalves: true }));
  });

  test("a row that is masked completely is NaN, and no other row", () => {
    onGpu("bf16", (runtime) => {
      runtime.step(() => {
        const [rows, columns, width] = [70, 70, 16];
        const values = put(runtime, new Float32Array(columns * width).fill(1), "values");
        const hidden = new Float32Array(rows * columns);
        hidden.fill(Number.NEGATIVE_INFINITY, 3 * columns, 4 * columns);
        // The first tile of this row is hidden, the second is not.
        hidden.fill(Number.NEGATIVE_INFINITY, 5 * columns, 5 * columns + 66);
        const operand = { storage: values, batchStride: 0, headStride: 0, rowStride: width };
        const out = runtime.arena.allocate(4 * rows * width, "out");
        const mask = { batchStride: 0, headStride: 0, rowStride: columns, columnStride: 1 };
        submit(
          runtime,
          attentionCalls({
            ...{ dtype: "f32", batch: 1, heads: 1, rows, columns, width, valueWidth: width, scale: 1 },
            ...{ query: operand, key: operand, value: operand, out: { ...operand, storage: out } },
            mask: { storage: put(runtime, hidden, "mask"), ...mask },
            statistics: runtime.arena.allocate(4 * rows, "statistics"),
          }),
        );
        const result = new Float32Array(runtime.read(out).buffer);
        for (const [index, value] of result.entries())
          assert.equal(value, Math.floor(index / width) === 3 ? Number.NaN : 1, `row ${index / width}`);
      });
    });
  });

  /** What is wrong, the line of the code and what replaces it, and the problem that shows it. */
  const faults = [
    ["a tile does not scale what was accumulated before", "result[i][j][2 * half] *= rescale;", ""],
    [
      "the last column of a causal row is hidden",
      "row + 1 < columns ? row + 1 : columns",
      "row < columns ? row : columns",
    ],
    ["the delta is left out", "gradients[i][j][e] - ofRow.delta", "gradients[i][j][e]"],
    [
      "the keys of the next tile overwrite those in use",
      "__syncthreads();\n    if (firstColumn + tileN",
      "if (firstColumn + tileN",
      { isRace: true },
    ],
    ["gradients see hidden columns", "column < columns && column <= row", "column < columns"],
    [
      "two tiles of queries share their statistics",
      "% stages * tileN + threadIdx.x] = statisticsOf",
      "% 1 * tileN + threadIdx.x] = statisticsOf",
    ],
    [
      "a group's heads of keys are those of queries",
      "(head / groupHeads)",
      "(head % (heads / groupHeads))",
      { keyHeads: 2, ...oneTile },
    ],
    [
      "a gradient of keys leaves out the last head of its group",
      "head < (sharedHead + 1) *",
      "head + 1 < (sharedHead + 1) *",
      { keyHeads: 1, ...oneTile },
    ],
    [
      "FMA reads the accumulators of one lane",
      "firstLane + column % 8 / 2",
      "firstLane",
      { element: "f32", ...oneTile },
    ],
    ["a delta has the products of half of its lanes", "step = lanes / 2", "step = lanes / 4", oneTile],
    [
      "lanes keep the numbers of their own call",
      "exchangeBits<1, 2, 0x33333333u>(dropped)",
      "dropped",
      dropped,
    ],
    ["backward draws the numbers of other rows", "2 * member + group % 2", "2 * member", dropped],
    [
      "a dropped probability has a gradient",
      "? dropoutScale * gradients[i][j][e] : 0",
      "? dropoutScale * gradients[i][j][e] : dropoutScale",
      dropped,
    ],
    ["stored bits are those of the next accumulators", "= (unsigned)kept;", "= (unsigned)kept >> 1;", stored],
    ["queries of odd numbers have the bits of even ones", "2 * member + i % 2", "2 * member", stored],
  ] as readonly (readonly [string, string, string, ProofOptions?])[];

  const tried = effort({ quick: faults.filter((_, index) => index % 2 === 0), thorough: faults });
  for (const [what, from, to, proof = {}] of tried) {
    const { element = "bf16", keyHeads, sizes = severalTiles, isRace = false, ...options } = proof;
    const skip = isRace && testDevice === "cuda" ? "a GPU may win the race" : false;
    test(`red proof: ${what}`, { skip }, () => {
      let isAltered = false;
      const alter = (code: string): string => {
        isAltered ||= code.includes(from);
        return code.replaceAll(from, to);
      };
      const causal = {
        ...plain,
        ...sizes,
        width: 16,
        valueWidth: 8,
        isCausal: true,
        ...(keyHeads && { heads: 2 * keyHeads, keyHeads }),
      };
      const check = () => onGpu(element, (runtime) => checkFlash(runtime, causal, element, options), alter);
      assert.throws(check, { code: "ERR_ASSERTION" });
      assert.ok(isAltered, "the code has the line");
    });
  }
});
