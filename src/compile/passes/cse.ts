/** Calls that do the same to the same values are made once. */

import { literalKey } from "../../units/index.js";
import { isWritten } from "../program/attention-call.js";
import { accessesOf, type Buffer, type Call, mapParts, type Part, type Work } from "../program/program.js";
import { usesOf } from "../program/uses.js";

/** `keyOfLiterals`: how numbers and layouts become part of a key; a test gives another one to show what it is for. */
export function shareCommonCalls(
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
    const moved = { ...call, work: mapParts(call.work, (part) => seenAt(part, same)) };
    const accesses = accessesOf(moved);
    const outputs = accesses.filter(({ writes }) => writes);
    // Its results must be its own and stay as they are: whole buffers of step memory, written here and nowhere else.
    const isPure =
      outputs.length > 0 &&
      outputs.every(
        ({ part, reads }) =>
          !reads &&
          !part.buffer.storage &&
          part.size === part.buffer.bytes &&
          uses.get(part.buffer)?.writers.length === 1,
      );
    const key = isPure ? keyOf(moved.work, identities, versionOf, keyOfLiterals) : undefined;
    const first = key === undefined ? undefined : known.get(key);
    if (first) {
      const made = accessesOf(first).filter(({ writes }) => writes);
      for (const [index, { part }] of outputs.entries()) {
        const other = made[index]?.part.buffer;
        if (other) same.set(part.buffer, other);
      }
      continue;
    }
    if (key !== undefined) known.set(key, moved);
    for (const { part } of outputs) versions.set(part.buffer, versionOf(part.buffer) + 1);
    left.push(moved);
  }
  return left;
}

function seenAt(part: Part, same: ReadonlyMap<Buffer, Buffer>): Part {
  const buffer = same.get(part.buffer);
  return buffer ? { ...part, buffer } : part;
}

/** What the results follow from: the kernel, how it runs, and the values that it reads. */
function keyOf(
  work: Work,
  identities: Identities,
  versionOf: (buffer: Buffer) => number,
  keyOfLiterals: (value: unknown) => string,
): string {
  const read = (part: Part): string =>
    `${part.buffer.id}.${versionOf(part.buffer)}+${part.offset}:${part.size}`;
  const written = (part: Part): string => `>${part.size}`;
  switch (work.kind) {
    case "rows":
    case "columns":
    case "reductions": {
      const keys = (work.kind === "reductions" ? work.columns : [work]).map(
        ({ kernel, operands, ...rest }) => {
          const parts = operands.map((part, index) =>
            index < kernel.inputs.length ? read(part) : written(part),
          );
          return `${identities.of(kernel)} ${parts.join(" ")} ${keyOfLiterals(rest)}`;
        },
      );
      return keys.join(" | ");
    }
    case "product":
    case "products": {
      const keys = (work.kind === "product" ? [work.problem] : work.problems).map(
        ({ a, b, c, bias, scratch, ...rest }) => {
          const parts = [read(a.part), read(b.part), written(c.part), bias ? read(bias) : "", scratch?.size];
          const layouts = [a, b, c].map(({ part: _, ...layout }) => layout);
          return `${parts.join(" ")} ${keyOfLiterals([rest, layouts])}`;
        },
      );
      return `product ${keys.join(" | ")}`;
    }
    // Passes make these of calls that differ already.
    case "beside":
    case "begun":
    case "finished":
      return `${work.kind} ${identities.of(work)}`;
    case "attention": {
      const { operands, ...rest } = work;
      const parts = Object.entries(operands).map(([name, part]) =>
        isWritten(work, name) ? written(part) : read(part),
      );
      return `attention ${parts.join(" ")} ${keyOfLiterals(rest)}`;
    }
    case "launch": {
      const { kernel, blocks } = work;
      const given = work.arguments.map((one, index) => {
        if (typeof one === "number") return keyOfLiterals(one);
        return kernel.parameters[index] === "out" || kernel.parameters[index] === "part"
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
