/**
 * Softmax of a strip of score rows, in place, and its gradient. The rows lie behind each other. Of the first one the first
 * `seenBytes` are seen, and of each row `seenStep` more than of the one before, as a causal mask has it.
 */

import type { Code, Local, WasmFunction, WasmImport } from "../../../driver/index.js";
import { advance, forRange, limitTo, repeat } from "../../codegen/wasm/loops.js";
import { vectorMath } from "../../codegen/wasm/math/index.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, setZero } from "../../gemm/cpu/direct-rows.js";
import type { Element } from "../../gemm/cpu/element.js";

const vectorBytes = 16;

const opcodes = {
  f32: { subtract: "f32x4.sub", divide: "f32x4.div", larger: "f32x4.pmax" },
  f64: { subtract: "f64x2.sub", divide: "f64x2.div", larger: "f64x2.pmax" },
} as const;

/** exp of doubles is the engine's. */
export function importsOf({ dtype }: Element): readonly WasmImport[] {
  return dtype === "f64" ? [{ name: "exp", parameters: ["f64"], results: ["f64"] }] : [];
}

/** From here down e^x is 0 in float. */
const noPower = -104;

/** Leaves e^x on the stack, lane by lane; the local is overwritten. */
function pushExp(code: Code, { dtype }: Element, x: Local): void {
  if (dtype === "f32") {
    // A product that underflows takes x86 a hundred cycles, and what a mask hides is −Infinity: those are let out.
    const isGone = code.local("v128");
    code.get(x).f32(noPower).op("f32x4.splat").op("f32x4.le").set(isGone);
    code.get(x).get(isGone).op("v128.andnot").set(x);
    vectorMath.exp.inline(code, x);
    code.get(isGone).op("v128.andnot");
    return;
  }
  const pushLane = (lane: number): Code => code.get(x).lane("f64x2.extract_lane", lane).call("math.exp");
  pushLane(0).op("f64x2.splat");
  pushLane(1).lane("f64x2.replace_lane", 1);
}

/** How a pass takes elements: as many as a vector holds, or one, in every lane alike. */
type Form = "vector" | "lone";

/** Goes on from `at` to `end`: a vector at a time, then `between`, and the last elements one by one. */
function pass(
  code: Code,
  { bytes }: Element,
  { at, end }: { readonly at: Local; readonly end: Local },
  visit: (form: Form) => void,
  between?: () => void,
): void {
  const vectors = code.local("i32");
  code.get(end).get(at).op("i32.sub").i32(vectorBytes).op("i32.div_u").set(vectors);
  repeat(code, vectors, () => {
    visit("vector");
    advance(code, at, vectorBytes);
  });
  between?.();
  forRange(code, at, end, bytes, () => visit("lone"));
}

function pushElements(code: Code, element: Element, form: Form, address: Local): Code {
  return code.get(address).memory(form === "vector" ? "v128.load" : element.loadSplat);
}

function storeElements(code: Code, element: Element, form: Form, address: Local, value: Local): void {
  code.get(address).get(value);
  if (form === "vector") code.memory("v128.store");
  else code.lane(element.extractLane, 0).memory(element.store);
}

/** Joins the vector's lanes, and has what comes out in each of them. */
function flattenSpans(code: Code, { lanes }: Element, vector: Local, join: () => void): void {
  code.get(vector).get(vector).get(vector).shuffle([2, 3, 0, 1]);
  join();
  code.set(vector);
  if (lanes === 2) return;
  code.get(vector).get(vector).get(vector).shuffle([1, 0, 3, 2]);
  join();
  code.set(vector);
}

/** Sets what is left of a row, from `at` on, to 0. */
function fillWithZero(code: Code, element: Element, at: Local, rowEnd: Local): void {
  forRange(code, at, rowEnd, element.bytes, () => {
    code.get(at);
    code[element.dtype](0).memory(element.store);
  });
}

/** Runs over a strip's rows; `end` stands behind what a row sees, and `rowEnd` behind the row. */
function overRows(
  code: Code,
  strip: Readonly<
    Record<"row" | "end" | "rowEnd" | "stripEnd" | "rowBytes" | "seenBytes" | "seenStep", Local>
  >,
  body: () => void,
): void {
  const { row, end, rowEnd, stripEnd, rowBytes, seenBytes, seenStep } = strip;
  forRange(code, row, stripEnd, rowBytes, () => {
    code.get(row).get(seenBytes).op("i32.add").set(end);
    code.get(row).get(rowBytes).op("i32.add").set(rowEnd);
    body();
    advance(code, seenBytes, seenStep);
    limitTo(code, seenBytes, rowBytes);
  });
}

