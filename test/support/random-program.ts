/**
 * Random programs of row calls over a few buffers: elementwise values, reductions of rows, values of rows,
 * broadcasts, permuted views, in-place calls, copies and fills. Numbers stay small, so that there is no NaN,
 * whose bits are unspecified.
 */

import fc from "fast-check";
import type { Buffer, BufferSlice, Call, RowCall } from "../../src/compile/program/program.js";
import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  iterateRows,
  narrowToBf16,
  narrowToF16,
  narrowToFloat8,
  type RowKernel,
  type Stage,
  term,
} from "../../src/ir/index.js";

/** The axes of a buffer's elements. */
export type Axes = "abd" | "ab" | "a" | "bd" | "d" | "";

export interface RandomBuffer {
  readonly axes: Axes;
  readonly dtype: Dtype;
  readonly stays: "step" | "kept" | "persistent";
}

export interface RandomCall {
  readonly kind: "elements" | "row" | "place" | "indexed" | "copy" | "fill";
  /** Numbers that select all other properties of the call. */
  readonly picks: readonly number[];
}

export interface RandomProgram {
  readonly sizes: { readonly a: number; readonly b: number; readonly d: number };
  readonly buffers: readonly RandomBuffer[];
  readonly calls: readonly RandomCall[];
}

const size = fc.constantFrom(1, 2, 3, 4, 5, 8);
const picks = fc.array(fc.nat(47), { minLength: 12, maxLength: 12 });
const often = (kind: RandomCall["kind"], weight: number) => ({ arbitrary: fc.constant(kind), weight });

export const randomPrograms: fc.Arbitrary<RandomProgram> = fc.record({
  sizes: fc.record({ a: size, b: size, d: fc.constantFrom(1, 2, 4, 5, 8, 13) }),
  buffers: fc.array(
    fc.record({
      axes: fc.constantFrom<Axes>("abd", "abd", "abd", "ab", "ab", "a", "bd", "d", ""),
      dtype: fc.constantFrom<Dtype>("f32", "f32", "f32", "f32", "bf16", "f16", "i32", "bool", "u8", "f64"),
      stays: fc.constantFrom<RandomBuffer["stays"]>("step", "step", "step", "kept", "persistent"),
    }),
    { minLength: 3, maxLength: 9 },
  ),
  calls: fc.array(
    fc.record({
      kind: fc.oneof(
        often("elements", 10),
        often("row", 5),
        often("place", 1),
        often("indexed", 1),
        often("copy", 1),
        often("fill", 1),
      ),
      picks,
    }),
    { minLength: 2, maxLength: 9 },
  ),
});

type Axis = "a" | "b" | "d";
type Sizes = RandomProgram["sizes"];

const countOf = (axes: string, sizes: Sizes): number =>
  [...axes].reduce((count, axis) => count * sizes[axis as Axis], 1);

/** At least two elements, so that an index has a choice. */
export function bytesOf({ axes, dtype }: RandomBuffer, sizes: Sizes): number {
  return Math.max(2, countOf(axes, sizes)) * dtypes[dtype].bytes;
}

/** Small numbers of every dtype, as bytes. */
export function valuesOf(buffer: RandomBuffer, sizes: Sizes, seed: number): Uint8Array {
  const { dtype } = buffer;
  const count = bytesOf(buffer, sizes) / dtypes[dtype].bytes;
  // No multiples of a power of two: the order of summation shows.
  const floats = Array.from(
    { length: count },
    (_, index) => (((index + 1) * (seed * 7 + 13)) % 31) / 7.3 - 2,
  );
  const whole = (value: number): number => Math.abs(Math.trunc(value * 3));
  const array = {
    f32: () => Float32Array.from(floats),
    f64: () => Float64Array.from(floats),
    bf16: () => narrowToBf16(Float32Array.from(floats)),
    f16: () => narrowToF16(Float32Array.from(floats)),
    i64: () => BigInt64Array.from(floats, (value) => BigInt(whole(value))),
    i32: () => Int32Array.from(floats, whole),
    i8: () => Int8Array.from(floats, whole),
    u8: () => Uint8Array.from(floats, whole),
    f8e4m3: () => narrowToFloat8("f8e4m3", Float32Array.from(floats)),
    f8e5m2: () => narrowToFloat8("f8e5m2", Float32Array.from(floats)),
    bool: () => Uint8Array.from(floats, (value) => Number(value > 0)),
  }[dtype]();
  return new Uint8Array(array.buffer);
}

/** The order of a layout's axes in memory. */
const ordersOf: Readonly<Record<Axes, readonly string[]>> = {
  abd: ["abd", "abd", "abd", "bad", "adb"],
  ab: ["ab", "ab", "ba"],
  bd: ["bd", "bd", "db"],
  a: ["a"],
  d: ["d"],
  "": [""],
};

