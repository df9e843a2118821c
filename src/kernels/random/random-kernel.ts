/**
 * The random kernels. `reserveDraw` copies the random state and increments its counter: the copy is a draw. A launch can reserve several.
 * The state is in persistent memory and the kernel runs on the device, so every replay of a graph has new draws. Forward and backward passes
 * compute the numbers of a draw wherever they need them.
 *
 * Number i of a draw has 16 bits: half i mod 8 of the words of philox({i div 8, 0, counter low, counter high}, seed), the low half of a word
 * first. It depends only on the draw and on i, so that blocks can run in any order on any number of threads. On a GPU the kernels that need
 * the numbers compute them (see `InputDtype`); on the CPU `drawMask` compares them with a threshold and stores the results.
 */

import { type Code, encodeKernel, type KernelSource, type Local } from "../../driver/index.js";
import { reserveDrawCode } from "./cuda-kernels.js";
import { numbersPerCall } from "./distributions.js";
import { stateBytes, stateOffsets } from "./random-state.js";
import { uses } from "./random-stream.js";
import {
  type FourLocals,
  type PhiloxInput,
  printMultipliers,
  printPhilox,
  printRange,
} from "./wasm-philox.js";

/** Enough work for a thread. */
export const callsPerBlock = 1024;
const blockShift = Math.log2(callsPerBlock);
const wordBytes = 4;

/** The number of blocks of a launch of `drawMask` with so many calls. */
export function blocksForCalls(calls: number): number {
  return Math.ceil(calls / callsPerBlock);
}

function printDrawMask(code: Code): void {
  const [firstBlock, endBlock] = [code.parameter(0), code.parameter(1)];
  const [mask, draw, count, threshold] = [2, 3, 4, 5].map((index) => code.parameter(index)) as [
    Local,
    Local,
    Local,
    Local,
  ];
  const [at, end] = [code.local("i32"), code.local("i32")];
  const [thresholds, ones, kept] = [code.local("v128"), code.local("v128"), code.local("v128")];
  const x: FourLocals = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("i32")];
  const input = printDraw(code, draw);
  code.get(threshold).i32(0x10001).op("i32.mul").op("i32x4.splat").set(thresholds);
  code.i32(0x10001).op("i32x4.splat").set(ones);
  printRange(code, { firstBlock, endBlock, count, blockShift }, at, end);
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      const [first, ...others] = printPhilox(code, input, at, x);
      code.get(mask).get(at).i32(numbersPerCall).op("i32.mul").op("i32.add");
      code.get(first).op("i32x4.splat");
      for (const [index, word] of others.entries()) code.get(word).lane("i32x4.replace_lane", index + 1);
      // Eight numbers are compared at once, and become eight bytes.
      code.get(thresholds).op("i16x8.lt_u").get(ones).op("v128.and").tee(kept);
      code.get(kept).op("i8x16.narrow_i16x8_u").lane("i64x2.extract_lane", 0).memory("i64.store");
      code.get(at).i32(1).op("i32.add").set(at).branch(again);
    });
  });
}

/** Loads the seed and the counter of a draw. */
export function printDraw(code: Code, state: Local): PhiloxInput {
  const load = (offset: number): Local => {
    const word = code.local("i32");
    code.get(state).memory("i32.load", offset).set(word);
    return word;
  };
  const { seed, counter } = stateOffsets;
  return {
    use: uses.draws,
    key: [load(seed), load(seed + wordBytes)],
    counter: [load(counter), load(counter + wordBytes)],
    multipliers: printMultipliers(code),
  };
}

/** Only block 0 does the work, so that a launch counts once, with any number of blocks. */
function printReserveDraw(code: Code): void {
  const [firstBlock, draws, state, count] = [0, 2, 3, 4].map((index) => code.parameter(index)) as [
    Local,
    Local,
    Local,
    Local,
  ];
  const [at, counter] = [code.local("i32"), code.local("i64")];
  code
    .get(firstBlock)
    .op("i32.eqz")
    .if(() => {
      code.get(state).memory("i64.load", stateOffsets.counter).set(counter);
      code.block((leave) => {
        code.loop((again) => {
          code.get(at).get(count).op("i32.ge_u").branchIf(leave);
          code
            .get(draws)
            .get(state)
            .memory("i64.load", stateOffsets.seed)
            .memory("i64.store", stateOffsets.seed);
          code.get(draws).get(counter).memory("i64.store", stateOffsets.counter);
          code.get(counter).i32(1).op("i64.extend_i32_u").op("i64.add").set(counter);
          code.get(draws).i32(stateBytes).op("i32.add").set(draws);
          code.get(at).i32(1).op("i32.add").set(at).branch(again);
        });
      });
      code.get(state).get(counter).memory("i64.store", stateOffsets.counter);
    });
}

/**
 * `drawMask(out mask, in draw, calls, threshold)`, over `blocksForCalls(calls)` blocks, on the CPU: byte i is 1 if number i of the draw is
 * below the threshold, else 0. The mask has eight bytes for each call; the threshold has 16 bits.
 */
const drawMask: KernelSource = encodeKernel({
  name: "drawMask",
  parameters: ["out", "in", "u32", "u32"],
  body: printDrawMask,
});

/** `reserveDraw(out draws, inout state, count)`, over one block: so many draws, one after the other. The counter wraps after 2⁶⁴ draws. */
const reserveDraw: KernelSource = {
  ...encodeKernel({ name: "reserveDraw", parameters: ["out", "inout", "u32"], body: printReserveDraw }),
  cuda: reserveDrawCode,
};

export const randomKernels = { drawMask, reserveDraw } as const satisfies Record<string, KernelSource>;
