/**
 * The random kernels, in WebAssembly and in CUDA C++. `randomBits` fills an array with Philox words; `advance` increments the counter of
 * its state; `reserveDraw` copies the state before that, for kernels that draw the words themselves, now and in the backward pass.
 * The state is in persistent memory and all run on the device, so every replay of a graph draws new words.
 *
 * Word i is word i mod 4 of philox({i div 4, 0, counter low, counter high}, seed). It depends only on the state and on i, so that blocks
 * can run in any order on any number of threads.
 */

import { type Code, encodeKernel, type KernelSource, type Label, type Local } from "../../driver/index.js";
import { advanceCode, randomBitsCode, reserveDrawCode } from "./cuda-kernels.js";
import { stateOffsets } from "./random-state.js";
import {
  type FourLocals,
  type PhiloxInput,
  printMultipliers,
  printPhilox,
  printRange,
  wordsPerCounter,
} from "./wasm-philox.js";

/** Enough work for a thread; a multiple of four, so that only the last block can end within the four words of a counter. */
export const wordsPerBlock = 4096;
const blockShift = Math.log2(wordsPerBlock);
const wordBytes = 4;

/** The number of blocks of a launch of `randomBits` over `words` words. */
export function blocksForWords(words: number): number {
  return Math.ceil(words / wordsPerBlock);
}

function printRandomBits(code: Code): void {
  const [firstBlock, endBlock] = [code.parameter(0), code.parameter(1)];
  const [words, state, count] = [code.parameter(2), code.parameter(3), code.parameter(4)];
  const [at, end, address] = [code.local("i32"), code.local("i32"), code.local("i32")];
  const block = code.local("i32");
  const x: FourLocals = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("i32")];
  const draw = printDraw(code, state);
  printRange(code, { firstBlock, endBlock, count, blockShift }, at, end);
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      code.get(words).get(at).i32(wordBytes).op("i32.mul").op("i32.add").set(address);
      code.get(at).i32(Math.log2(wordsPerCounter)).op("i32.shr_u").set(block);
      const result = printPhilox(code, draw, block, x);
      code.get(end).get(at).op("i32.sub").i32(wordsPerCounter).op("i32.lt_u");
      code.if(() => storeUntilEnd(code, result, { address, at, end, leave }));
      for (const [index, word] of result.entries()) storeWord(code, word, address, index);
      code.get(at).i32(wordsPerCounter).op("i32.add").set(at).branch(again);
    });
  });
}

function printDraw(code: Code, state: Local): PhiloxInput {
  const load = (offset: number): Local => {
    const word = code.local("i32");
    code.get(state).memory("i32.load", offset).set(word);
    return word;
  };
  const { seed, counter } = stateOffsets;
  return {
    use: 0,
    key: [load(seed), load(seed + wordBytes)],
    counter: [load(counter), load(counter + wordBytes)],
    multipliers: printMultipliers(code),
  };
}

function storeWord(code: Code, word: Local, address: Local, index: number): void {
  code
    .get(address)
    .get(word)
    .memory("i32.store", index * wordBytes);
}

/** Stores the words up to the array's end, then leaves the loop. */
function storeUntilEnd(
  code: Code,
  words: FourLocals,
  { address, at, end, leave }: { address: Local; at: Local; end: Local; leave: Label },
): void {
  for (const [index, word] of words.entries()) {
    code.get(at).i32(index).op("i32.add").get(end).op("i32.ge_u").branchIf(leave);
    storeWord(code, word, address, index);
  }
}

/** Only block 0 increments the counter, so that a launch counts once, with any number of blocks. */
function printAdvance(code: Code): void {
  const [firstBlock, state] = [code.parameter(0), code.parameter(2)];
  code
    .get(firstBlock)
    .op("i32.eqz")
    .if(() => {
      code.get(state).get(state).memory("i64.load", stateOffsets.counter);
      code.i32(1).op("i64.extend_i32_u").op("i64.add").memory("i64.store", stateOffsets.counter);
    });
}

/** As `printAdvance`, after a copy of the state. */
function printReserveDraw(code: Code): void {
  const [firstBlock, draw, state] = [code.parameter(0), code.parameter(2), code.parameter(3)];
  code
    .get(firstBlock)
    .op("i32.eqz")
    .if(() => {
      for (const offset of Object.values(stateOffsets))
        code.get(draw).get(state).memory("i64.load", offset).memory("i64.store", offset);
      code.get(state).get(state).memory("i64.load", stateOffsets.counter);
      code.i32(1).op("i64.extend_i32_u").op("i64.add").memory("i64.store", stateOffsets.counter);
    });
}

/** `randomBits(out words, in state, count)`, over `blocksForWords(count)` blocks. */
const randomBits: KernelSource = {
  ...encodeKernel({ name: "randomBits", parameters: ["out", "in", "u32"], body: printRandomBits }),
  cuda: randomBitsCode(wordsPerBlock),
};

/** `advance(inout state)`, over one block: increments the counter, which wraps after 2⁶⁴ draws. */
const advance: KernelSource = {
  ...encodeKernel({ name: "advance", parameters: ["inout"], body: printAdvance }),
  cuda: advanceCode,
};

/** `reserveDraw(out draw, inout state)`, over one block: copies the state to `draw`, then increments the state's counter. */
const reserveDraw: KernelSource = {
  ...encodeKernel({ name: "reserveDraw", parameters: ["out", "inout"], body: printReserveDraw }),
  cuda: reserveDrawCode,
};

export const randomKernels = { randomBits, advance, reserveDraw } as const satisfies Record<
  string,
  KernelSource
>;
