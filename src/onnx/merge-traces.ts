/** Merges traces of one forward pass at several sizes: numbers that differ become symbolic sizes. */

import { HoldfastError } from "../errors/index.js";
import {
  type Dtype,
  type ElementArray,
  type RowKernel,
  viewElements,
  widenBf16,
  widenF16,
} from "../ir/index.js";
import type { DeviceArray } from "../ops/index.js";
import type { TracedCall, TracedValue } from "./forward-trace.js";
import { fitSize, type Samples, type Size } from "./sizes.js";

export interface Value {
  readonly id: number;
  readonly shape: readonly Size[];
  readonly dtype: Dtype;
  readonly source: Source;
}

export type Source =
  | { readonly kind: "call"; readonly call: Call; readonly output: number }
  | { readonly kind: "input"; readonly index: number }
  | { readonly kind: "stored"; readonly array: DeviceArray }
  | { readonly kind: "constant"; readonly bytes: Uint8Array }
  /** Constants whose shape is symbolic: one number, or a progression along one axis. */
  | { readonly kind: "uniform"; readonly value: number }
  | { readonly kind: "range"; readonly start: number; readonly step: number }
  | { readonly kind: "varying" };

export type MergedAttributes = Readonly<Record<string, unknown>>;

export interface Call {
  readonly op: string;
  readonly layer: string;
  readonly operands: readonly (Value | Size)[];
  readonly attributes: MergedAttributes;
  readonly outputs: readonly Value[];
  readonly elementwise: { readonly kernel: RowKernel; readonly scalars: readonly Size[] } | undefined;
}

/** One trace: its calls and values, and the ids of its results. */
export interface TraceToMerge {
  readonly calls: readonly TracedCall[];
  readonly values: readonly TracedValue[];
}

/** The values by id, and the calls that compute them. */
export interface MergedTrace {
  readonly calls: readonly Call[];
  readonly values: readonly Value[];
}

export function mergeTraces(traces: readonly TraceToMerge[], samples: Samples): MergedTrace {
  const [base, ...others] = traces;
  if (!base) return { calls: [], values: [] };
  for (const other of others) {
    const index = base.calls.findIndex(({ op }, position) => other.calls[position]?.op !== op);
    if (index >= 0 || other.calls.length !== base.calls.length || other.values.length !== base.values.length)
      throw differentWork(base.calls[Math.max(0, index)], other.calls[index]);
  }
  const merge = new Merger(samples);
  const values: Value[] = [];
  const calls: Call[] = [];
  const valueAt = (id: number): Value => {
    const known = values[id];
    if (known) return known;
    const found = traces.map((trace) => trace.values[id] as TracedValue);
    const [{ dtype, source } = found[0] as TracedValue] = found;
    if (source.kind === "call") throw differentWork(base.calls[source.call], undefined);
    const shape = merge.shape(found.map((value) => value.shape));
    const value: Value = { id, dtype, shape, source: mergeSource(found, shape, source.kind) };
    values[id] = value;
    return value;
  };
  for (const [index, traced] of base.calls.entries()) {
    const same = traces.map((trace) => trace.calls[index] as TracedCall);
    const outputs: Value[] = [];
    const call: Call = {
      ...{ op: traced.op, layer: traced.layer, outputs },
      operands: traced.operands.map((operand, position) => {
        const present = same.map(({ operands }) => operands[position]);
        if (typeof operand === "number") return merge.number(present.map(Number));
        const isSame = present.every((other) => typeof other === "object" && other.value === operand.value);
        if (!isSame) throw differentWork(traced, traced);
        return valueAt(operand.value);
      }),
      attributes: merge.structure(
        same.map(({ attributes }) => attributes),
        traced,
      ) as MergedAttributes,
      elementwise: traced.elementwise && {
        kernel: traced.elementwise.kernel,
        scalars: traced.elementwise.scalars.map((_, position) =>
          merge.number(same.map(({ elementwise }) => elementwise?.scalars[position] ?? Number.NaN)),
        ),
      },
    };
    for (const [output, id] of traced.outputs.entries()) {
      const found = traces.map((trace) => trace.values[id] as TracedValue);
      const shape = merge.shape(found.map((value) => value.shape));
      const [{ dtype } = found[0] as TracedValue] = found;
      const value: Value = { id, dtype, shape, source: { kind: "call", call, output } };
      outputs.push(value);
      values[id] = value;
    }
    calls.push(call);
  }
  for (const { id, source } of base.values) if (source.kind !== "call") valueAt(id);
  return { calls, values };
}

