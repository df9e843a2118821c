/**
 * Traces a forward pass as calls of ops, before they are lowered. The eager engine runs unchanged on fake memory; this trace follows which
 * op wrote which array, and so turns memory into values.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes, type RowKernel } from "../ir/index.js";
import type { KernelCall } from "../kernels/index.js";
import {
  type Attributes,
  type DeviceArray,
  isContiguous,
  type LoweredOp,
  type OpCall,
  OpTrace,
  type Shape,
} from "../ops/index.js";
import type { LoadedCommand, Runtime, Storage, UploadItem } from "../runtime/index.js";
import { type Region, regionOf } from "./region.js";

/** Where a value comes from. */
export type ValueSource =
  | { readonly kind: "call"; readonly call: number; readonly output: number }
  | { readonly kind: "input"; readonly index: number }
  /** Memory that was there before the trace: a parameter, a buffer, or another tensor. */
  | { readonly kind: "stored"; readonly array: DeviceArray }
  /** Elements that the host computed in the trace, in row-major order. */
  | { readonly kind: "constant"; readonly bytes: Uint8Array };

export interface TracedValue {
  readonly id: number;
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly source: ValueSource;
}

/** The kernel of an elementwise op: its inputs are the op's tensors in order. */
export interface ElementwiseKernel {
  readonly kernel: RowKernel;
  readonly scalars: readonly number[];
}

export interface TracedCall {
  readonly op: string;
  /** The path of the module that called it; empty for the model itself. */
  readonly layer: string;
  /** Ids of values, or literal numbers. */
  readonly operands: readonly ({ readonly value: number } | number)[];
  readonly attributes: Attributes;
  readonly outputs: readonly number[];
  readonly elementwise: ElementwiseKernel | undefined;
}

interface Entry {
  readonly id: number;
  readonly array: DeviceArray;
  readonly from: number;
  readonly to: number;
}

/** Composite ops that are recorded as one call. */
export type KeptComposites = ReadonlySet<string>;

export class ForwardTrace extends OpTrace {
  readonly calls: TracedCall[] = [];
  readonly values: TracedValue[] = [];
  readonly #runtime: Runtime;
  readonly #composites: KeptComposites;
  /** By address and layout: the value that an array has now. */
  readonly #entries = new Map<string, Entry>();
  /** Bytes that the host wrote to traced memory, by address. */
  readonly #uploads = new Map<number, Uint8Array>();
  /** Memory from before the trace that a call has written. */
  readonly #written: { readonly from: number; readonly to: number }[] = [];
  readonly #layers: string[] = [];
  /** The depth of kept composites around the present op. */
  #hidden = 0;

  constructor(runtime: Runtime, composites: KeptComposites) {
    super();
    this.#runtime = runtime;
    this.#composites = composites;
  }

  addInput(array: DeviceArray, index: number): void {
    this.#write(array, this.#addValue(array, { kind: "input", index }));
  }

  enterLayer(path: string): void {
    this.#layers.push(path);
  }

  leaveLayer(): void {
    this.#layers.pop();
  }

  /** The id of an array's value. */
  resolve(array: DeviceArray): number {
    const known = this.#entries.get(keyOf(array));
    if (known) return known.id;
    const { storage } = array;
    if (!storage) return this.#addValue(array, { kind: "constant", bytes: new Uint8Array(0) });
    const source = this.#sourceOf(array, storage);
    if (!source) return this.#partOfKnown(array, storage);
    const id = this.#addValue(array, source);
    this.#enter(array, id);
    return id;
  }

