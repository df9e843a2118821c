/** Calls that do the same to the same values are made once. */

import { literalKey } from "../../units/index.js";
import { isWritten } from "../program/attention-call.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  mapSlices,
  type Work,
} from "../program/program.js";
import { usesOf } from "../program/uses.js";

/** `keyOfLiterals`: how numbers and layouts become part of a key; a test gives another one to show what it is for. */
export function eliminateCommonCalls(
  calls: readonly Call[],
  keyOfLiterals: (value: unknown) => string = literalKey,
): readonly Call[] {
  const uses = usesOf(calls);
  const identities = new Identities();
  /** How often a buffer has been written so far. */
  const versions = new Map<Buffer, number>();
  const versionOf = (buffer: Buffer): number => versions.get(buffer) ?? 0;
  const known = new Map<string, Call>();
  const same = new Map<Buffer, Buffer>();
  const left: Call[] = [];
  for (const call of calls) {
    const moved = { ...call, work: mapSlices(call.work, (slice) => seenAt(slice, same)) };
    const accesses = accessesOf(moved);
    const outputs = accesses.filter(({ writes }) => writes);
    // Its results must be its own and stay as they are: whole buffers of step memory, written here and nowhere else.
    const isPure =
      outputs.length > 0 &&
      outputs.every(
        ({ slice, reads }) =>
          !reads &&
          !slice.buffer.storage &&
          slice.size === slice.buffer.bytes &&
          uses.get(slice.buffer)?.writers.length === 1,
      );
    const key = isPure ? keyOf(moved.work, identities, versionOf, keyOfLiterals) : undefined;
    const first = key === undefined ? undefined : known.get(key);
    if (first) {
      const made = accessesOf(first).filter(({ writes }) => writes);
      for (const [index, { slice }] of outputs.entries()) {
        const other = made[index]?.slice.buffer;
        if (other) same.set(slice.buffer, other);
      }
      continue;
    }
    if (key !== undefined) known.set(key, moved);
    for (const { slice } of outputs) versions.set(slice.buffer, versionOf(slice.buffer) + 1);
    left.push(moved);
  }
  return left;
}

function seenAt(slice: BufferSlice, same: ReadonlyMap<Buffer, Buffer>): BufferSlice {
  const buffer = same.get(slice.buffer);
  return buffer ? { ...slice, buffer } : slice;
}

/** What the results follow from: the kernel, how it runs, and the values that it reads. */
function keyOf(
  work: Work,
  identities: Identities,
  versionOf: (buffer: Buffer) => number,
  keyOfLiterals: (value: unknown) => string,
): string {
  const read = (slice: BufferSlice): string =>
    `${slice.buffer.id}.${versionOf(slice.buffer)}+${slice.offset}:${slice.size}`;
  const written = (slice: BufferSlice): string => `>${slice.size}`;
  switch (work.kind) {
    case "row":
    case "column":
    case "grouped-reduce": {
      const keys = (work.kind === "grouped-reduce" ? work.columns : [work]).map(
        ({ kernel, operands, ...rest }) => {
          const slices = operands.map((slice, index) =>
            index < kernel.inputs.length ? read(slice) : written(slice),
          );
          return `${identities.of(kernel)} ${slices.join(" ")} ${keyOfLiterals(rest)}`;
        },
      );
      return keys.join(" | ");
    }
    case "gemm":
    case "grouped-gemm": {
      const keys = (work.kind === "gemm" ? [work.problem] : work.problems).map(
        ({ a, b, c, bias, scratch, ...rest }) => {
          const slices = [
            read(a.slice),
            read(b.slice),
            written(c.slice),
            bias ? read(bias) : "",
            scratch?.size,
          ];
          const layouts = [a, b, c].map(({ slice: _, ...layout }) => layout);
          return `${slices.join(" ")} ${keyOfLiterals([rest, layouts])}`;
        },
      );
      return `product ${keys.join(" | ")}`;
    }
    // Passes make these of calls that differ already.
    case "combo":
    case "partial-reduce":
    case "gemm-epilogue":
      return `${work.kind} ${identities.of(work)}`;
    case "attention": {
      const { operands, ...rest } = work;
      const slices = Object.entries(operands).map(([name, slice]) =>
        isWritten(work, name) ? written(slice) : read(slice),
      );
      return `attention ${slices.join(" ")} ${keyOfLiterals(rest)}`;
    }
    case "launch": {
      const { kernel, blocks } = work;
      const given = work.arguments.map((one, index) => {
        if (typeof one === "number") return keyOfLiterals(one);
        return kernel.parameters[index] === "out" || kernel.parameters[index] === "partial-out"
          ? written(one)
          : read(one);
      });
      return `${identities.of(kernel)} ${blocks} ${given.join(" ")}`;
    }
    case "fill":
      return `fill ${work.byte} ${written(work.target)}`;
    case "copy":
      return `copy ${read(work.source)} ${written(work.target)}`;
  }
}

/** Numbers for objects, so that they can stand in a key. */
class Identities {
  readonly #known = new Map<object, number>();

  of(one: object): string {
    const known = this.#known.get(one) ?? this.#known.size;
    this.#known.set(one, known);
    return `#${known}`;
  }
}
