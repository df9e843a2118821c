/**
 * Softmax of a strip of score rows, in place, and its gradient. The rows are contiguous. The first `visibleBytes` of the first row are
 * visible, and `visibleStep` more of each following row, as under a causal mask.
 */

import type { Code, Local, WasmFunction, WasmImport } from "../../../driver/index.js";
import { advance, forRange, limitTo, repeat } from "../../codegen/wasm/loops.js";
import { vectorMath } from "../../codegen/wasm/math/index.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, setZero } from "../../gemm/cpu/direct-rows.js";
import type { Element } from "../../gemm/cpu/element.js";

const vectorBytes = 16;

const opcodes = {
  f32: { subtract: "f32x4.sub", divide: "f32x4.div", max: "f32x4.pmax" },
  f64: { subtract: "f64x2.sub", divide: "f64x2.div", max: "f64x2.pmax" },
} as const;

/** exp of f64 is imported from the engine. */
export function importsOf({ dtype }: Element): readonly WasmImport[] {
  return dtype === "f64" ? [{ name: "exp", parameters: ["f64"], results: ["f64"] }] : [];
}

/** Below this, exp is 0 in f32. */
const minExponent = -104;

/** Pushes exp(x) of each lane; the local is overwritten. */
function pushExp(code: Code, { dtype }: Element, x: Local): void {
  if (dtype === "f32") {
    // Underflow costs x86 a hundred cycles, and masked scores are −Infinity: these lanes are zeroed instead.
    const underflows = code.local("v128");
    code.get(x).f32(minExponent).op("f32x4.splat").op("f32x4.le").set(underflows);
    code.get(x).get(underflows).op("v128.andnot").set(x);
    vectorMath.exp.inline(code, x);
    code.get(underflows).op("v128.andnot");
    return;
  }
  const pushLane = (lane: number): Code => code.get(x).lane("f64x2.extract_lane", lane).call("math.exp");
  pushLane(0).op("f64x2.splat");
  pushLane(1).lane("f64x2.replace_lane", 1);
}

/** How a loop processes elements: a vector of neighbours, or one element splatted. */
type LoopMode = "vector" | "scalar";

/** Loops from `at` to `end`: over whole vectors, then `beforeTail`, then over the tail element by element. */
function forElements(
  code: Code,
  { bytes }: Element,
  { at, end }: { readonly at: Local; readonly end: Local },
  visit: (mode: LoopMode) => void,
  beforeTail?: () => void,
): void {
  const vectors = code.local("i32");
  code.get(end).get(at).op("i32.sub").i32(vectorBytes).op("i32.div_u").set(vectors);
  repeat(code, vectors, () => {
    visit("vector");
    advance(code, at, vectorBytes);
  });
  beforeTail?.();
  forRange(code, at, end, bytes, () => visit("scalar"));
}

function pushElements(code: Code, element: Element, mode: LoopMode, address: Local): Code {
  return code.get(address).memory(mode === "vector" ? "v128.load" : element.loadSplat);
}

function storeElements(code: Code, element: Element, mode: LoopMode, address: Local, value: Local): void {
  code.get(address).get(value);
  if (mode === "vector") code.memory("v128.store");
  else code.lane(element.extractLane, 0).memory(element.store);
}

/** Reduces the lanes of a vector (butterfly): every lane gets the result. */
function reduceLanes(code: Code, { lanes }: Element, vector: Local, combine: () => void): void {
  code.get(vector).get(vector).get(vector).shuffle([2, 3, 0, 1]);
  combine();
  code.set(vector);
  if (lanes === 2) return;
  code.get(vector).get(vector).get(vector).shuffle([1, 0, 3, 2]);
  combine();
  code.set(vector);
}

/** Zeroes the rest of a row, from `at` on. */
function fillWithZero(code: Code, element: Element, at: Local, rowEnd: Local): void {
  forRange(code, at, rowEnd, element.bytes, () => {
    code.get(at);
    code[element.dtype](0).memory(element.store);
  });
}

/** Loops over a strip's rows; `end` is the end of a row's visible elements, and `rowEnd` the end of the row. */
function overRows(
  code: Code,
  strip: Readonly<
    Record<"row" | "end" | "rowEnd" | "stripEnd" | "rowBytes" | "visibleBytes" | "visibleStep", Local>
  >,
  body: () => void,
): void {
  const { row, end, rowEnd, stripEnd, rowBytes, visibleBytes, visibleStep } = strip;
  forRange(code, row, stripEnd, rowBytes, () => {
    code.get(row).get(visibleBytes).op("i32.add").set(end);
    code.get(row).get(rowBytes).op("i32.add").set(rowEnd);
    body();
    advance(code, visibleBytes, visibleStep);
    limitTo(code, visibleBytes, rowBytes);
  });
}

