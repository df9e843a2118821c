/**
 * The random kernels, in WebAssembly and in CUDA C++. `randomBits` fills an array with Philox words; `advance` increments the counter of
 * its state. The state is in persistent memory and both run on the device, so every replay of a graph draws new words.
 *
 * Word i is word i mod 4 of philox({i div 4, 0, counter low, counter high}, seed). It depends only on the state and on i, so that blocks
 * can run in any order on any number of threads.
 */

import { type Code, encodeKernel, type KernelSource, type Label, type Local } from "../../driver/index.js";
import { advanceCode, randomBitsCode } from "./cuda-kernels.js";
import { keySteps, multipliers, rounds } from "./philox.js";
import { stateOffsets } from "./random-state.js";

/** Enough work for a thread; a multiple of four, so that only the last block can end within the four words of a counter. */
export const wordsPerBlock = 4096;
const blockShift = Math.log2(wordsPerBlock);
const wordsPerCounter = 4;
const wordBytes = 4;

/** The number of blocks of a launch of `randomBits` over `words` words. */
export function blocksForWords(words: number): number {
  return Math.ceil(words / wordsPerBlock);
}

type FourLocals = readonly [Local, Local, Local, Local];

/** The values that all counters of a launch share, loaded once. */
interface Draw {
  readonly key: readonly [Local, Local];
  readonly counter: readonly [Local, Local];
  /** As i64. */
  readonly multipliers: readonly [Local, Local];
}

function printRandomBits(code: Code): void {
  const [firstBlock, endBlock] = [code.parameter(0), code.parameter(1)];
  const [words, state, count] = [code.parameter(2), code.parameter(3), code.parameter(4)];
  const [at, end, address] = [code.local("i32"), code.local("i32"), code.local("i32")];
  const x: FourLocals = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("i32")];
  const draw = printDraw(code, state);
  pushFirstWord(code, firstBlock, count);
  code.set(at);
  pushFirstWord(code, endBlock, count);
  code.set(end);
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      code.get(words).get(at).i32(wordBytes).op("i32.mul").op("i32.add").set(address);
      const result = printPhilox(code, draw, at, x);
      code.get(end).get(at).op("i32.sub").i32(wordsPerCounter).op("i32.lt_u");
      code.if(() => storeUntilEnd(code, result, { address, at, end, leave }));
      for (const [index, word] of result.entries()) storeWord(code, word, address, index);
      code.get(at).i32(wordsPerCounter).op("i32.add").set(at).branch(again);
    });
  });
}

/** Pushes the index of a block's first word, or the count for blocks beyond the end. */
function pushFirstWord(code: Code, block: Local, count: Local): void {
  code.get(block).i32(blockShift).op("i32.shl").get(count);
  code.get(block).get(count).i32(blockShift).op("i32.shr_u").op("i32.le_u").op("select");
}

function printDraw(code: Code, state: Local): Draw {
  const load = (offset: number): Local => {
    const word = code.local("i32");
    code.get(state).memory("i32.load", offset).set(word);
    return word;
  };
  const widen = (value: number): Local => {
    const wide = code.local("i64");
    code.i32(value).op("i64.extend_i32_u").set(wide);
    return wide;
  };
  const { seed, counter } = stateOffsets;
  return {
    key: [load(seed), load(seed + wordBytes)],
    counter: [load(counter), load(counter + wordBytes)],
    multipliers: [widen(multipliers[0]), widen(multipliers[1])],
  };
}

/**
 * Computes the four words from word `at` on in the locals `x`, and returns these in order. The rounds are unrolled and scalar: a
 * vectorised version of four counters was measured slower, because of widening multiplications and transposition.
 */
function printPhilox(code: Code, { key, counter, multipliers }: Draw, at: Local, x: FourLocals): FourLocals {
  let [x0, x1, x2, x3] = x;
  code.get(at).i32(Math.log2(wordsPerCounter)).op("i32.shr_u").set(x0);
  code.i32(0).set(x1);
  code.get(counter[0]).set(x2);
  code.get(counter[1]).set(x3);
  for (let round = 0; round < rounds; round++) {
    const [growth0, growth1] = [Math.imul(round, keySteps[0]), Math.imul(round, keySteps[1])];
    printHalfRound(code, { multiplied: x2, by: multipliers[1], mixed: x1, key: key[0], growth: growth0 });
    printHalfRound(code, { multiplied: x0, by: multipliers[0], mixed: x3, key: key[1], growth: growth1 });
    // The new words 0 to 3 are in the locals of the old 1, 2, 3 and 0: rename instead of moving values.
    [x0, x1, x2, x3] = [x1, x2, x3, x0];
  }
  return [x0, x1, x2, x3];
}

interface HalfRound {
  readonly multiplied: Local;
  readonly by: Local;
  readonly mixed: Local;
  readonly key: Local;
  /** The key's increment over the previous rounds. */
  readonly growth: number;
}

/** `mixed` ^= the product's upper half ^ the round's key; `multiplied` = the product's lower half. */
function printHalfRound(code: Code, { multiplied, by, mixed, key, growth }: HalfRound): void {
  const product = code.local("i64");
  code.get(multiplied).op("i64.extend_i32_u").get(by).op("i64.mul").tee(product);
  code.i32(32).op("i64.extend_i32_u").op("i64.shr_u").op("i32.wrap_i64");
  // The key is combined first, while the multiplication is still in flight.
  code.get(mixed).get(key).i32(growth).op("i32.add").op("i32.xor").op("i32.xor").set(mixed);
  code.get(product).op("i32.wrap_i64").set(multiplied);
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

export const randomKernels = { randomBits, advance } as const satisfies Record<string, KernelSource>;
