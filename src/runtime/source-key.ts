/** The key of a kernel's source: its content as one text. Sources with equal keys are the same kernel. */

import type { KernelSource } from "../driver/index.js";
import { literalKey } from "../units/index.js";

/** Sources are large and are loaded repeatedly, so each key is computed once. */
const keys = new WeakMap<KernelSource, string>();

/** Functions of this process have no content to compare, so they are numbered. */
const functionNumbers = new WeakMap<object, number>();
let functionCount = 0;

export function sourceKey(source: KernelSource): string {
  const cached = keys.get(source);
  if (cached !== undefined) return cached;
  const { wasm, native, host, enqueue, ...rest } = source;
  const bytes = wasm ? Buffer.from(wasm.buffer, wasm.byteOffset, wasm.byteLength).toString("latin1") : "";
  const functions = [native, host, enqueue].map((code) => (code ? numberOf(code) : "")).join(" ");
  const key = `${functions} ${literalKey(rest)} ${bytes}`;
  keys.set(source, key);
  return key;
}

function numberOf(code: object): number {
  const number = functionNumbers.get(code) ?? functionCount++;
  functionNumbers.set(code, number);
  return number;
}