/** `addMask`: adds a mask with stride `maskColumnBytes` to a row, from `at` to `end`. */
export function addMaskFunction(element: Element): WasmFunction {
  const parameters = { at: "i32", end: "i32", mask: "i32", maskColumnBytes: "i32" } as const;
  return wasmFunction("addMask", parameters, (code, { at, end, mask, maskColumnBytes }) => {
    forRange(code, at, end, element.bytes, () => {
      code.get(at).get(at).memory(element.load).get(mask).memory(element.load);
      code.op(element.add).memory(element.store);
      advance(code, mask, maskColumnBytes);
    });
  });
}

/**
 * `softmaxRows`: replaces scores by probabilities, and by 0 in invisible columns. The maximum of a row is subtracted first, so that no
 * exp overflows. A row that is −Infinity everywhere becomes NaN, and so does a row with a NaN.
 */
export function softmaxFunction(element: Element): WasmFunction {
  const { subtract, divide, max } = opcodes[element.dtype];
  const parameters = {
    strip: "i32",
    stripEnd: "i32",
    rowBytes: "i32",
    visibleBytes: "i32",
    visibleStep: "i32",
  } as const;
  return wasmFunction("softmaxRows", parameters, (code, { strip, ...args }) => {
    const { row, end, rowEnd, at } = localsOf(code, "i32", "row", "end", "rowEnd", "at");
    const { rowMax, acc, value } = localsOf(code, "v128", "rowMax", "acc", "value");

    code.get(strip).set(row);
    overRows(code, { row, end, rowEnd, ...args }, () => {
      code[element.dtype](Number.NEGATIVE_INFINITY).op(element.splat).set(rowMax);
      code.get(row).set(at);
      // pmax ignores a NaN in its second operand. The NaN reaches the whole row through the sum.
      forElements(code, element, { at, end }, (mode) => {
        code.get(rowMax);
        pushElements(code, element, mode, at).op(max).set(rowMax);
      });
      reduceLanes(code, element, rowMax, () => code.op(max));
      setZero(code, element, acc);
      code.get(row).set(at);
      const exponentiate = (mode: LoopMode): void => {
        pushElements(code, element, mode, at).get(rowMax).op(subtract).set(value);
        pushExp(code, element, value);
        code.set(value);
        storeElements(code, element, mode, at, value);
        code.get(acc).get(value).op(element.addVectors).set(acc);
      };
      forElements(code, element, { at, end }, exponentiate, () =>
        reduceLanes(code, element, acc, () => code.op(element.addVectors)),
      );
      code.get(row).set(at);
      forElements(code, element, { at, end }, (mode) => {
        pushElements(code, element, mode, at).get(acc).op(divide).set(value);
        storeElements(code, element, mode, at, value);
      });
      fillWithZero(code, element, at, rowEnd);
    });
  });
}

/** `softmaxGradientRows`: with probabilities p, `gradient = p ∘ (gradient − Σ p ∘ gradient)`, and 0 for invisible columns. */
export function softmaxGradientFunction(element: Element): WasmFunction {
  const { subtract } = opcodes[element.dtype];
  const parameters = {
    probabilities: "i32",
    strip: "i32",
    stripEnd: "i32",
    rowBytes: "i32",
    visibleBytes: "i32",
    visibleStep: "i32",
  } as const;
  return wasmFunction("softmaxGradientRows", parameters, (code, { probabilities, strip, ...args }) => {
    const { row, end, rowEnd, at, atP } = localsOf(code, "i32", "row", "end", "rowEnd", "at", "atP");
    const { acc, value } = localsOf(code, "v128", "acc", "value");
    const rewind = (): void => {
      code.get(row).set(at).get(probabilities).set(atP);
    };
    const advanceP = (mode: LoopMode): void =>
      advance(code, atP, mode === "vector" ? vectorBytes : element.bytes);

    code.get(strip).set(row);
    overRows(code, { row, end, rowEnd, ...args }, () => {
      setZero(code, element, acc);
      rewind();
      const sumProducts = (mode: LoopMode): void => {
        pushElements(code, element, mode, at);
        pushElements(code, element, mode, atP);
        accumulate(code, element, acc);
        advanceP(mode);
      };
      forElements(code, element, { at, end }, sumProducts, () =>
        reduceLanes(code, element, acc, () => code.op(element.addVectors)),
      );
      rewind();
      forElements(code, element, { at, end }, (mode) => {
        pushElements(code, element, mode, at).get(acc).op(subtract);
        pushElements(code, element, mode, atP).op(element.multiplyVectors).set(value);
        storeElements(code, element, mode, at, value);
        advanceP(mode);
      });
      fillWithZero(code, element, at, rowEnd);
      advance(code, probabilities, args.rowBytes);
    });
  });
}
