/**
 * Has the engine relaxed SIMD, whose multiply-add rounds once and takes one instruction instead of two? From Node 22
 * on it has; Node 20 has it behind a flag, which can still be set while the process runs.
 */

import { setFlagsFromString } from "node:v8";
import { encodeModule } from "./wasm.js";

/** V8 11 is Node 20's and 21's. Later engines have dropped the flag, and complain about one that they don't know. */
const lastMajorWithFlag = 11;

let answer: boolean | undefined;

/**
 * True if relaxed SIMD may be used, in modules that are compiled after this call. A module that was compiled here runs
 * in worker threads as well: it reaches them compiled.
 */
export function hasRelaxedSimd(): boolean {
  answer ??= isAccepted() || isAcceptedBehindFlag();
  return answer;
}

function isAcceptedBehindFlag(): boolean {
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
