/** The argument checks that every driver makes before a call has any effect. */

import { HoldfastError } from "../errors/index.js";
import { formatBytes, type Span } from "../units/index.js";
import type { Argument, HostSpan, Parameter } from "./driver.js";

const maxBlocks = 2 ** 31 - 1;

const scalarRanges = {
  i32: { min: -(2 ** 31), max: 2 ** 31 - 1, isWhole: true },
  u32: { min: 0, max: 2 ** 32 - 1, isWhole: true },
  f32: { min: Number.NEGATIVE_INFINITY, max: Number.POSITIVE_INFINITY, isWhole: false },
  f64: { min: Number.NEGATIVE_INFINITY, max: Number.POSITIVE_INFINITY, isWhole: false },
} as const;

export function requireLaunch(
  kernel: string,
  parameters: readonly Parameter[],
  blocks: number,
  argumentCount: number,
): void {
  if (!Number.isInteger(blocks) || blocks < 0 || blocks > maxBlocks) {
    throw badArgument(
      `Launch of "${kernel}" with ${blocks} blocks; pass a whole number from 0 to ${maxBlocks}.`,
    );
  }
  if (argumentCount !== parameters.length) {
    throw badArgument(
      `Launch of "${kernel}" with ${argumentCount} arguments; it takes ${parameters.length} (${parameters.join(", ")}).`,
    );
  }
}

export function requireSpan(argument: Argument | undefined, what: () => string): Span {
  if (typeof argument === "object") return argument;
  throw badArgument(`${what()} is ${argument}; pass a span of device memory.`);
}

export function requireScalar(
  parameter: keyof typeof scalarRanges,
  argument: Argument | undefined,
  what: () => string,
): number {
  if (typeof argument !== "number") throw badArgument(`${what()} is a span; pass a number.`);
  const { min, max, isWhole } = scalarRanges[parameter];
  if (isWhole && !(Number.isInteger(argument) && argument >= min && argument <= max)) {
    throw badArgument(`${what()} is ${argument}; pass a whole number from ${min} to ${max}.`);
  }
  return argument;
}

/** Checks that the span is inside host memory of `length` bytes and returns its offset. */
export function requireHostSpan({ memory, offset, size }: HostSpan, length: number): number {
  if (
    !Number.isInteger(offset) ||
    !Number.isInteger(size) ||
    offset < 0 ||
    size < 0 ||
    offset + size > length
  ) {
    throw badArgument(
      `Host span of ${size} bytes at offset ${offset} is outside host memory #${memory.id}, which has ${length} bytes. Pass a range inside it.`,
    );
  }
  return offset;
}

export function requireHostSize(size: number): void {
  if (Number.isSafeInteger(size) && size > 0) return;
  throw new HoldfastError(
    "BAD_SIZE",
    `Cannot allocate host memory of ${size} bytes. Pass a whole number of bytes, 1 or more.`,
    { numbers: { size } },
  );
}

export function requireSameSize(call: string, target: number, source: number): void {
  if (target !== source) {
    throw badArgument(
      `${call} of ${formatBytes(source)} into ${formatBytes(target)} (${source} and ${target} bytes). Make both spans the same size.`,
    );
  }
}

export function requireByte(byte: number): void {
  if (!Number.isInteger(byte) || byte < 0 || byte > 255) {
    throw badArgument(`Cannot fill with ${byte}. Pass a whole number from 0 to 255.`);
  }
}

function badArgument(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}