class Merger {
  readonly #samples: Samples;

  constructor(samples: Samples) {
    this.#samples = samples;
  }

  number(values: readonly number[]): Size {
    return fitSize(this.#samples, values);
  }

  shape(shapes: readonly (readonly number[])[]): readonly Size[] {
    const [first = []] = shapes;
    return first.map((_, axis) => this.number(shapes.map((shape) => shape[axis] ?? Number.NaN)));
  }

  /** Plain data whose numbers may differ. */
  structure(values: readonly unknown[], call: TracedCall): unknown {
    const [first] = values;
    if (typeof first === "number") return this.number(values.map(Number));
    if (Array.isArray(first)) {
      if (!values.every((value) => Array.isArray(value) && value.length === first.length))
        throw differentWork(call, call);
      return first.map((_, index) =>
        this.structure(
          values.map((value) => (value as readonly unknown[])[index]),
          call,
        ),
      );
    }
    if (typeof first === "object" && first !== null) {
      return Object.fromEntries(
        Object.keys(first).map((key) => [
          key,
          this.structure(
            values.map((value) => (value as Readonly<Record<string, unknown>>)[key]),
            call,
          ),
        ]),
      );
    }
    if (!values.every((value) => value === first)) throw differentWork(call, call);
    return first;
  }
}

function mergeSource(
  found: readonly TracedValue[],
  shape: readonly Size[],
  kind: Exclude<TracedValue["source"]["kind"], "call">,
): Source {
  const sources = found.map(({ source }) => source);
  const [first] = sources;
  if (kind === "input" && first?.kind === "input") return first;
  if (kind === "stored" && first?.kind === "stored") {
    const { array } = first;
    const isSame = sources.every(
      (source) =>
        source.kind === "stored" && source.array.storage?.span.address === array.storage?.span.address,
    );
    return isSame && shape.every((size) => typeof size === "number") ? first : { kind: "varying" };
  }
  const bytes = sources.map((source) => (source.kind === "constant" ? source.bytes : new Uint8Array(0)));
  const [base = new Uint8Array(0)] = bytes;
  if (bytes.every((other) => Buffer.compare(base, other) === 0)) return { kind: "constant", bytes: base };
  return progressionOf(found, bytes) ?? { kind: "varying" };
}

/** One number or one progression that gives the elements in all traces. */
function progressionOf(found: readonly TracedValue[], bytes: readonly Uint8Array[]): Source | undefined {
  const [{ dtype, shape } = { dtype: "f32" as const, shape: [] }] = found;
  const lists = bytes.map((some) => numbersOf(dtype, some));
  const longest = lists.reduce((a, b) => (b.length > a.length ? b : a), []);
  const [start = 0, second = start] = longest;
  const isUniform = lists.every((list) => list.every((value) => Object.is(value, start)));
  if (isUniform) return { kind: "uniform", value: start };
  const step = second - start;
  const isRange = lists.every((list) => list.every((value, index) => value === start + step * index));
  return isRange && shape.length === 1 ? { kind: "range", start, step } : undefined;
}

export function numbersOf(dtype: Dtype, bytes: Uint8Array): readonly number[] {
  const copy = bytes.slice();
  if (dtype === "bf16" || dtype === "f16") {
    const halves = new Uint16Array(copy.buffer, 0, copy.byteLength / 2);
    return Array.from(dtype === "bf16" ? widenBf16(halves) : widenF16(halves));
  }
  return Array.from(viewElements(dtype, copy) as ElementArray<"f32">, Number);
}

function differentWork(call: TracedCall | undefined, other: TracedCall | undefined): HoldfastError {
  const where = call?.layer ? ` in ${call.layer}` : "";
  return new HoldfastError(
    "UNSUPPORTED",
    `This model can't be exported to ONNX with these dynamic axes: its ops depend on their sizes (${call?.op ?? "an op"}${where}` +
      `${other && other.op !== call?.op ? `, or ${other.op}` : ""}). Make fewer axes dynamic with the option dynamicAxes, or pass {} for fixed shapes.`,
    { numbers: { op: call?.op ?? "", layer: call?.layer ?? "" } },
  );
}
