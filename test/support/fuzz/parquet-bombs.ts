/**
 * Small Parquet files with huge claims: each has valid metadata except for one claim. Written by hand,
 * because no writer produces them.
 */

import type { SeededRandom } from "./mutate.js";

/** A value of Thrift's compact protocol: its type and its bytes. */
interface ThriftValue {
  readonly type: number;
  readonly bytes: readonly number[];
}

function varint(value: number | bigint): number[] {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  return [...bytes, Number(rest)];
}

const zigzag = (value: bigint): bigint => (value << 1n) ^ (value >> 63n);
const i32 = (value: number): ThriftValue => ({ type: 5, bytes: varint(zigzag(BigInt(value))) });
const i64 = (value: number): ThriftValue => ({ type: 6, bytes: varint(zigzag(BigInt(value))) });
const text = (value: string): ThriftValue => {
  const bytes = new TextEncoder().encode(value);
  return { type: 8, bytes: [...varint(bytes.length), ...bytes] };
};
const isFalse: ThriftValue = { type: 2, bytes: [] };

function list(items: readonly ThriftValue[], length = items.length): ThriftValue {
  const head =
    length < 15
      ? [(length << 4) | (items[0]?.type ?? 12)]
      : [0xf0 | (items[0]?.type ?? 12), ...varint(length)];
  return { type: 9, bytes: [...head, ...items.flatMap((item) => item.bytes)] };
}

function struct(fields: Readonly<Record<number, ThriftValue>>): ThriftValue {
  let last = 0;
  const bytes = Object.entries(fields).flatMap(([name, { type, bytes }]) => {
    const delta = Number(name) - last;
    last = Number(name);
    return [(delta << 4) | type, ...bytes];
  });
  return { type: 12, bytes: [...bytes, 0] };
}

const names = ["time", "open", "high", "low", "close", "volume"] as const;

export interface BombOptions {
  readonly rows?: number;
  /** The bytes of a column's pages; default: plain doubles. */
  readonly chunk?: readonly number[];
  readonly codec?: number;
  /** The columns' type; default: 5, doubles. */
  readonly type?: number;
  readonly typeLength?: number;
  /** The converted type of the values, such as 9 for milliseconds. */
  readonly converted?: number;
  readonly isOptional?: boolean;
  /** The path of the last column, and the offset of its bytes. */
  readonly lastPath?: readonly string[];
  readonly lastOffset?: number;
  /** The number of row groups that the footer claims. */
  readonly groups?: number;
}

/** A file whose columns are all doubles with the same pages. */
export function bombFile(options: BombOptions = {}): Uint8Array {
  const { rows = 8, codec = 0, isOptional = false, groups = 1, type = 5 } = options;
  const chunk = options.chunk ?? dataPage({ values: rows, body: new Array<number>(8 * rows).fill(1) });
  const bytes = [...new TextEncoder().encode("PAR1")];
  const columns = names.map((name, index) => {
    const isLast = index === names.length - 1;
    const offset = isLast ? (options.lastOffset ?? bytes.length) : bytes.length;
    bytes.push(...chunk);
    return struct({
      2: i64(offset),
      3: struct({
        1: i32(type),
        2: list([i32(0)]),
        3: list((isLast ? (options.lastPath ?? [name]) : [name]).map(text)),
        4: i32(codec),
        5: i64(rows),
        6: i64(chunk.length),
        7: i64(chunk.length),
        9: i64(offset),
      }),
    });
  });
  const repetition = i32(isOptional ? 1 : 0);
  const makeFooter = (root: string): ThriftValue =>
    struct({
      1: i32(1),
      2: list([
        struct({ 4: text(root), 5: i32(names.length) }),
        ...names.map((name) =>
          struct({
            1: i32(type),
            ...(options.typeLength !== undefined && { 2: i32(options.typeLength) }),
            ...{ 3: repetition, 4: text(name) },
            ...(options.converted !== undefined && { 6: i32(options.converted) }),
          }),
        ),
      ]),
      3: i64(rows),
      4: list([struct({ 1: list(columns), 2: i64(1000), 3: i64(rows) })], groups),
    });
  // The bytes of this length, after the footer, are fields to a parser that runs past its end.
  const footer = makeFooter("b".repeat(Math.max(0, 768 - makeFooter("").bytes.length)));
  const length = footer.bytes.length;
  bytes.push(...footer.bytes, ...[0, 8, 16, 24].map((shift) => (length >> shift) & 0xff));
  return Uint8Array.from([...bytes, ...new TextEncoder().encode("PAR1")]);
}

interface PageOptions {
  readonly values: number;
  readonly body: readonly number[];
  /** 0 plain, 5 delta-packed, 8 with a dictionary. */
  readonly encoding?: number;
  readonly declaredBytes?: number;
}

function dataPage({ values, body, encoding = 0, declaredBytes = body.length }: PageOptions): number[] {
  const kind = struct({ 1: i32(values), 2: i32(encoding), 3: i32(3), 4: i32(3) });
  return [...struct({ 1: i32(0), 2: i32(declaredBytes), 3: i32(body.length), 5: kind }).bytes, ...body];
}

