/** Runs flash attention on wgmma, forward and backward, and compares it with float64. Without a GPU under test it runs on the emulator. */

import assert from "node:assert/strict";
import { openRuntime, type Runtime, type Storage } from "holdfast/internals";
import { interceptCalls, type KernelSource, strict } from "../../src/driver/index.js";
import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../src/ir/index.js";
import { attentionBackwardCalls, attentionCalls } from "../../src/kernels/attention/attention.js";
import type {
  HalfElement,
  Side,
  Sm90BackwardTile,
  Sm90FlashTile,
} from "../../src/kernels/attention/cuda/flash-sm90/config.js";
import { lowerSm90Backward, lowerSm90Forward } from "../../src/kernels/attention/cuda/flash-sm90/launch.js";
import { chooseBackwardTile, chooseForwardTile } from "../../src/kernels/attention/cuda/flash-sm90/tiles.js";
import { submit } from "../../src/kernels/submit.js";
import { type Case, prepare, prepareMask } from "./attention-cases.js";
import { dropoutMemory, keptBy } from "./attention-dropout.js";
import { Dense, type Lookup, referenceAttention, referenceGradients } from "./attention-reference.js";
import { openEmulator } from "./emulator.js";
import { put } from "./kernel-runtime.js";
import { openTestGpu, testDevice } from "./test-device.js";

type Element = HalfElement;

const codecs = {
  bf16: { narrow: narrowToBf16, widen: widenBf16 },
  f16: { narrow: narrowToF16, widen: widenF16 },
} as const;

/** Of the largest element. The probabilities and their gradients are rounded to the elements of the tensor cores. */
const tolerances: Readonly<Record<Element, number>> = { bf16: 2e-2, f16: 3e-3 };

export interface Run {
  /** Changes the code of kernels. */
  readonly alter?: (code: string) => string;
  /** Names of the loaded kernels are added here. */
  readonly loaded?: string[];
  /** On the emulator: threads run from the last to the first, and copies and products complete as late as they can. */
  readonly isReversed?: boolean;
}

/** The tiles of the kernels: forward, and of each side backward. */
export interface SweptTiles {
  readonly forward: Sm90FlashTile;
  readonly backward: Readonly<Record<Side, Sm90BackwardTile>>;
  /** Stages of the backward pass in one kernel. */
  readonly wholeStages?: number | undefined;
}

export function onGpu(
  { alter = (code) => code, loaded = [], isReversed = false }: Run,
  run: (runtime: Runtime) => void,
): void {
  const gpu = openTestGpu();
  const emulator = testDevice === "cuda" ? undefined : openEmulator();
  const before = emulator?.get("reversed") ?? 0;
  if (isReversed) emulator?.set("reversed", 1);
  const driver = interceptCalls(strict(gpu), (call, args, proceed) => {
    const source = call === "loadKernel" ? (args[0] as KernelSource) : undefined;
    if (source?.cuda) {
      loaded.push(source.name);
      Object.assign(args, [{ ...source, cuda: { ...source.cuda, code: alter(source.cuda.code) } }]);
    }
    return proceed();
  });
  const runtime = openRuntime({
    ...{ driver, memory: "256MiB", poison: true, stallAfter: "off", environment: {}, print: () => {} },
    precision: "bf16",
  });
  try {
    run(runtime);
  } finally {
    runtime.close();
    gpu.close();
    emulator?.set("reversed", before);
  }
}

const resultNames = ["out", "queryGradient", "keyGradient", "valueGradient"] as const;
type ResultName = (typeof resultNames)[number];

export interface Options {
  readonly element?: Element;
  /**
   * The tiles for long or short visits, or these; default: long. "whole": those for short visits, and backward in one kernel. Or the
   * problem's own, as the backend lowers it.
   */
  readonly tiles?: "long" | "short" | "whole" | "own" | SweptTiles;
  /** The probability that a probability is dropped. */
  readonly dropoutP?: number;
  /** Whether backward reads the bits of kept probabilities; default: it draws again. */
  readonly storesBits?: boolean;
}

