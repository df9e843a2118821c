/** The operands of a row kernel in CUDA C++: the kernel's parameters, and the address of each operand's row. */

import type { InnerStride, InputDtype, RowKernel } from "../../../ir/index.js";
import { factsOf, inputDtypes } from "../../../ir/index.js";
import { computeTypes, elementTypes } from "./element-types.js";
import type { KernelText } from "./kernel-text.js";

/**
 * How an input that is read after a store aliases the outputs: not at all, element by element with one output (its number), or in
 * another way.
 */
export type Alias = "none" | number | "mixed";

/** The properties that the generated code is specialised on; sizes and strides are launch parameters. */
export interface RowLayout {
  /** The number of outer axes, the last one fastest. */
  readonly outerRank: number;
  /** One for each input, then one for each output. */
  readonly inner: readonly InnerStride[];
  /** By input; missing for inputs that are only read before the first store. */
  readonly aliases: ReadonlyMap<number, Alias>;
  /** Groups of inputs that are interleaved in memory, in order (a few columns of a matrix). They are loaded together. */
  readonly interleaved?: readonly (readonly number[])[];
  /** Programmatic dependent launch: the inputs that can be loaded before the grid dependency wait. */
  readonly prefetchable?: readonly boolean[] | undefined;
  /** True if approximate functions are used. Default: false. */
  readonly usesFastMath?: boolean;
  /** By output: a C++ condition without which it is not stored, the same for the whole block. */
  readonly storedIf?: ReadonlyMap<number, string>;
}

export interface Operand {
  readonly dtype: InputDtype;
  readonly inner: InnerStride;
  /** The operand's parameter, a pointer. */
  readonly memory: string;
  /** A pointer to the row's first element; of a draw, the index of that element. */
  readonly start: string;
  /** The stride along the row; a parameter for "any". */
  readonly stride: string;
  /** See `RowLayout`. */
  readonly storedIf?: string | undefined;
}

export class RowOperands {
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand[];
  /** By input: the local of an input that is constant along the row, loaded once before the stages. */
  readonly rowInvariant = new Map<number, string>();
  readonly #text: KernelText;
  readonly #outerRank: number;
  readonly #addresses: readonly string[];
  readonly #outputs: RowKernel["outputs"];

