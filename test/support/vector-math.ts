/** Applies a function of four floats to whole arrays, and measures results in units in the last place. */

import { encodeModule, type Local, type WasmFunction } from "../../src/driver/index.js";
import { type VectorMathName, vectorMath, withNeeds } from "../../src/kernels/codegen/wasm/math/index.js";

const vectorBytes = 16;
const pageBytes = 65_536;

/** `for (; at < end; at += 16) out[at] = name(a[at], b[at])`, the function called or inlined. */
function loopOver(name: VectorMathName, isInline: boolean): WasmFunction {
  return {
    name: "run",
    parameters: ["i32", "i32", "i32", "i32"],
    results: [],
    body: (code) => {
      const [at, b, out, end] = [0, 1, 2, 3].map((index) => code.parameter(index)) as [
        Local,
        Local,
        Local,
        Local,
      ];
      const inputs = vectorMath[name].parameters.map(() => code.local("v128"));
      code.loop((again) => {
        for (const [index, input] of inputs.entries()) {
          code
            .get(index === 0 ? at : b)
            .memory("v128.load")
            .set(input);
        }
        code.get(out);
        if (isInline) vectorMath[name].inline(code, ...inputs);
        else {
          for (const input of inputs) code.get(input);
          code.call(name);
        }
        code.memory("v128.store");
        for (const pointer of [at, b, out]) code.get(pointer).i32(vectorBytes).op("i32.add").set(pointer);
        code.get(at).get(end).op("i32.lt_u").branchIf(again);
      });
    },
  };
}

/** The function over arrays of floats; their length must be a multiple of four. */
export function overArrays(name: VectorMathName, how: "called" | "inline" = "called") {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
  const bytes = encodeModule([...withNeeds([name]), loopOver(name, how === "inline")]);
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } });
  const run = exports["run"] as (a: number, b: number, out: number, end: number) => void;
  return (a: Float32Array, b: Float32Array = a): Float32Array => {
    const missing = 3 * a.byteLength - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / pageBytes));
    const floats = new Float32Array(memory.buffer);
    floats.set(a, 0);
    floats.set(b, a.length);
    run(0, a.byteLength, 2 * a.byteLength, a.byteLength);
    return floats.slice(2 * a.length, 3 * a.length);
  };
}

/** One number through a function, in the first lane. */
export function once(name: VectorMathName) {
  const apply = overArrays(name);
  return (x: number, y = 0): number =>
    apply(new Float32Array([x, 0, 0, 0]), new Float32Array([y, 0, 0, 0]))[0]!;
}

const firstOverflow = 2 ** 128;

/**
 * The distance of a float from the exact value, in ulps of that value; below 2⁻¹²⁶ the unit is the smallest
 * subnormal. Infinity counts as 2¹²⁸, the number that it stands for when a result is rounded.
 */
export function ulpError(float: number, exact: number): number {
  if (Number.isNaN(float) || Number.isNaN(exact))
    return Object.is(float, exact) ? 0 : Number.POSITIVE_INFINITY;
  const a = Math.max(-firstOverflow, Math.min(firstOverflow, float));
  const b = Math.max(-firstOverflow, Math.min(firstOverflow, exact));
  const exponent = Math.max(-126, Math.floor(Math.log2(Math.abs(b))));
  return Math.abs(a - b) / 2 ** (Math.min(exponent, 127) - 23);
}