  override recordOp({ name, operands, outputs, attributes, calls }: LoweredOp): void {
    if (this.#hidden === 0) this.#addCall({ name, operands, attributes }, outputs, elementwiseIn(calls));
  }

  override recordView(call: OpCall, output: DeviceArray): void {
    if (this.#hidden > 0) return;
    const operands = call.operands.map((operand) => this.#operand(operand));
    const id = this.#addValue(output, { kind: "call", call: this.calls.length, output: 0 });
    this.calls.push({
      ...{ op: call.name, layer: this.#layer, operands, attributes: call.attributes },
      ...{ outputs: [id], elementwise: undefined },
    });
    this.#enter(output, id);
  }

  override recordCopy(source: DeviceArray, target: DeviceArray): void {
    if (this.#hidden === 0)
      this.#addCall(
        { name: "copy", operands: [source], attributes: { dtype: target.dtype } },
        [target],
        undefined,
      );
  }

  override enterComposite(call: OpCall): (outputs: readonly DeviceArray[]) => void {
    if (!this.#composites.has(call.name)) return () => undefined;
    const operands = this.#hidden > 0 ? [] : call.operands.map((operand) => this.#operand(operand));
    this.#hidden++;
    return (outputs) => {
      this.#hidden--;
      if (this.#hidden === 0) this.#finishCall({ ...call, operands }, outputs, undefined);
    };
  }

  /** A call outside of the op table: its targets have no known value afterwards. */
  recordCall(call: KernelCall): void {
    if (this.#hidden > 0) return;
    switch (call.kind) {
      case "row":
      case "column":
        for (const target of call.operands.slice(call.kernel.inputs.length)) this.#forget(target);
        return;
      case "fill":
      case "copy":
        this.#forget(call.target);
        return;
      default:
        this.reject("work that is no op of the table", call.kind);
    }
  }

  record(command: LoadedCommand): void {
    if (this.#hidden > 0) return;
    if (command.kind === "launch") this.reject("a kernel that is no op of the table", command.request.op);
    else this.#forget(command.target);
  }

  upload(items: Iterable<UploadItem>): void {
    for (const { source, target } of items) {
      if (!this.#runtime.arena.isTraced(target)) this.reject("upload data", target.label);
      this.#forget(target);
      const bytes = new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice();
      this.#uploads.set(target.span.address, bytes);
    }
  }

  reject(what: string, label: string): never {
    const layer = this.#layer;
    throw new HoldfastError(
      "UNSUPPORTED",
      `This model can't be exported to ONNX: it does what a traced forward pass can't: ${what} ("${label}"` +
        `${layer ? `, in ${layer}` : ""}). Compute with tensors only, and write in place to no other views than slices.`,
      { numbers: { what, label, ...(layer && { layer }) } },
    );
  }

  // A forward pass has no updates, and guards matter only for later calls.
  enterStepPhase(): () => void {
    return () => undefined;
  }
  enterRecomputation(): () => void {
    return () => undefined;
  }
  addGuard(): void {}
  writeOnlyIfFinite(): void {}
  writeWhileFinite(_value: Storage, body: () => void): void {
    body();
  }
  spareWrites(): void {}
  checkIndices(): void {}
  discard(): void {}

  get #layer(): string {
    return this.#layers.at(-1) ?? "";
  }

  #operand(operand: DeviceArray | number): { readonly value: number } | number {
    return typeof operand === "number" ? operand : { value: this.resolve(operand) };
  }

  #addCall(call: OpCall, outputs: readonly DeviceArray[], elementwise: ElementwiseKernel | undefined): void {
    const operands = call.operands.map((operand) => this.#operand(operand));
    this.#finishCall({ ...call, operands }, outputs, elementwise);
  }

  #finishCall(
    { name, operands, attributes }: Omit<OpCall, "operands"> & Pick<TracedCall, "operands">,
    outputs: readonly DeviceArray[],
    elementwise: ElementwiseKernel | undefined,
  ): void {
    const call = this.calls.length;
    const ids = outputs.map((array, output) => this.#addValue(array, { kind: "call", call, output }));
    this.calls.push({ op: name, layer: this.#layer, operands, attributes, outputs: ids, elementwise });
    for (const [index, array] of outputs.entries()) this.#write(array, ids[index] ?? 0);
  }

  #addValue({ shape, dtype }: DeviceArray, source: ValueSource): number {
    const id = this.values.length;
    this.values.push({ id, shape: [...shape], dtype, source });
    return id;
  }

  /** Keeps the value that an array has now. */
  #enter(array: DeviceArray, id: number): void {
    if (array.storage) this.#entries.set(keyOf(array), { id, array, ...rangeOf(array.storage) });
  }

  /** An array has a new value. So have all arrays that it is a part of. */
  #write(array: DeviceArray, id: number): void {
    const { storage } = array;
    if (!storage) return;
    const { from, to } = rangeOf(storage);
    const wholes = [...this.#entries.values()].flatMap((entry) => {
      const isOverlapping = entry.from < to && from < entry.to && keyOf(entry.array) !== keyOf(array);
      const region = isOverlapping ? regionOf(array, entry.array) : undefined;
      return region ? [{ entry, region }] : [];
    });
    this.#forget(storage);
    this.#enter(array, id);
    for (const { entry, region } of wholes) {
      const written = this.#addRegionCall("overwrite", [entry.id, id], entry.array, region);
      this.#enter(entry.array, written);
    }
  }

  #addRegionCall(
    op: "part" | "overwrite",
    operands: readonly number[],
    output: DeviceArray,
    region: Region,
  ): number {
    const id = this.#addValue(output, { kind: "call", call: this.calls.length, output: 0 });
    this.calls.push({
      ...{ op, layer: this.#layer, operands: operands.map((value) => ({ value })) },
      ...{ attributes: { ...region }, outputs: [id], elementwise: undefined },
    });
    return id;
  }

  /** The value of a part of an array whose value is known. */
  #partOfKnown(array: DeviceArray, storage: Storage): number {
    for (const entry of this.#entries.values()) {
      const region = regionOf(array, entry.array);
      if (!region) continue;
      const id = this.#addRegionCall("part", [entry.id], array, region);
      this.#enter(array, id);
      return id;
    }
    return this.reject("a read of memory that was written in place through another view", storage.label);
  }

  /** Memory that is written: values of overlapping arrays are gone. */
  #forget(storage: Storage): void {
    const { from, to } = rangeOf(storage);
    for (const [key, entry] of this.#entries)
      if (entry.from < to && from < entry.to) this.#entries.delete(key);
    for (const [address, bytes] of this.#uploads)
      if (address < to && from < address + bytes.length) this.#uploads.delete(address);
    if (!this.#runtime.arena.isTraced(storage)) this.#written.push({ from, to });
  }

  /** Undefined if calls have written to the memory. */
  #sourceOf(array: DeviceArray, storage: Storage): ValueSource | undefined {
    const { from, to } = rangeOf(storage);
    if (!this.#runtime.arena.isTraced(storage)) {
      const isWritten = this.#written.some((range) => range.from < to && from < range.to);
      return isWritten ? undefined : { kind: "stored", array };
    }
    const bytes = this.#uploads.get(from);
    const size = array.shape.reduce((product, length) => product * length, dtypes[array.dtype].bytes);
    return bytes && isContiguous(array) && bytes.length >= size
      ? { kind: "constant", bytes: bytes.subarray(0, size) }
      : undefined;
  }
}

function rangeOf({ span: { address, size } }: Storage): { readonly from: number; readonly to: number } {
  return { from: address, to: address + size };
}

function keyOf({ storage, dtype, shape, strides }: DeviceArray): string {
  return `${storage?.span.address} ${dtype} ${shape} / ${strides}`;
}

/** The kernel of an op that is one store for each element. */
function elementwiseIn(calls: readonly KernelCall[]): ElementwiseKernel | undefined {
  const [call, ...others] = calls;
  if (call?.kind !== "row" || others.length > 0 || call.kernel.stages.length !== 1) return undefined;
  return { kernel: call.kernel, scalars: call.scalars ?? [] };
}