  /**
   * Declares the parameters: the inputs and outputs; the `counts` as u32; the sizes of the outer axes but the first; each operand's outer
   * strides in elements and, for "any", its inner stride; then the kernel's scalars.
   */
  constructor(text: KernelText, kernel: RowKernel, layout: RowLayout, counts: readonly string[]) {
    this.#text = text;
    this.#outerRank = layout.outerRank;
    const { inputs, outputs, scalars } = kernel;
    this.#outputs = outputs;
    const ins = inputs.map((dtype, index) => {
      const { type, memory = type } = elementTypes[dtype];
      return text.pointer("in", memory, `in${index}`);
    });
    const outs = outputs.map(({ dtype }, index) =>
      text.pointer("inout", elementTypes[dtype].type, `out${index}`),
    );
    this.#addresses = [...ins, ...outs];
    for (const count of counts) text.scalar("u32", count);
    for (let axis = 1; axis < layout.outerRank; axis++) text.scalar("u32", `size${axis}`);
    const operandDtypes = [...inputs, ...outputs.map(({ dtype }) => dtype)];
    const operands = operandDtypes.map((dtype, index) => this.#declare(dtype, index, layout));
    this.inputs = operands.slice(0, inputs.length);
    this.outputs = operands
      .slice(inputs.length)
      .map((operand, output) => ({ ...operand, storedIf: layout.storedIf?.get(output) }));
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
    for (const [index, isDirect] of factsOf(kernel).isReadDirectly.entries()) {
      // An operand that is only read at an index may have its row start outside of its memory, such as a flipped operand.
      if (isDirect && layout.inner[index] === "none") this.rowInvariant.set(index, `invariant${index}`);
    }
  }

  /** Prints the row address of each operand, except for outputs with one value per row, and for some inputs. */
  printRowAddresses(row: string, except: ReadonlySet<number> = new Set()): void {
    this.#printIndices(row);
    for (const index of this.inputs.keys()) if (!except.has(index)) this.#printRowAddress(index);
    for (const [output, { per }] of this.#outputs.entries())
      if (per === "element") this.printOutputAddress(output);
  }

  /** Prints the indices of a row along the outer axes. */
  #printIndices(row: string): void {
    const text = this.#text;
    if (this.#outerRank > 1) text.line(`unsigned rest = ${row};`);
    for (let axis = this.#outerRank - 1; axis > 0; axis--) {
      text.define("const int", `index${axis}`, `(int)(rest % size${axis})`);
      text.line(`rest /= size${axis};`);
    }
    if (this.#outerRank > 0) text.define("const int", "index0", `(int)${this.#outerRank > 1 ? "rest" : row}`);
  }

  /** Prints the row addresses of some inputs. */
  printInputAddresses(row: string, inputs: Iterable<number>): void {
    this.#printIndices(row);
    for (const index of inputs) this.#printRowAddress(index);
  }

  /** Loads the inputs that are constant along the row. */
  loadInvariant(): void {
    for (const [index, name] of this.rowInvariant)
      this.#text.define("const auto", name, this.#firstOf(index));
  }

  /** Declares locals for those of a later row. */
  declareNextInvariant(): void {
    for (const [index, name] of this.rowInvariant) {
      const dtype = this.inputs[index]?.dtype ?? "f32";
      const type = computeTypes[inputDtypes[dtype].compute];
      this.#text.line(`${type} ${nextOf(name)} = 0;`);
    }
  }

  loadNextInvariant(): void {
    for (const [index, name] of this.rowInvariant)
      this.#text.line(`${nextOf(name)} = ${this.#firstOf(index)};`);
  }

  takeNextInvariant(): void {
    for (const name of this.rowInvariant.values()) this.#text.define("const auto", name, nextOf(name));
  }

  /** C++: the first element of an input's row. */
  #firstOf(index: number): string {
    const operand = this.inputs[index];
    return operand ? elementAt(this.#text, operand, "0") : "";
  }

  /** Prints an output's row address. One value per row is addressed where it is stored, to save registers. */
  printOutputAddress(output: number): void {
    this.#printRowAddress(this.inputs.length + output);
  }

  #printRowAddress(index: number): void {
    const isInput = index < this.inputs.length;
    const operand = isInput ? this.inputs[index] : this.outputs[index - this.inputs.length];
    if (this.#outerRank === 0 || !operand) return;
    const offsets = Array.from(
      { length: this.#outerRank },
      (_, axis) => `(long long)index${axis} * stride${index}_${axis}`,
    );
    if (operand.dtype === "draw") {
      this.#text.define("const long long", operand.start, offsets.join(" + "));
      return;
    }
    const type = `${isInput ? "const " : ""}${elementTypes[operand.dtype].type}`;
    const address = [operand.memory, ...offsets].join(" + ");
    this.#text.define(`${type}* const`, operand.start, address);
  }

  #declare(dtype: InputDtype, index: number, { outerRank, inner: inners }: RowLayout): Operand {
    const inner = inners[index] ?? "unit";
    for (let axis = 0; axis < outerRank; axis++) this.#text.scalar("i32", `stride${index}_${axis}`);
    const stride = inner === "any" ? this.#text.scalar("i32", `stride${index}`) : "1";
    const memory = this.#addresses[index] ?? "";
    const first = dtype === "draw" ? "0ll" : memory;
    return { dtype, inner, memory, start: outerRank === 0 ? first : `row${index}`, stride };
  }
}

/** The local of an invariant of a later row. */
const nextOf = (name: string): string => `next_${name}`;

/** The element of an input at an offset from the row's start, in its compute type. */
export function elementAt(text: KernelText, { dtype, memory, start }: Operand, offset: string): string {
  if (dtype !== "draw") return widened(text, dtype, `${start}[${offset}]`);
  return `${text.use("drawVec")}<1>(${memory}, ${start} + ${offset}).element[0]`;
}

/** Converts an element to its compute type. */
export function widened(text: KernelText, dtype: InputDtype, element: string): string {
  const { widen } = elementTypes[dtype];
  return widen ? text.call(widen, element) : element;
}

/** Element `index` of a vector `vec` of several elements, in its compute type. */
export function widenedElement(text: KernelText, dtype: InputDtype, vec: string, index: string): string {
  if (dtype === "bf16") return text.call("widenElement_bf16", vec, index);
  if (dtype === "draw") return text.call("drawnNumber", vec, index);
  return widened(text, dtype, `${vec}.element[${index}]`);
}

/** Converts a value to the dtype of memory. */
export function narrowed(text: KernelText, dtype: InputDtype, value: string): string {
  const { narrow } = elementTypes[dtype];
  return narrow ? text.call(narrow, value) : value;
}