function secondKindPage(
  { values, body, encoding = 0, declaredBytes = body.length }: PageOptions,
  levels = 0,
): number[] {
  const kind = struct({
    ...{ 1: i32(values), 2: i32(0), 3: i32(values), 4: i32(encoding) },
    ...{ 5: i32(levels), 6: i32(0), 7: isFalse },
  });
  return [...struct({ 1: i32(3), 2: i32(declaredBytes), 3: i32(body.length), 8: kind }).bytes, ...body];
}

function dictionaryPage(): number[] {
  const head = struct({ 1: i32(2), 2: i32(8), 3: i32(8), 7: struct({ 1: i32(1), 2: i32(0) }) });
  return [...head.bytes, ...new Array<number>(8).fill(1)];
}

const huge = 2 ** 30;

/** By name; most have about 1 KB. */
export const parquetBombs: Readonly<Record<string, Uint8Array>> = {
  "list-of-2-to-the-31-row-groups": bombFile({ groups: 2 ** 31 - 1 }),
  "run-past-the-page": bombFile({
    chunk: [...dictionaryPage(), ...dataPage({ values: 8, encoding: 8, body: [1, ...varint(2 * huge), 0] })],
  }),
  "endless-run-of-no-bits": bombFile({
    chunk: [
      ...dictionaryPage(),
      ...secondKindPage({ values: 8, encoding: 8, body: [0, ...varint(2 ** 29 + 1), 0] }),
    ],
  }),
  "page-of-2-to-the-30-values": bombFile({
    rows: huge,
    chunk: [
      ...dictionaryPage(),
      ...dataPage({ values: huge, encoding: 8, body: [1, ...varint(2 * huge), 0] }),
    ],
  }),
  "page-that-declares-2-gib": bombFile({
    codec: 2,
    chunk: dataPage({ values: 8, body: new Array<number>(64).fill(31), declaredBytes: 2 ** 31 - 1 }),
  }),
  "zstd-page-of-gigabytes": bombFile({
    codec: 6,
    chunk: dataPage({ values: 8, body: zstdOfZeros(400), declaredBytes: 64 }),
  }),
  "rows-from-one-delta": bombFile({
    rows: 400_000_000,
    chunk: dataPage({
      values: 400_000_000,
      encoding: 5,
      body: [...varint(huge), 1, ...varint(400_000_000), 2, 2, 0],
    }),
  }),
  "levels-past-the-page": bombFile({
    isOptional: true,
    chunk: dataPage({
      values: 8,
      body: [6, 0, 0, 0, ...varint(2 * huge), 1, ...new Array<number>(64).fill(1)],
    }),
  }),
  "lost-column-outside-the-file": bombFile({ lastPath: ["volume", "lost"], lastOffset: 1_000_000 }),
};

/** A frame of this many blocks of 128 KiB zeros each, in 4 bytes a block. */
function zstdOfZeros(blocks: number): number[] {
  const frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x98];
  for (let block = 0; block < blocks; block++) {
    const head = (131_072 << 3) | (1 << 1) | (block === blocks - 1 ? 1 : 0);
    frame.push(head & 0xff, (head >> 8) & 0xff, (head >> 16) & 0xff, 0);
  }
  return frame;
}

/** A file with valid metadata whose pages claim anything: random mutations seldom reach this. */
export function randomParquet(random: SeededRandom): Uint8Array {
  const rows = random.pick([1, 8, 8, 64, 1000, 100_000, 2 ** 20, 2 ** 31 - 1]);
  const isOptional = random.below(3) === 0;
  const pages = Array.from({ length: 1 + random.below(3) }, () => randomPage(random, rows, isOptional));
  return bombFile({
    ...{ rows, isOptional },
    chunk: [...(random.below(2) === 0 ? dictionaryPage() : []), ...pages.flat()],
    codec: random.below(2) * random.below(9),
    type: random.below(8),
    ...(random.below(2) === 0 && { converted: random.below(23) }),
    ...(random.below(3) === 0 && { typeLength: randomCount(random, 8) }),
  });
}

function randomPage(random: SeededRandom, rows: number, isOptional: boolean): number[] {
  const runs = (): number[] => [...varint(randomCount(random, 2 * rows)), random.below(3)];
  const body = [
    ...(isOptional && random.below(4) > 0 ? [2 + random.below(8), 0, 0, 0, ...runs()] : []),
    ...([
      [random.below(34), ...runs(), ...runs()],
      [...varint(randomCount(random, 128)), ...runs(), ...runs()],
      [],
    ][random.below(3)] ?? []),
    ...Array.from({ length: random.below(200) }, () => random.below(256)),
  ];
  const page: PageOptions = {
    values: randomCount(random, rows),
    encoding: random.pick([0, 2, 3, 4, 5, 6, 7, 8, 8, 9]),
    body,
    ...(random.below(3) === 0 && { declaredBytes: randomCount(random, 64) }),
  };
  return random.below(2) === 0 ? dataPage(page) : secondKindPage(page, random.below(3));
}

/** Usually the normal number, otherwise one at an end of some range. */
function randomCount(random: SeededRandom, usual: number): number {
  const ends = [0, 1, 7, usual + 1, 2 * usual, 2 ** 24, 2 ** 29 + 1, 2 ** 30, 2 ** 31 - 1, -1, -(2 ** 31)];
  return random.below(2) === 0 ? usual : random.pick(ends);
}
