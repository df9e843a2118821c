/**
 * Byte counts and device addresses, branded so that they cannot be mixed up, and the text form of sizes: `512MiB`,
 * `1.5GiB`, `4096B`.
 */

import { HoldfastError } from "../errors/index.js";

declare const unit: unique symbol;

/** A byte count: a whole number, 0 or more. */
export type Bytes = number & { readonly [unit]: "bytes" };

/** A device address. On the CPU driver it is an offset into the WebAssembly memory. */
export type Address = number & { readonly [unit]: "address" };

/** A range of device addresses. */
export interface Span {
  readonly address: Address;
  readonly size: Bytes;
}

export const KiB = 1024;
export const MiB = 1024 * KiB;
export const GiB = 1024 * MiB;
const TiB = 1024 * GiB;

const suffixes = { B: 1, KiB, MiB, GiB, TiB } as const;

/**
 * Brands a whole, non-negative number as a byte count.
 *
 * @example
 * ```ts
 * import { bytes } from "holdfast/internals";
 * console.log(bytes(4096)); // → 4096
 * ```
 */
export function bytes(count: number): Bytes {
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new HoldfastError("BAD_SIZE", `A size must be a whole number of bytes, 0 or more, not ${count}.`, {
      numbers: { count },
    });
  }
  return count as Bytes;
}

/** Brands a number as a device address. */
export function address(value: number): Address {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `A device address must be a whole number, 0 or more, not ${value}.`,
    );
  }
  return value as Address;
}

export function span(start: number, size: number): Span {
  return { address: address(start), size: bytes(size) };
}

/** The first address after a span. */
export function endOf(range: Span): Address {
  return (range.address + range.size) as Address;
}

export function overlaps(a: Span, b: Span): boolean {
  return a.address < endOf(b) && b.address < endOf(a);
}

export function contains(outer: Span, inner: Span): boolean {
  return inner.address >= outer.address && endOf(inner) <= endOf(outer);
}

/** Rounds up to a multiple of `alignment`, any positive number. */
export function alignUp(count: number, alignment: number): Bytes {
  return (Math.ceil(count / alignment) * alignment) as Bytes;
}

/**
 * Parses a size.
 *
 * @example
 * ```ts
 * import { formatBytes, parseBytes } from "holdfast";
 * console.log(parseBytes("1.5GiB")); // → 1610612736
 * console.log(formatBytes(parseBytes("512MiB"))); // → 512 MiB
 * ```
 */
export function parseBytes(text: string): Bytes {
  const match = /^(\d+(?:\.\d+)?)\s?(B|KiB|MiB|GiB|TiB)$/.exec(text.trim());
  const suffix = match?.[2] as keyof typeof suffixes | undefined;
  const count = match && suffix ? Number(match[1]) * suffixes[suffix] : Number.NaN;
  if (!Number.isSafeInteger(count) || count <= 0) {
    throw new HoldfastError(
      "BAD_SIZE",
      `"${text}" is not a size. Write a positive number with its unit, such as 512MiB, 1.5GiB or 64GiB.`,
      { numbers: { text } },
    );
  }
  return count as Bytes;
}

/**
 * Formats a byte count with the largest unit in which it is at least 1.
 *
 * @example
 * ```ts
 * import { formatBytes } from "holdfast";
 * console.log(formatBytes(772)); // → 772 B
 * console.log(formatBytes(1610612736)); // → 1.5 GiB
 * ```
 */
export function formatBytes(count: number): string {
  const magnitude = Math.abs(count);
  for (const [suffix, factor] of [
    ["TiB", TiB],
    ["GiB", GiB],
    ["MiB", MiB],
    ["KiB", KiB],
  ] as const) {
    if (magnitude >= factor) {
      return `${Number((count / factor).toFixed(2))} ${suffix}`;
    }
  }
  return `${count} B`;
}

/** Formats an address in hexadecimal. */
export function formatAddress(value: number): string {
  return `0x${value.toString(16)}`;
}

export function formatSpan(range: Span): string {
  return `[${formatAddress(range.address)}, ${formatAddress(endOf(range))}), ${formatBytes(range.size)}`;
}
