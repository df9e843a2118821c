/**
 * The random kernels, in WebAssembly and in CUDA C++. `randomBits` fills an array with Philox words; `advance` moves its
 * state on to the next draw. The state lies in persistent memory and both run on the device, so a replayed graph draws
 * anew each time instead of repeating what was drawn when it was captured.
 *
 * Word i is word i mod 4 of philox({i div 4, 0, counter low, counter high}, seed): it follows from the state and from i
 * alone, so blocks may run in any order on any number of threads.
 */

import { type Code, encodeKernel, type KernelSource, type Label, type Local } from "../../driver/index.js";
import { advanceCode, randomBitsCode } from "./cuda-kernels.js";
import { keySteps, multipliers, rounds } from "./philox.js";
import { stateOffsets } from "./random-state.js";

/** Enough to be worth handing to a thread, and a multiple of four: only the last block can end inside a counter's words. */
export const wordsPerBlock = 4096;
const blockShift = Math.log2(wordsPerBlock);
const wordsPerCounter = 4;
const wordBytes = 4;

/** How many blocks a launch of `randomBits` over `words` needs. */
export function blocksForWords(words: number): number {
  return Math.ceil(words / wordsPerBlock);
}

type FourLocals = readonly [Local, Local, Local, Local];

/** What every counter of a launch shares, loaded once. */
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

/** Pushes the number of a block's first word, or the count for blocks behind the end, however large their numbers. */
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
 * Computes the four words that begin with word `at`, in the locals `x`, and tells which of them holds which. The rounds
 * are unrolled, and their products are scalar: four counters in a vector, with the widening multiplications and the
 * transposition that this takes, were measured slower.
 */
function printPhilox(code: Code, { key, counter, multipliers }: Draw, at: Local, x: FourLocals): FourLocals {
  let [x0, x1, x2, x3] = x;
  code.get(at).i32(Math.log2(wordsPerCounter)).op("i32.shr_u").set(x0);
  code.i32(0).set(x1);
  code.get(counter[0]).set(x2);
  code.get(counter[1]).set(x3);
  for (let round = 0; round < rounds; round++) {
    const [growth0, growth1] = [Math.imul(round, keySteps[0]), Math.imul(round, keySteps[1])];
    printHalfRound(code, { multiplied: x2, by: multipliers[1], joined: x1, key: key[0], growth: growth0 });
    printHalfRound(code, { multiplied: x0, by: multipliers[0], joined: x3, key: key[1], growth: growth1 });
    // The new words 0 to 3 lie where the old 1, 2, 3 and 0 were: names move instead of values.
    [x0, x1, x2, x3] = [x1, x2, x3, x0];
  }
  return [x0, x1, x2, x3];
}

interface HalfRound {
  readonly multiplied: Local;
  readonly by: Local;
  readonly joined: Local;
  readonly key: Local;
  /** What the key has grown by in the rounds before. */
  readonly growth: number;
}

/** `joined` ^= the product's upper half ^ the round's key; `multiplied` = the product's lower half. */
function printHalfRound(code: Code, { multiplied, by, joined, key, growth }: HalfRound): void {
  const product = code.local("i64");
  code.get(multiplied).op("i64.extend_i32_u").get(by).op("i64.mul").tee(product);
  code.i32(32).op("i64.extend_i32_u").op("i64.shr_u").op("i32.wrap_i64");
  // The key meets `joined` first: that can happen while the product is still under way.
  code.get(joined).get(key).i32(growth).op("i32.add").op("i32.xor").op("i32.xor").set(joined);
  code.get(product).op("i32.wrap_i64").set(multiplied);
}

function storeWord(code: Code, word: Local, address: Local, index: number): void {
  code
    .get(address)
    .get(word)
    .memory("i32.store", index * wordBytes);
}

/** Stores the words before the array's end, and leaves at it. */
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

/** Whoever gets block 0 adds one, so a launch counts once whatever its blocks. */
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

/** `advance(inout state)`, over one block: the counter grows by one, and wraps round after 2⁶⁴ draws. */
const advance: KernelSource = {
  ...encodeKernel({ name: "advance", parameters: ["inout"], body: printAdvance }),
  cuda: advanceCode,
};

export const randomKernels = { randomBits, advance } as const satisfies Record<string, KernelSource>;
