/** The content of a kernel's source as one text: sources with equal texts are the same kernel, whoever printed them. */

import type { KernelSource } from "../driver/index.js";
import { literalKey } from "../units/index.js";

/** Sources are large and are loaded again and again, so each text is made once. */
const keys = new WeakMap<KernelSource, string>();

/** Functions of this process have no content to compare. */
const functionNumbers = new WeakMap<object, number>();
let functions = 0;

export function sourceKey(source: KernelSource): string {
  const known = keys.get(source);
  if (known !== undefined) return known;
  const { wasm, native, ...rest } = source;
  const bytes = wasm ? Buffer.from(wasm.buffer, wasm.byteOffset, wasm.byteLength).toString("latin1") : "";
  const key = `${native ? numberOf(native) : ""} ${literalKey(rest)} ${bytes}`;
  keys.set(source, key);
  return key;
}

function numberOf(native: object): number {
  const number = functionNumbers.get(native) ?? functions++;
  functionNumbers.set(native, number);
  return number;
}
