/**
 * Common subexpression elimination: calls that do the same work on the same values run once. So do sequences of calls that assemble a buffer,
 * such as a fill with zeros and a copy to a part of it.
 */

import { literalKey } from "../../units/index.js";
import { castOf } from "../program/casts.js";
import { kindOf } from "../program/kinds/index.js";
import type { KeyParts } from "../program/kinds/kind.js";
import {
  type Access,
  accessesOf,
  type Buffer,
  type Call,
  type Node,
  type Program,
} from "../program/program.js";
import { relocateCalls } from "../program/relocation.js";
import { isWrittenOnce } from "../program/uses.js";

/** `keyOfLiterals`: the text of numbers and layouts in a key; a test passes a lossy one to show that it matters. */
export function eliminateCommonCalls(
  program: Program,
  keyOfLiterals: (value: unknown) => string = literalKey,
): void {
  const identities = new Identities();
  /** How often each buffer has been written so far. */
  const versions = new Map<Buffer, number>();
  const versionOf = (buffer: Buffer): number => versions.get(buffer) ?? 0;
  const parts: KeyParts = {
    read: ({ buffer, offset, size }) => `${buffer.id}.${versionOf(buffer)}+${offset}:${size}`,
    written: ({ offset, size }) => `>${offset}:${size}`,
    literal: keyOfLiterals,
    identity: (object) => identities.of(object),
  };
  const firstCalls = new Map<string, Call>();
  /** The assembled buffers by the keys of their writes, and the keys of each buffer's writes so far. */
  const firstBuffers = new Map<string, Buffer>();
  const writesSoFar = new Map<Buffer, string>();
  for (const node of program.nodes) {
    const { work } = node.call;
    const outputs = outputsOf(node.call);
    const isPure =
      outputs.length > 0 &&
      outputs.every((output) => isWholeResult(program, output)) &&
      // Keeping the first result would undo the recomputation; converted weights are kept in any case.
      (!node.call.isRematerialized || castOf(node)?.from.buffer.storage !== undefined);
    const key = isPure ? `${work.kind} ${kindOf(work).key(work, parts)}` : undefined;
    const first = key === undefined ? undefined : firstCalls.get(key);
    if (first) {
      program.remove(node);
      relocateCalls(program, replacementsOf(outputs, outputsOf(first)));
      continue;
    }
    if (key !== undefined) firstCalls.set(key, node.call);
    const assembled = assembledBuffer(program, node, outputs);
    if (assembled) {
      const before = writesSoFar.get(assembled) ?? String(assembled.bytes);
      const writes = `${before}; ${work.kind} ${kindOf(work).key(work, parts)}`;
      writesSoFar.set(assembled, writes);
      const { writers } = program.uses(assembled);
      const isLast = writers.at(-1) === node;
      const repeated = isLast ? firstBuffers.get(writes) : undefined;
      if (repeated) {
        for (const writer of [...writers]) program.remove(writer);
        relocateCalls(program, new Map([[assembled, { buffer: repeated, offset: 0 }]]));
        continue;
      }
      if (isLast) firstBuffers.set(writes, assembled);
    }
    for (const { slice } of outputs) versions.set(slice.buffer, versionOf(slice.buffer) + 1);
  }
}

const outputsOf = (call: Call): readonly Access[] => accessesOf(call).filter(({ writes }) => writes);

/** True if an output is a whole step buffer that no other call writes. */
function isWholeResult(program: Program, { slice, reads }: Access): boolean {
  return !reads && slice.size === slice.buffer.bytes && isWrittenOnce(program, slice.buffer);
}

/** The step buffer that a node writes together with others, if they write nothing else, and nothing reads it before the last of them. */
function assembledBuffer(
  program: Program,
  node: Node,
  [output, ...others]: readonly Access[],
): Buffer | undefined {
  const buffer = output?.slice.buffer;
  if (!buffer || buffer.storage || others.length > 0 || node.call.isRematerialized) return undefined;
  const { writers, readers } = program.uses(buffer);
  const [last, first] = [writers.at(-1), readers[0]];
  const isOnly = writers.every(({ call }) => !call.isRematerialized && outputsOf(call).length === 1);
  return writers.length > 1 && isOnly && last && first && last.isBefore(first) ? buffer : undefined;
}

/** The buffers of a repeated call's results, and those of the first call's. */
function replacementsOf(repeated: readonly Access[], first: readonly Access[]) {
  return new Map(
    repeated.flatMap(({ slice }, index) => {
      const buffer = first[index]?.slice.buffer;
      return buffer ? [[slice.buffer, { buffer, offset: 0 }] as const] : [];
    }),
  );
}

/** Numbers objects, so that a key can contain them. */
class Identities {
  readonly #numbers = new Map<object, number>();

  of(object: object): string {
    const number = this.#numbers.get(object) ?? this.#numbers.size;
    this.#numbers.set(object, number);
    return `#${number}`;
  }
}
