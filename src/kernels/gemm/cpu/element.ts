/** The element types of CPU GEMMs, each with its scalar and vector instructions and its tile. */

import {
  type Code,
  hasRelaxedSimd,
  type LaneOpcode,
  type Local,
  type MemoryOpcode,
  type StackOpcode,
} from "../../../driver/index.js";
import { type TileShape, tileShape } from "./tile-shape.js";

export type GemmDtype = "f32" | "f64";

export interface Element {
  readonly dtype: GemmDtype;
  readonly bytes: number;
  /** Elements of a vector. */
  readonly lanes: number;
  readonly load: MemoryOpcode;
  readonly store: MemoryOpcode;
  readonly add: StackOpcode;
  readonly multiply: StackOpcode;
  readonly loadSplat: MemoryOpcode;
  readonly splat: StackOpcode;
  readonly extractLane: LaneOpcode;
  readonly addVectors: StackOpcode;
  readonly multiplyVectors: StackOpcode;
  /** Undefined if the engine has none: then the product is rounded before the addition. */
  readonly fusedMultiplyAdd: StackOpcode | undefined;
  readonly tile: TileShape;
}

/** Instructions that every engine has. */
export const plainElements: Readonly<Record<GemmDtype, Element>> = {
  f32: {
    dtype: "f32",
    bytes: 4,
    lanes: 4,
    load: "f32.load",
    store: "f32.store",
    add: "f32.add",
    multiply: "f32.mul",
    loadSplat: "v128.load32_splat",
    splat: "f32x4.splat",
    extractLane: "f32x4.extract_lane",
    addVectors: "f32x4.add",
    multiplyVectors: "f32x4.mul",
    fusedMultiplyAdd: undefined,
    tile: tileShape,
  },
  f64: {
    dtype: "f64",
    bytes: 8,
    lanes: 2,
    load: "f64.load",
    store: "f64.store",
    add: "f64.add",
    multiply: "f64.mul",
    loadSplat: "v128.load64_splat",
    splat: "f64x2.splat",
    extractLane: "f64x2.extract_lane",
    addVectors: "f64x2.add",
    multiplyVectors: "f64x2.mul",
    fusedMultiplyAdd: undefined,
    tile: tileShape,
  },
};

/** The best instructions of this engine. */
export function elementOf(dtype: GemmDtype): Element {
  const plain = plainElements[dtype];
  return hasRelaxedSimd() ? { ...plain, fusedMultiplyAdd: fusedOpcodes[dtype] } : plain;
}

const fusedOpcodes = { f32: "f32x4.relaxed_madd", f64: "f64x2.relaxed_madd" } as const;

/** `acc += a · b` with vectors a and b on the stack; a fused multiply-add if the engine has one. */
export function accumulateVector(code: Code, element: Element, acc: Local): void {
  if (element.fusedMultiplyAdd) code.get(acc).op(element.fusedMultiplyAdd).set(acc);
  else code.op(element.multiplyVectors).get(acc).op(element.addVectors).set(acc);
}

/** How a GEMM updates C: the last arguments of every function that writes it. */
export interface Blend {
  /** Undefined if the value is already scaled by alpha. */
  readonly alpha?: Local;
  readonly beta: Local;
  /** 0 if C is not read. Its old contents may be anything, also NaN. */
  readonly readsC: Local;
}

/** A value and its destination in C: one element, or a vector of neighbours. */
export interface BlendTarget {
  readonly address: Local;
  readonly offset: number;
  readonly value: Local;
}

/** `C = alpha · value (+ beta · C)`; the value's local is overwritten. */
export function blendIntoC(
  code: Code,
  element: Element,
  mode: "scalar" | "vector",
  { address, offset, value }: BlendTarget,
  { alpha, beta, readsC }: Blend,
): void {
  const isVector = mode === "vector";
  const multiplyBy = (factor: Local): void => {
    code.get(factor);
    if (isVector) code.op(element.splat).op(element.multiplyVectors);
    else code.op(element.multiply);
  };
  if (alpha) {
    code.get(value);
    multiplyBy(alpha);
    code.set(value);
  }
  code.get(readsC).if(() => {
    code.get(address).memory(isVector ? "v128.load" : element.load, offset);
    multiplyBy(beta);
    code.get(value);
    code.op(isVector ? element.addVectors : element.add).set(value);
  });
  code.get(address).get(value);
  code.memory(isVector ? "v128.store" : element.store, offset);
}
