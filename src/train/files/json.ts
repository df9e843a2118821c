/**
 * Plain data as JSON, and back to the same: numbers that JSON has no word for (NaN, the infinities, −0) are kept, and what
 * would come back as something else is rejected when it is written.
 */

import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord } from "../../records/index.js";

/** Stands for a number that JSON can't write. */
const numberKey = "$number";
const numberWords: readonly unknown[] = ["NaN", "Infinity", "-Infinity", "-0"];

export function toJson(what: string, value: JsonRecord, indent?: number): string {
  return JSON.stringify(encode(what, value), undefined, indent);
}

/** Rejects what is no JSON, and what is no record. */
export function fromJson(what: string, text: string): JsonRecord {
  let value: unknown;
  try {
    // Looking at every value takes many times as long as reading them.
    const hasNumbers = text.includes(numberKey);
    value = JSON.parse(text, hasNumbers ? (_, found: unknown) => decode(found) : undefined);
  } catch (cause) {
    throw new HoldfastError("BAD_FILE", `${what} is not JSON.`, { cause });
  }
  if (isRecord(value)) return value;
  throw new HoldfastError("BAD_FILE", `${what} holds ${nameOf(value)} where a record should be.`);
}

export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function encode(path: string, value: unknown): unknown {
  if (value === null || value === undefined || typeof value === "boolean" || typeof value === "string")
    return value;
  if (typeof value === "number") {
    const isWritten = Number.isFinite(value) && !Object.is(value, -0);
    return isWritten ? value : { [numberKey]: Object.is(value, -0) ? "-0" : String(value) };
  }
  if (Array.isArray(value)) return value.map((item, index) => encode(`${path}[${index}]`, item ?? null));
  if (isPlain(value)) {
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [name, encode(`${path}.${name}`, item)]),
    );
  }
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${path} is ${nameOf(value)}, which would not come back from a file. Give numbers, texts, arrays and plain records; large arrays as tensors.`,
  );
}

function decode(value: unknown): unknown {
  if (!isRecord(value) || Object.keys(value).length !== 1) return value;
  const text = value[numberKey];
  return numberWords.includes(text) ? Number(text) : value;
}

function isPlain(value: unknown): value is JsonRecord {
  if (!isRecord(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function nameOf(value: unknown): string {
  if (value === null) return "null";
  if (typeof value !== "object") return `a ${typeof value}`;
  return Array.isArray(value) ? "an array" : `a ${value.constructor?.name ?? "record"}`;
}