function stridesOf(order: string, shape: string, sizes: Sizes): number[] {
  return [...shape].map((axis) => {
    const at = order.indexOf(axis);
    return at < 0 ? 0 : countOf(order.slice(at + 1), sizes);
  });
}

interface Operand {
  readonly buffer: Buffer;
  readonly spec: RandomBuffer;
  readonly order: string;
}

const kernels = new Map<string, RowKernel>();

/** Kernels of the same key are the same object, as those of ops are. */
function kernelFor(key: string, make: () => Omit<RowKernel, "name">): RowKernel {
  const kernel = kernels.get(key) ?? { name: key.split(" ")[0]!, ...make() };
  kernels.set(key, kernel);
  return kernel;
}

const tame = (value: Expression): Expression => term.max(term.min(value, 8), -8);

const binaries: readonly ((a: Expression, b: Expression) => Expression)[] = [
  term.add,
  (a, b) => term.sub(term.mul(a, 0.5), b),
  (a, b) => term.mul(term.max(a, b), 0.75),
  (a, b) => term.add(term.tanh(a), b),
  (a, b) => term.add(term.exp(term.neg(term.abs(a))), b),
  (a, b) => term.select(term.gt(a, b), a, term.mul(b, 0.25)),
  (a) => term.neg(a),
  (a, b) => term.add(term.sqrt(term.abs(a)), b),
  (a) => a,
];

/** A value of all operands, in f32. */
function mixOf(loads: readonly Expression[], which: number): Expression {
  const binary = binaries[which % binaries.length]!;
  const [first, ...rest] = loads;
  return tame(
    rest.reduce((value, load) => binary(value, load), rest.length > 0 ? first! : binary(first!, first!)),
  );
}

const loadAs = (dtype: Dtype, input: number): Expression =>
  term.convert(term.load(input, dtypes[dtype].compute), "f32");

function storable(value: Expression, dtype: Dtype): Expression {
  if (dtype === "bool") return term.gt(value, 0.5);
  return term.convert(value, dtypes[dtype].compute as Compute);
}

