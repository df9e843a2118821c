/** The operands of a row kernel in CUDA C++: the kernel's parameters, and where each operand stands in a row. */

import type { Dtype, InnerStride, RowKernel } from "../../../ir/index.js";
import { factsOf } from "../../../ir/index.js";
import { elementTypes } from "./element-types.js";
import type { KernelText } from "./kernel-text.js";

/**
 * Where an input that is read after something was stored lies: apart from every output, in the very elements of one, by
 * its number, or overlapping some in another way.
 */
export type Alias = "apart" | number | "mixed";

/** What of the operands' layouts is fixed when a kernel is printed; sizes and strides come with the launch. */
export interface RowLayout {
  /** Over how many axes rows are counted, the last one fastest. */
  readonly outerRank: number;
  /** One for each input, then one for each output. */
  readonly inner: readonly InnerStride[];
  /** By the input's number; missing for inputs that are only read before anything is stored. */
  readonly aliases: ReadonlyMap<number, Alias>;
  /** Inputs that take turns in memory, in that order: a few columns of a matrix. They are read together. */
  readonly interleaved?: readonly (readonly number[])[];
  /** By input, where the kernel begins early: is it good before the launch before has ended? */
  readonly early?: readonly boolean[] | undefined;
}

export interface Operand {
  readonly dtype: Dtype;
  readonly inner: InnerStride;
  /** Points to the row's first element. */
  readonly start: string;
  /** The step along the row; for "any" it is a parameter. */
  readonly step: string;
}

export class RowOperands {
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand[];
  /** What an input that doesn't move along the row holds, by its number: read once, before the stages. */
  readonly fixed = new Map<number, string>();
  readonly #text: KernelText;
  readonly #outerRank: number;
  readonly #addresses: readonly string[];
  readonly #outputs: RowKernel["outputs"];

  /**
   * Declares the parameters: the inputs, the outputs, the `counts` as u32, the sizes of the outer axes but the first,
   * each operand's outer steps and, where it is "any", its inner one, in elements; then the kernel's own scalars.
   */
  constructor(text: KernelText, kernel: RowKernel, layout: RowLayout, counts: readonly string[]) {
    this.#text = text;
    this.#outerRank = layout.outerRank;
    const { inputs, outputs, scalars } = kernel;
    this.#outputs = outputs;
    const ins = inputs.map((dtype, index) => text.pointer("in", elementTypes[dtype].type, `in${index}`));
    const outs = outputs.map(({ dtype }, index) =>
      text.pointer("inout", elementTypes[dtype].type, `out${index}`),
    );
    this.#addresses = [...ins, ...outs];
    for (const count of counts) text.scalar("u32", count);
    for (let axis = 1; axis < layout.outerRank; axis++) text.scalar("u32", `size${axis}`);
    const dtypesOfAll = [...inputs, ...outputs.map(({ dtype }) => dtype)];
    const operands = dtypesOfAll.map((dtype, index) => this.#declare(dtype, index, layout));
    this.inputs = operands.slice(0, inputs.length);
    this.outputs = operands.slice(inputs.length);
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
    for (const [index, plainly] of factsOf(kernel).isReadPlainly.entries()) {
      // An operand that is only read at an index may stand outside its memory where there is none, as a flipped one does.
      if (plainly && layout.inner[index] === "none") this.fixed.set(index, `fixed${index}`);
    }
  }

  /** Prints where each operand's row starts; outputs of a value a row aside. */
  place(row: string): void {
    const text = this.#text;
    if (this.#outerRank > 1) text.line(`unsigned rest = ${row};`);
    for (let axis = this.#outerRank - 1; axis > 0; axis--) {
      text.define("const int", `at${axis}`, `(int)(rest % size${axis})`);
      text.line(`rest /= size${axis};`);
    }
    if (this.#outerRank > 0) text.define("const int", "at0", `(int)${this.#outerRank > 1 ? "rest" : row}`);
    for (const index of this.inputs.keys()) this.#placeOperand(index);
    for (const [output, { per }] of this.#outputs.entries()) if (per === "element") this.placeOutput(output);
  }

  /** Reads what doesn't move along the row. */
  loadInvariant(): void {
    for (const [index, name] of this.fixed) {
      const operand = this.inputs[index];
      if (!operand) continue;
      this.#text.define("const auto", name, widened(this.#text, operand.dtype, `${operand.start}[0]`));
    }
  }

  /** Prints where an output's row starts. One of a value a row is placed where that is stored: registers are few. */
  placeOutput(output: number): void {
    this.#placeOperand(this.inputs.length + output);
  }

  #placeOperand(index: number): void {
    const isInput = index < this.inputs.length;
    const operand = isInput ? this.inputs[index] : this.outputs[index - this.inputs.length];
    if (this.#outerRank === 0 || !operand) return;
    const type = `${isInput ? "const " : ""}${elementTypes[operand.dtype].type}`;
    const steps = Array.from(
      { length: this.#outerRank },
      (_, axis) => ` + (long long)at${axis} * step${index}_${axis}`,
    );
    this.#text.define(`${type}* const`, operand.start, `${this.#addresses[index]}${steps.join("")}`);
  }

  #declare(dtype: Dtype, index: number, { outerRank, inner: inners }: RowLayout): Operand {
    const inner = inners[index] ?? "unit";
    for (let axis = 0; axis < outerRank; axis++) this.#text.scalar("i32", `step${index}_${axis}`);
    const step = inner === "any" ? this.#text.scalar("i32", `step${index}`) : "1";
    const start = outerRank === 0 ? (this.#addresses[index] ?? "") : `row${index}`;
    return { dtype, inner, start, step };
  }
}

/** An element's text, widened to what its dtype computes in. */
export function widened(text: KernelText, dtype: Dtype, element: string): string {
  const { widen } = elementTypes[dtype];
  return widen ? text.call(widen, element) : element;
}

/** A value's text, narrowed to what its dtype holds. */
export function narrowed(text: KernelText, dtype: Dtype, value: string): string {
  const { narrow } = elementTypes[dtype];
  return narrow ? text.call(narrow, value) : value;
}
