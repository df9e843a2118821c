/** Rule `copies`: a weight copy has the values of its weights whenever a call reads it, and at the end of the step. */

import { dtypes, inputDtypes } from "../../ir/index.js";
import { beat } from "../../units/index.js";
import type {
  Access,
  Buffer,
  BufferSlice,
  Call,
  ConvertedWeights,
  RowCall,
  Work,
} from "../program/program.js";
import { nameBuffer, nameCall, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

/** Bytes of the weights, from the first one that the copy has. */
interface Range {
  readonly start: number;
  readonly end: number;
}

/** Weights whose copy has older values, and the call that has written them. */
interface StaleRange extends Range {
  readonly writer: number;
}

export function requireCopies(proposal: Proposal): void {
  for (const buffer of proposal.buffers) {
    const { copyOf } = buffer;
    if (copyOf) requireCurrent(proposal, buffer, copyOf);
  }
}

/**
 * Goes through the program; rule `order` ensures that the schedule keeps the order of calls that share memory. At the start the copy has the
 * values of its weights.
 */
function requireCurrent({ program, accesses }: Proposal, copy: Buffer, copied: ConvertedWeights): void {
  let stale: readonly StaleRange[] = [];
  const reject = (index: number, what: string, { start, end }: Range): never => {
    const call = program[index];
    const name = call ? nameCall(call, index) : "a call";
    const finding = `${name} ${what}: bytes [${start}, ${end}) of the weights of ${nameBuffer(copy)}`;
    throw rejection("copies", finding, { call: index, buffer: copy.id });
  };
  for (const [index, call] of program.entries()) {
    beat();
    const { read, stored, loaded, written } = rangesOf(accesses[index] ?? [], copy, copied);
    for (const range of read) {
      const old = stale.find((one) => one.start < range.end && range.start < one.end);
      if (old) reject(index, `reads the copy after call ${old.writer} has changed its weights`, old);
    }
    const [foreign] = without(stored, [...loaded, ...written]);
    if (foreign) reject(index, "stores in the copy without accessing the weights", foreign);
    const [first] = written;
    if (first && storesCopyFirst(call, copy, copied))
      reject(index, "stores the copy before it changes", first);
    stale = without([...stale, ...written.map((range) => ({ ...range, writer: index }))], stored);
  }
  const [left] = stale;
  if (left) reject(left.writer, "changes weights, and no call stores them in the copy", left);
}

/** What a call does with the copy and with its weights. */
function rangesOf(accesses: readonly Access[], copy: Buffer, copied: ConvertedWeights) {
  const ranges: Record<"read" | "stored" | "loaded" | "written", Range[]> = {
    ...{ read: [], stored: [], loaded: [], written: [] },
  };
  for (const { slice, writes } of accesses) {
    const isCopy = slice.buffer === copy;
    const range = isCopy ? rangeOfCopy(slice, copied) : rangeOfWeights(slice, copied);
    if (range) ranges[isCopy ? (writes ? "stored" : "read") : writes ? "written" : "loaded"].push(range);
  }
  return ranges;
}

/** The weights that a slice of the copy has; undefined if it has none. */
function rangeOfCopy({ offset, size }: BufferSlice, copied: ConvertedWeights): Range | undefined {
  const { inputs, outputs } = copied.kernel;
  const scale = inputDtypes[inputs[0] ?? "f32"].bytes / dtypes[outputs[0]?.dtype ?? "f32"].bytes;
  const start = (offset - copied.offset) * scale;
  return within({ start, end: start + size * scale }, copied);
}

/** The weights of the copy in a slice of persistent memory; undefined if there are none. Two buffers may share memory. */
function rangeOfWeights({ buffer, offset, size }: BufferSlice, copied: ConvertedWeights): Range | undefined {
  const { storage } = copied.source.buffer;
  if (!buffer.storage || !storage) return undefined;
  const start = buffer.storage.span.address + offset - storage.span.address - copied.source.offset;
  return within({ start, end: start + size }, copied);
}

function within({ start, end }: Range, { source }: ConvertedWeights): Range | undefined {
  const range = { start: Math.max(0, start), end: Math.min(source.size, end) };
  return range.start < range.end ? range : undefined;
}

/** The parts of some ranges that no other range has. */
function without<R extends Range>(ranges: readonly R[], others: readonly Range[]): readonly R[] {
  return others.reduce<readonly R[]>(
    (left, { start, end }) =>
      left.flatMap((range) => {
        if (range.end <= start || end <= range.start) return [range];
        const parts = [
          { ...range, end: start },
          { ...range, start: end },
        ];
        return parts.filter((part) => part.start < part.end);
      }),
    ranges,
  );
}

/** True if a kernel that changes the weights stores the copy in an earlier stage, and so the old values. */
function storesCopyFirst({ work }: Call, copy: Buffer, copied: ConvertedWeights): boolean {
  return rowsIn(work).some(({ kernel, operands }) => {
    const stages = (isMeant: (slice: BufferSlice) => boolean): number[] =>
      kernel.stages.flatMap((stage, index) => {
        const slice = stage.kind === "store" ? operands[kernel.inputs.length + stage.output] : undefined;
        return slice && isMeant(slice) ? [index] : [];
      });
    const ofCopy = stages(({ buffer }) => buffer === copy);
    const ofWeights = stages((slice) => slice.buffer !== copy && rangeOfWeights(slice, copied) !== undefined);
    return Math.min(...ofCopy) < Math.max(...ofWeights);
  });
}

function rowsIn(work: Work): readonly RowCall[] {
  if (work.kind === "row") return [work];
  return work.kind === "combo" ? work.rows : [];
}
