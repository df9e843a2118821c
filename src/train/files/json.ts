/**
 * Plain data as JSON, without loss: NaN, the infinities and −0 are encoded. A value that would be read back differently
 * is an error when it is written.
 */

import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord } from "../../records/index.js";

/** The key that marks a number which JSON can't express. */
const numberKey = "$number";
const numberWords: readonly unknown[] = ["NaN", "Infinity", "-Infinity", "-0"];

export function toJson(subject: string, value: JsonRecord, indent?: number): string {
  return JSON.stringify(encode(subject, value), undefined, indent);
}

/** Throws if the text is not JSON, or not a record. */
export function fromJson(subject: string, text: string): JsonRecord {
  let value: unknown;
  try {
    // A reviver makes parsing many times slower.
    const hasNumbers = text.includes(numberKey);
    value = JSON.parse(text, hasNumbers ? (_, item: unknown) => decode(item) : undefined);
  } catch (cause) {
    throw new HoldfastError("BAD_FILE", `${subject} is not JSON.`, { cause });
  }
  if (isRecord(value)) return value;
  throw new HoldfastError("BAD_FILE", `${subject} is ${nameOf(value)}, not a record.`);
}

export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function encode(path: string, value: unknown): unknown {
  if (value === null || value === undefined || typeof value === "boolean" || typeof value === "string")
    return value;
  if (typeof value === "number") {
    const isJson = Number.isFinite(value) && !Object.is(value, -0);
    return isJson ? value : { [numberKey]: Object.is(value, -0) ? "-0" : String(value) };
  }
  if (Array.isArray(value)) return value.map((item, index) => encode(`${path}[${index}]`, item ?? null));
  if (isPlain(value)) {
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [name, encode(`${path}.${name}`, item)]),
    );
  }
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${path} is ${nameOf(value)}, which JSON can't store. Use numbers, strings, arrays and plain records; store large arrays as tensors.`,
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
