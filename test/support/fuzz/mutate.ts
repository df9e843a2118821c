/**
 * Changes bytes at random, from a seed: flips, edges of number ranges, copies within the input, slices of
 * another input, cuts.
 */

/** Numbers from a seed: always the same ones. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to but not including `end`. */
  below(end: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let word = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    word = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word;
    return Math.floor((((word ^ (word >>> 14)) >>> 0) / 2 ** 32) * end);
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error("There is nothing to pick from.");
    return item;
  }
}

/** Bytes where parsers make mistakes: ends of ranges, lengths as varints, quotes and line ends. */
const edges: readonly (readonly number[])[] = [
  ...[[0], [1], [0x7f], [0x80], [0xff], [0x0a], [0x0d, 0x0a], [0x22], [0x2c], [0x2e], [0x7b], [0x5b]],
  [0xff, 0xff, 0xff, 0x7f],
  [0xff, 0xff, 0xff, 0xff],
  [0xff, 0xff, 0xff, 0xff, 0x07],
  [0xfe, 0xff, 0xff, 0xff, 0x0f],
  [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
  [0, 0, 0, 0, 0, 0, 0xf0, 0x7f],
  [...Buffer.from("-1")],
  [...Buffer.from("1e999")],
  [...Buffer.from("9007199254740993")],
  [...Buffer.from('"__proto__"')],
  [...Buffer.from("../../")],
  [...Buffer.from("\r\n\r\n")],
  [0xef, 0xbb, 0xbf],
  [0xed, 0xa0, 0x80],
];

const longest = 256 * 1024;

/** One to eight changes; `others` provide slices. */
export function mutate(input: Uint8Array, others: readonly Uint8Array[], random: SeededRandom): Uint8Array {
  let bytes: Uint8Array = Uint8Array.from(input);
  const changes = 1 + random.below(random.below(4) === 0 ? 8 : 2);
  for (let change = 0; change < changes; change++) bytes = changeOnce(bytes, others, random);
  return bytes.subarray(0, longest);
}

function changeOnce(bytes: Uint8Array, others: readonly Uint8Array[], random: SeededRandom): Uint8Array {
  // The end has the footer of some formats, and the beginning the header of others.
  const near = Math.min(bytes.length, 64 + random.below(512));
  const at = [random.below(bytes.length + 1), bytes.length - random.below(near + 1), random.below(near + 1)][
    random.below(3)
  ] as number;
  const length = 1 + random.below(random.below(3) === 0 ? 400 : 8);
  switch (random.below(8)) {
    case 0:
    case 1:
      return put(bytes, at, 1, [(bytes[at] ?? 0) ^ (1 << random.below(8))]);
    case 2:
      return put(bytes, at, 1, [random.below(256)]);
    case 3: {
      const edge = random.pick(edges);
      return put(bytes, at, random.below(2) * edge.length, edge);
    }
    case 4:
      return put(bytes, at, length, []);
    case 5: {
      const from = random.below(bytes.length + 1);
      return put(bytes, at, random.below(2) * length, bytes.subarray(from, from + length));
    }
    case 6: {
      const other = random.pick(others);
      const from = random.below(other.length + 1);
      return put(bytes, at, random.below(2) * length, other.subarray(from, from + length));
    }
    default:
      return random.below(6) === 0
        ? bytes.subarray(0, at)
        : put(bytes, at, 0, new Uint8Array(length).fill(bytes[at] ?? 0));
  }
}

/** The bytes with `removed` of them at an offset replaced. */
function put(bytes: Uint8Array, at: number, removed: number, inserted: ArrayLike<number>): Uint8Array {
  const rest = bytes.subarray(Math.min(bytes.length, at + removed));
  const result = new Uint8Array(at + inserted.length + rest.length);
  result.set(bytes.subarray(0, at));
  result.set(inserted, at);
  result.set(rest, at + inserted.length);
  return result;
}