/** `addMask`: adds what lies `maskColumnBytes` apart to a row, from `at` to `end`. */
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
 * `softmaxRows`: scores become probabilities; those of columns that are not seen, 0. The largest score is taken off its
 * row first, so that no exp overflows. A row of nothing but −Infinity becomes NaN, and so does one with a NaN.
 */
export function softmaxFunction(element: Element): WasmFunction {
  const { subtract, divide, larger } = opcodes[element.dtype];
  const parameters = {
    strip: "i32",
    stripEnd: "i32",
    rowBytes: "i32",
    seenBytes: "i32",
    seenStep: "i32",
  } as const;
  return wasmFunction("softmaxRows", parameters, (code, { strip, ...given }) => {
    const { row, end, rowEnd, at } = localsOf(code, "i32", "row", "end", "rowEnd", "at");
    const { largest, sums, value } = localsOf(code, "v128", "largest", "sums", "value");

    code.get(strip).set(row);
    overRows(code, { row, end, rowEnd, ...given }, () => {
      code[element.dtype](Number.NEGATIVE_INFINITY).op(element.splat).set(largest);
      code.get(row).set(at);
      // A NaN is not larger than anything: it is kept where it stands, and reaches its row by the sum.
      pass(code, element, { at, end }, (form) => {
        code.get(largest);
        pushElements(code, element, form, at).op(larger).set(largest);
      });
      flattenSpans(code, element, largest, () => code.op(larger));
      setZero(code, element, sums);
      code.get(row).set(at);
      const takePowers = (form: Form): void => {
        pushElements(code, element, form, at).get(largest).op(subtract).set(value);
        pushExp(code, element, value);
        code.set(value);
        storeElements(code, element, form, at, value);
        code.get(sums).get(value).op(element.addVectors).set(sums);
      };
      pass(code, element, { at, end }, takePowers, () =>
        flattenSpans(code, element, sums, () => code.op(element.addVectors)),
      );
      code.get(row).set(at);
      pass(code, element, { at, end }, (form) => {
        pushElements(code, element, form, at).get(sums).op(divide).set(value);
        storeElements(code, element, form, at, value);
      });
      fillWithZero(code, element, at, rowEnd);
    });
  });
}

/** `softmaxGradientRows`: with probabilities p, `gradient = p ∘ (gradient − Σ p ∘ gradient)`, and 0 where nothing is seen. */
export function softmaxGradientFunction(element: Element): WasmFunction {
  const { subtract } = opcodes[element.dtype];
  const parameters = {
    probabilities: "i32",
    strip: "i32",
    stripEnd: "i32",
    rowBytes: "i32",
    seenBytes: "i32",
    seenStep: "i32",
  } as const;
  return wasmFunction("softmaxGradientRows", parameters, (code, { probabilities, strip, ...given }) => {
    const { row, end, rowEnd, at, atP } = localsOf(code, "i32", "row", "end", "rowEnd", "at", "atP");
    const { sums, value } = localsOf(code, "v128", "sums", "value");
    const begin = (): void => {
      code.get(row).set(at).get(probabilities).set(atP);
    };
    const step = (form: Form): void => advance(code, atP, form === "vector" ? vectorBytes : element.bytes);

    code.get(strip).set(row);
    overRows(code, { row, end, rowEnd, ...given }, () => {
      setZero(code, element, sums);
      begin();
      const addUp = (form: Form): void => {
        pushElements(code, element, form, at);
        pushElements(code, element, form, atP);
        accumulate(code, element, sums);
        step(form);
      };
      pass(code, element, { at, end }, addUp, () =>
        flattenSpans(code, element, sums, () => code.op(element.addVectors)),
      );
      begin();
      pass(code, element, { at, end }, (form) => {
        pushElements(code, element, form, at).get(sums).op(subtract);
        pushElements(code, element, form, atP).op(element.multiplyVectors).set(value);
        storeElements(code, element, form, at, value);
        step(form);
      });
      fillWithZero(code, element, at, rowEnd);
      advance(code, probabilities, given.rowBytes);
    });
  });
}
