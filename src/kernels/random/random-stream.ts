/**
 * The random streams of the host, and the counter layout that keeps all streams of a seed disjoint:
 *
 *   key            = the seed
 *   counter word 0 = the number of the block of four words in the stream
 *   counter word 1 = the use: 0 for draws on the device, and another number for each use on the host
 *   counter words 2, 3 = the stream's id; for draws on the device the state's counter
 *
 * A word depends only on seed, use, id and offset. So two processes get the same bits, any range of a stream can be drawn by itself, and
 * two tensors with different ids share no word.
 */

import { HoldfastError } from "../../errors/index.js";
import { philox, philoxInto, type Words4 } from "./philox.js";
import { halvesOf, type Seed } from "./seed.js";

export interface RandomStream {
  readonly seed: Seed;
  /** Which of the use's streams: a tensor's number, an epoch, the counter of a draw. */
  readonly id: Seed;
  /** Default: "values". */
  readonly use?: RandomUse;
}

/** The uses of streams: draws on the device, values and orders of the host, changes of samples. The numbers are part of the layout: changing one changes every run that used it. */
export const uses = { draws: 0, values: 1, order: 2, samples: 3 } as const;
export type RandomUse = keyof typeof uses;

const wordsPerBlock = 4;
/** Limited by the 32 bits of counter word 0. */
const wordsPerStream = wordsPerBlock * 2 ** 32;

/** A function from a block's index, 0 to 2³² − 1, to its four words. */
export function blocksOf({ seed, id }: RandomStream, use: RandomUse): (block: number) => Words4 {
  const key = halvesOf(seed, "seed");
  const [low, high] = halvesOf(id, "id of a random stream");
  return (block) => philox([block, uses[use], low, high], key);
}

/** Words `offset` to `offset + count` of a stream of values. */
export function drawWords(
  { seed, id, use = "values" }: RandomStream,
  count: number,
  offset = 0,
): Uint32Array<ArrayBuffer> {
  requireInStream(count, offset);
  const [key0, key1] = halvesOf(seed, "seed");
  const [low, high] = halvesOf(id, "id of a random stream");
  const words = new Uint32Array(count);
  let block = Math.floor(offset / wordsPerBlock);
  for (let at = -(offset % wordsPerBlock); at < count; at += wordsPerBlock)
    philoxInto(words, at, block++, uses[use], low, high, key0, key1);
  return words;
}

/** Rejects a range beyond the end of a stream, where its words would repeat. */
export function requireInStream(count: number, offset: number): void {
  const isWhole = Number.isSafeInteger(count) && Number.isSafeInteger(offset);
  if (isWhole && count >= 0 && offset >= 0 && offset + count <= wordsPerStream) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Cannot draw ${count} words from offset ${offset}; a random stream has the words 0 to ${wordsPerStream - 1}. ` +
      "Draw the rest from a stream with another id.",
    { numbers: { count, offset } },
  );
}
