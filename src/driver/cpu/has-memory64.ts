/** Whether the engine has 64-bit WebAssembly memory, in a file of its own: its types are public, and name no type of WebAssembly. */

import { createMemory64, maximumBytes64 } from "./memory64.js";
import { pageBytes } from "./wasm.js";

let answer: boolean | undefined;

/** True if the engine has memories of more than 4 GiB. */
export function hasMemory64(): boolean {
  answer ??= createMemory64(maximumBytes64 / pageBytes) !== undefined;
  return answer;
}
