/** The operands of the attention kernels: strides in elements or vectors, multiplied by 64-bit indices. */

import { type Dtype, dtypes } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import {
  type AttentionInput,
  type AttentionOperand,
  type AttentionShape,
  resultDtypeOf,
} from "../problem.js";
import { type Elements, lanesOf } from "./element.js";

/** An operand's storage, dtype, row length and strides in elements. */
export interface OperandLayout {
  readonly storage: Storage;
  readonly dtype: Dtype;
  readonly width: number;
  readonly strides: { readonly Batch: number; readonly Head: number; readonly Row: number };
}

/** Describes an operand's layout. The stride of a dimension of size 1 is arbitrary: it becomes 0. */
export function layOut(
  { dtype: computed, batch, heads }: AttentionShape,
  { storage, batchStride, headStride, rowStride, dtype = computed }: AttentionInput,
  rows: number,
  width: number,
): OperandLayout {
  const strideOf = (size: number, stride: number): number => (size > 1 ? stride : 0);
  const strides = {
    Batch: strideOf(batch, batchStride),
    Head: strideOf(heads, headStride),
    Row: strideOf(rows, rowStride),
  };
  return { storage, dtype, width, strides };
}

/** A result, whose dtype may differ from the compute dtype. */
export function layOutResult(
  shape: AttentionShape,
  operand: AttentionOperand,
  rows: number,
  width: number,
): OperandLayout {
  return { ...layOut(shape, operand, rows, width), dtype: resultDtypeOf(shape) };
}

/** True if every row begins and ends on a vector boundary. */
export function areVectors(dtype: GemmDtype, operands: readonly OperandLayout[]): boolean {
  const lanes = lanesOf(dtype);
  return operands.every(({ storage, dtype: elementDtype, width, strides: { Batch, Head, Row } }) =>
    [storage.span.address / dtypes[elementDtype].bytes, width, Batch, Head, Row].every(
      (count) => count % lanes === 0,
    ),
  );
}

type Stride<Name extends string> = `${Name}${keyof OperandLayout["strides"]}`;

/** The kernel parameters for the strides of these operands. */
export function strideParameters<Name extends string>(
  ...names: readonly Name[]
): Readonly<Record<Stride<Name>, "u32">> {
  return Object.fromEntries(
    names.flatMap((name) => [`${name}Batch`, `${name}Head`, `${name}Row`].map((key) => [key, "u32"])),
  ) as Record<Stride<Name>, "u32">;
}

export type Strides<Name extends string> = Readonly<Record<Stride<Name>, number>>;

/** The stride arguments, in units of so many elements. */
export function stridesOf<Name extends string>(
  operands: Readonly<Record<Name, OperandLayout>>,
  unit = 1,
): Strides<Name> {
  return Object.fromEntries(
    Object.entries<OperandLayout>(operands).flatMap(([name, { strides }]) =>
      Object.entries(strides).map(([dimension, stride]) => [`${name}${dimension}`, stride / unit]),
    ),
  ) as Strides<Name>;
}

/** The operands' storages by name. */
export function storagesOf<Name extends string>(
  operands: Readonly<Record<Name, OperandLayout>>,
): Readonly<Record<Name, Storage>> {
  return Object.fromEntries(
    Object.entries<OperandLayout>(operands).map(([name, { storage }]) => [name, storage]),
  ) as Record<Name, Storage>;
}

/** C++: `pair`, `batch` and `head` of a (batch, head) pair. */
export function declarePair(pair: string): string {
  return `
  const unsigned pairNumber = ${pair};
  const long long pair = pairNumber, batch = pairNumber / heads, head = pairNumber % heads;`;
}

/** C++: `name` + Pair for inputs, as pointers of the type that `Memories` defines for their elements. */
export function declareInputs(...names: readonly string[]): string {
  return names
    .map(
      (name) =>
        `  const auto ${name}Pair = Memories::of(${name}) + batch * ${name}Batch + head * ${name}Head;`,
    )
    .join("\n");
}

/** C++: the pointer types of inputs, to vectors or to elements. */
export function declareMemories(areVectors: boolean, { halves }: Elements): string {
  const of = (memory: string, element: string): string =>
    `  static __device__ __forceinline__ const ${memory}* of(const ${element}* operand) { return reinterpret_cast<const ${memory}*>(operand); }\n`;
  const plain = of(areVectors ? "Vector" : "Scalar", "Scalar");
  return `struct Memories {\n${plain}${halves.dtype ? of(areVectors ? "HalfVector" : "Half", "Half") : ""}};`;
}

/** C++: `name` + Pair, the pointer to an operand's elements of one (batch, head), with elements of `type`. */
export function declarePairs(type: string, ...names: readonly string[]): string {
  return names.map((name) => declarePairAt("head", type, name)).join("\n");
}

/** The same of another head, as an expression. */
export function declarePairAt(head: string, type: string, name: string): string {
  return `  const auto ${name}Pair = pointTo<${type}>(${name}) + batch * ${name}Batch + ${head} * ${name}Head;`;
}

/** C++: the pointer casts of `declarePairs`. */
export const pointTo = `
template <class Memory, class Element>
static __device__ __forceinline__ const Memory* pointTo(const Element* operand) {
  return reinterpret_cast<const Memory*>(operand);
}

template <class Memory, class Element>
static __device__ __forceinline__ Memory* pointTo(Element* operand) {
  return reinterpret_cast<Memory*>(operand);
}`;