/** The calls over these buffers; random calls that fit no buffers are omitted. */
export function callsOf({ sizes, buffers: specs, calls }: RandomProgram, buffers: readonly Buffer[]): Call[] {
  const all = specs.map((spec, index) => ({ spec, buffer: buffers[index]! }));
  const withAxes = (...axesList: readonly Axes[]) => all.filter(({ spec }) => axesList.includes(spec.axes));
  const wholeOf = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

  /** A buffer in one of its orders; if the same call also stores to it, in that order. */
  const operandOf = (
    from: readonly { spec: RandomBuffer; buffer: Buffer }[],
    pick: number,
    stored: readonly Operand[] = [],
  ): Operand | undefined => {
    const candidate = from[pick % Math.max(1, from.length)];
    if (!candidate) return undefined;
    const orders = ordersOf[candidate.spec.axes];
    const order = orders[(pick >> 2) % orders.length]!;
    return stored.find(({ buffer }) => buffer === candidate.buffer) ?? { ...candidate, order };
  };

  const rowCall = (
    kernel: RowKernel,
    shape: string,
    operands: readonly Operand[],
    reduced: number,
    scalars: readonly number[] = [],
  ): RowCall => {
    const extents = [...shape].map((axis) => sizes[axis as Axis]);
    const strides = operands.map(({ order }) => stridesOf(order, shape, sizes));
    const iteration =
      reduced > 0 ? iterateRows(extents, strides, reduced) : iterateElements(extents, strides);
    return {
      kind: "row",
      kernel,
      iteration,
      operands: operands.map(({ buffer }) => wholeOf(buffer)),
      scalars,
    };
  };

  const works = calls.map(({ kind, picks }): RowCall | Call["work"] | undefined => {
    const [p0, p1, p2, p3, p4, p5, p6] = picks as [number, number, number, number, number, number, number];
    if (kind === "fill") {
      const target = all[p0 % all.length]!;
      return { kind: "fill", target: wholeOf(target.buffer), byte: p1 % 2 };
    }
    if (kind === "copy") {
      const source = all[p0 % all.length]!;
      const targets = all.filter(
        ({ buffer, spec }) =>
          buffer !== source.buffer &&
          spec.dtype === source.spec.dtype &&
          buffer.bytes === source.buffer.bytes,
      );
      const target = targets[p1 % Math.max(1, targets.length)];
      return target && { kind: "copy", target: wholeOf(target.buffer), source: wholeOf(source.buffer) };
    }
    const ofRows = kind === "elements" && p5 % 4 === 0;
    const shape: Axes = ofRows ? "ab" : "abd";
    const output = operandOf(withAxes(shape), p0);
    if (!output) return undefined;
    const dtypesOf = (operands: readonly Operand[]): Dtype[] => operands.map(({ spec }) => spec.dtype);
    const fitting = ofRows ? withAxes("ab", "a", "") : all;
    const isDisjoint = (operand: Operand | undefined): operand is Operand =>
      operand !== undefined && operand.buffer !== output.buffer;

    if (kind === "indexed") {
      const source = operandOf(
        all.filter(({ buffer }) => buffer !== output.buffer),
        p1,
      );
      const index = operandOf(
        all.filter(({ spec }) => spec.dtype === "i32"),
        p2,
        [output],
      );
      if (!source || !index) return undefined;
      const operands = [{ ...source, order: "" }, index, output];
      const [from = "f32", , to = "f32"] = dtypesOf(operands);
      const kernel = kernelFor(`indexed ${dtypesOf(operands)}`, () => ({
        inputs: [from, "i32"],
        outputs: [{ dtype: to, per: "element" }],
        scalars: [],
        stages: [
          {
            kind: "store",
            output: 0,
            value: storable(
              tame(term.convert(term.load(0, dtypes[from].compute, term.and(term.load(1, "i32"), 1)), "f32")),
              to,
            ),
          },
        ],
      }));
      return rowCall(kernel, shape, operands, 0);
    }

    const count = 1 + (p4 % 3);
    const second =
      p6 % 5 === 0
        ? operandOf(
            withAxes(shape).filter(({ buffer }) => buffer !== output.buffer),
            p6,
          )
        : undefined;
    const outputs = [output, ...(second ? [second] : [])];
    const inputs = [p1, p2, p3].slice(0, count).map((pick) => operandOf(fitting, pick, outputs)!);
    const ofInputs = dtypesOf(inputs);
    const loads = ofInputs.map(loadAs);

    if (kind === "elements" || kind === "place") {
      const ofOutputs = dtypesOf(outputs);
      const key = `${kind} ${ofInputs} ${ofOutputs} ${p5 % binaries.length}`;
      const kernel = kernelFor(key, () => ({
        inputs: ofInputs,
        outputs: ofOutputs.map((dtype) => ({ dtype, per: "element" })),
        scalars: ["f32"],
        stages: ofOutputs.map((dtype, index): Stage => {
          const position = term.convert(index === 0 ? term.position : term.row, "f32");
          const value = mixOf([...loads, kind === "place" ? position : term.scalar(0, "f32")], p5 + index);
          return { kind: "store", output: index, value: storable(value, dtype) };
        }),
      }));
      return rowCall(kernel, shape, [...inputs, ...outputs], kind === "place" ? 1 : 0, [p3 / 16]);
    }

    // Rows of the last axis: a sum, the difference from it, and the sum itself.
    const rowValue = operandOf(
      withAxes("ab").filter(({ buffer }) => !inputs.some((input) => input.buffer === buffer)),
      p6,
    );
    const element = p5 % 3 === 0 ? undefined : output;
    const stored = [
      ...(element ? [element] : []),
      ...(rowValue && isDisjoint(rowValue) && p5 % 2 === 0 ? [rowValue] : []),
    ];
    if (stored.length === 0) return undefined;
    const reduceOp = (["add", "max", "add", "min"] as const)[p4 % 4]!;
    const key = `rows ${ofInputs} ${dtypesOf(stored)} ${!!element} ${reduceOp} ${p3 % (2 * binaries.length)}`;
    const kernel = kernelFor(key, () => {
      const reduced = tame(term.reduced(0, "f32"));
      // Sometimes with the row's first element in it.
      const first = p3 % 2 === 0 ? term.constant(0.5, "f32") : mixOf(loads, p3);
      const rowValueOf = (reduced: Expression): Expression => tame(term.mul(reduced, first));
      return {
        inputs: ofInputs,
        outputs: stored.map(({ spec }) => ({
          dtype: spec.dtype,
          per: spec.axes === "ab" ? "row" : "element",
        })),
        scalars: [],
        stages: [
          { kind: "reduce", op: reduceOp, value: mixOf(loads, p3) },
          ...stored.map(
            ({ spec }, index): Stage => ({
              kind: "store",
              output: index,
              value: storable(
                spec.axes === "ab" ? rowValueOf(reduced) : tame(term.sub(mixOf(loads, p3 + 1), reduced)),
                spec.dtype,
              ),
            }),
          ),
        ],
      };
    });
    return rowCall(kernel, shape, [...inputs, ...stored], 1);
  });
  return works.flatMap((work, index) => (work ? [{ op: `${calls[index]!.kind} ${index}`, work }] : []));
}