/** Runs a case in both directions, and returns each result's buffer, whole. */
function runCase(
  on: Runtime,
  testCase: Case,
  operands: ReturnType<typeof prepare>,
  { element = "bf16", tiles = "long", dropoutP, storesBits = false }: Options,
) {
  const { batch, heads, keyHeads = heads, rows, columns, width, valueWidth, scale, isCausal } = testCase;
  const { narrow, widen } = codecs[element];
  return on.step(() => {
    const buffers = new Map<string, Storage>();
    const operand = (name: keyof typeof operands) => {
      const { layout, values } = operands[name];
      const { batchStride, headStride, rowStride, offset, extent } = layout;
      const buffer = buffers.get(name) ?? put(on, narrow(values as Float32Array), name);
      buffers.set(name, buffer);
      const storage = on.view(buffer, 2 * offset, 2 * extent);
      return { storage, batchStride, headStride, rowStride, dtype: element };
    };
    const numbers = (name: string) => on.arena.allocate(4 * batch * heads * rows, name);
    const mask = prepareMask(testCase);
    const shape = { dtype: "f32", batch, heads, keyHeads, rows, columns, width, valueWidth } as const;
    const both = {
      ...{ ...shape, scale, isCausal, resultDtype: element },
      ...{ query: operand("query"), key: operand("key"), value: operand("value"), out: operand("out") },
      statistics: numbers("statistics"),
      ...(dropoutP && { dropoutP }),
      ...(mask && { mask: { storage: put(on, mask.values, "mask"), ...mask.strides } }),
    };
    const dropout = dropoutP ? dropoutMemory(on, shape, storesBits) : undefined;
    const inputs = { ...both, ...dropout?.forward };
    const backward = {
      ...{ ...both, ...dropout?.backward, deltas: numbers("deltas"), outGradient: operand("outGradient") },
      queryGradient: operand("queryGradient"),
      keyGradient: operand("keyGradient"),
      valueGradient: operand("valueGradient"),
    };
    if (tiles === "own") {
      submit(on, attentionCalls(inputs));
      submit(on, attentionBackwardCalls(backward));
    } else {
      const visited = tiles === "short" || tiles === "whole" ? 1 : 1e6;
      const given = typeof tiles === "string" ? undefined : tiles;
      const forwardTile: typeof chooseForwardTile = (config, work) =>
        given?.forward ?? chooseForwardTile(config, { ...work, sms: 1, visited });
      const backwardTile: typeof chooseBackwardTile = (config, work) =>
        given?.backward[config.side] ?? chooseBackwardTile(config, { ...work, sms: 1, visited });
      const wholeTile: NonNullable<Parameters<typeof lowerSm90Backward>[5]> = (_, { rows }) => {
        const stages = given ? given.wholeStages : tiles === "whole" ? 2 : undefined;
        const queryTiles = Math.ceil(rows / 64);
        return stages === undefined
          ? undefined
          : { warpgroups: 1, tileN: 64, stages, blocksPerSm: 1, queryTiles };
      };
      for (const commands of [
        lowerSm90Forward(on, inputs, "partial-out", "forward", forwardTile),
        lowerSm90Backward(on, backward, "partial-out", "backward", backwardTile, wholeTile),
      ]) {
        assert.ok(commands, "wgmma computes it");
        on.submit(on.load(commands));
      }
    }
    const read = (name: ResultName): Float32Array =>
      widen(new Uint16Array(on.read(buffers.get(name) as Storage).buffer));
    return {
      out: read("out"),
      queryGradient: read("queryGradient"),
      keyGradient: read("keyGradient"),
      valueGradient: read("valueGradient"),
    };
  });
}

/** The operands of a case and its results in float64. */
export function refer(testCase: Case, dropoutP?: number) {
  const operands = prepare(testCase);
  // Values that both element types represent: what remains is the rounding inside of the kernels.
  for (const { values } of Object.values(operands))
    values.set(widenF16(narrowToF16(widenBf16(narrowToBf16(values as Float32Array)))));
  const { batch, heads, keyHeads = heads, columns, width, valueWidth } = testCase;
  const keyHeadOf = (head: number): number => Math.floor((head * keyHeads) / heads);
  const shared =
    (at: Lookup): Lookup =>
    (b, h, row, d) =>
      at(b, keyHeadOf(h), row, d);
  const { query, key, value, outGradient } = operands;
  const inputs = { query: query.at, key: shared(key.at), value: shared(value.at) };
  const kept = dropoutP ? { kept: keptBy(testCase, dropoutP) } : {};
  const { out, probabilities } = referenceAttention(testCase, {
    ...inputs,
    ...kept,
    mask: prepareMask(testCase)?.at ?? (() => 0),
  });
  const gradients = referenceGradients(testCase, {
    ...{ ...inputs, ...kept, probabilities: probabilities.at, outGradient: outGradient.at },
  });
  // A head of keys gets the gradients of all heads that share it.
  const summed = (dense: Dense, size: number): Dense => {
    const sum = new Dense(batch, keyHeads, columns, size);
    for (let b = 0; b < batch; b++)
      for (let h = 0; h < heads; h++)
        for (let row = 0; row < columns; row++)
          for (let d = 0; d < size; d++) sum.add(b, keyHeadOf(h), row, d, dense.at(b, h, row, d));
    return sum;
  };
  const { queryGradient, keyGradient, valueGradient } = gradients;
  const expected = {
    ...{ out, queryGradient },
    ...{ keyGradient: summed(keyGradient, width), valueGradient: summed(valueGradient, valueWidth) },
  };
  return { operands, expected };
}

/** By case: several tests have the same. */
const references = new Map<string, ReturnType<typeof refer>>();

/** Fails unless the results of a case are right, and the memory around them is unchanged. */
export function check(on: Runtime, testCase: Case, options: Options = {}): void {
  const { element = "bf16", dropoutP } = options;
  const { batch, heads, keyHeads = heads, rows, columns, width, valueWidth } = testCase;
  const key = JSON.stringify([testCase, dropoutP]);
  const { operands, expected } = references.get(key) ?? refer(testCase, dropoutP);
  references.set(key, { operands, expected });
  const written = runCase(on, testCase, operands, options);
  for (const name of resultNames) {
    const { layout, values } = operands[name];
    const around = new Set(values.keys());
    const largest = expected[name].values.reduce(
      (most, one) => (Math.abs(one) > most ? Math.abs(one) : most),
      1,
    );
    const isOfRows = name === "out" || name === "queryGradient";
    const [long, headCount] = isOfRows ? [rows, heads] : [columns, keyHeads];
    const wide = name === "out" || name === "valueGradient" ? valueWidth : width;
    for (let b = 0; b < batch; b++)
      for (let h = 0; h < headCount; h++)
        for (let row = 0; row < long; row++)
          for (let d = 0; d < wide; d++) {
            const index = layout.indexOf(b, h, row, d);
            around.delete(index);
            const [found, wanted] = [written[name][index]!, expected[name].at(b, h, row, d)];
            // Written so that NaN fails, unless it is expected.
            if (!Object.is(found, wanted) && !(Math.abs(found - wanted) <= tolerances[element] * largest))
              assert.fail(`${name}[${b}, ${h}, ${row}, ${d}] is ${found}, not ${wanted}`);
          }
    for (const index of around) assert.equal(written[name][index], values[index], `${name} at ${index}`);
  }
}
