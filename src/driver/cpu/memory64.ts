/**
 * 64-bit WebAssembly memory, for device memory past 4 GiB. Node 24 and later have it. Node 22 needs the flag
 * --experimental-wasm-memory64, and Node 20 has it for up to 4 GiB only.
 */

import { GiB } from "../../units/index.js";

/** The maximum of V8. Modules declare it too. */
export const maximumBytes64 = 16 * GiB;

/** A shared memory; `isWide` if its addresses have 64 bits. */
export interface WasmMemory {
  readonly memory: WebAssembly.Memory;
  readonly isWide: boolean;
  grow(pages: number): void;
}

export function createMemory32(maximumPages: number): WasmMemory {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: maximumPages, shared: true });
  return { memory, isWide: false, grow: (pages) => void memory.grow(pages) };
}

/** Undefined if the engine has no memory of this size. */
export function createMemory64(maximumPages: number): WasmMemory | undefined {
  return createStandard(maximumPages) ?? createExperimental(maximumPages);
}

/** As specified: page counts are big integers. */
function createStandard(maximumPages: number): WasmMemory | undefined {
  try {
    const pages = { initial: 1n, maximum: BigInt(maximumPages) };
    const memory = new WebAssembly.Memory({ address: "i64", ...pages, shared: true });
    return { memory, isWide: true, grow: (more) => void memory.grow(BigInt(more)) };
  } catch {
    return undefined;
  }
}

/** As in Node 22. */
function createExperimental(maximumPages: number): WasmMemory | undefined {
  try {
    const pages = { initial: 1, maximum: maximumPages };
    const memory = new WebAssembly.Memory({ index: "i64", ...pages, shared: true });
    return { memory, isWide: true, grow: (more) => void memory.grow(more) };
  } catch {
    return undefined;
  }
}
