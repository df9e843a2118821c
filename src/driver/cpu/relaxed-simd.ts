/**
 * Detects relaxed SIMD, whose multiply-add rounds once and takes one instruction instead of two. Node 22 and later have
 * it. Node 20 needs a flag, which can be set at run time.
 */

import { setFlagsFromString } from "node:v8";
import { encodeModule } from "./wasm.js";

/** V8 11 is in Node 20 and 21. Later engines dropped the flag and complain about unknown flags. */
const lastMajorWithFlag = 11;

let answer: boolean | undefined;

/**
 * True if modules compiled after this call may use relaxed SIMD. Worker threads can run such a module too, because they
 * receive it compiled.
 */
export function hasRelaxedSimd(): boolean {
  answer ??= isAccepted() || canEnableByFlag();
  return answer;
}

function canEnableByFlag(): boolean {
  const major = Number.parseInt(process.versions.v8, 10);
  if (!(major <= lastMajorWithFlag)) return false;
  setFlagsFromString("--experimental-wasm-relaxed-simd");
  return isAccepted();
}

function isAccepted(): boolean {
  const module = encodeModule([
    {
      name: "probe",
      parameters: ["v128"],
      results: ["v128"],
      body: (code) => {
        for (let operand = 0; operand < 3; operand++) code.get(code.parameter(0));
        code.op("f32x4.relaxed_madd");
      },
    },
  ]);
  return WebAssembly.validate(module);
}
