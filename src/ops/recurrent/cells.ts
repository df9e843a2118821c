/**
 * The elementwise part of a step of each recurrent cell, forward and backward, as one row kernel over [batch, hidden]. Names of planes:
 * `gates` come from the input projection and `hidden` from the GEMM of the previous state, one plane for each gate in PyTorch's order.
 */

import { type Compute, type Dtype, dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";

/** PyTorch's cells; `tanh` and `relu` are those of `RNN`. */
export type Cell = "lstm" | "gru" | "tanh" | "relu";

interface CellShape {
  /** The gates of the input projection and of the weight of the previous state. */
  readonly gates: number;
  /** The planes that backward reads, besides the states. */
  readonly saved: number;
  /** True if the cell has a second state, which its output does not show. */
  readonly hasCell: boolean;
  /** True if the previous state reaches the next one past the weight, so that its gradient does as well. */
  readonly carries: boolean;
}

export const cellShapes: Readonly<Record<Cell, CellShape>> = {
  lstm: { gates: 4, saved: 4, hasCell: true, carries: false },
  gru: { gates: 3, saved: 4, hasCell: false, carries: true },
  tanh: { gates: 1, saved: 0, hasCell: false, carries: false },
  relu: { gates: 1, saved: 0, hasCell: false, carries: false },
};

/** The inputs or the outputs of a kernel, by name and in order: planes of [batch, hidden]. */
export interface Planes {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

export interface CellKernel extends Planes {
  readonly kernel: RowKernel;
}

/** A value for each output, in the order in which they are stored: a later one must not read an earlier one's memory. */
type Values = Readonly<Record<string, Expression>>;
type Read = (name: string) => Expression;

const numbered = (name: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${name}${index}`);

const square = (x: Expression): Expression => term.mul(x, x);
const sigmoidSlope = (y: Expression): Expression => term.mul(y, term.sub(1, y));
const tanhSlope = (y: Expression): Expression => term.sub(1, square(y));

/** `gate(i)`: the sum of the two projections of gate i. */
function forwardValues(cell: Cell, read: Read): Values {
  const gate = (index: number): Expression => term.add(read(`gates${index}`), read(`hidden${index}`));
  switch (cell) {
    case "lstm": {
      const [i, f, o] = [0, 1, 3].map((index) => term.sigmoid(gate(index))) as [
        Expression,
        Expression,
        Expression,
      ];
      const g = term.tanh(gate(2));
      const next = term.add(term.mul(f, read("cell")), term.mul(i, g));
      return {
        ...{ saved0: i, saved1: f, saved2: g, saved3: o },
        ...{ nextState: term.mul(o, term.tanh(next)), nextCell: next },
      };
    }
    case "gru": {
      const [r, z] = [term.sigmoid(gate(0)), term.sigmoid(gate(1))];
      const n = term.tanh(term.add(read("gates2"), term.mul(r, read("hidden2"))));
      const next = term.add(term.mul(term.sub(1, z), n), term.mul(z, read("state")));
      return { saved0: r, saved1: z, saved2: n, saved3: read("hidden2"), nextState: next };
    }
    case "tanh":
      return { nextState: term.tanh(gate(0)) };
    case "relu":
      return { nextState: maxZero(gate(0)) };
  }
}

/** The larger of x and 0; NaN stays NaN. */
function maxZero(x: Expression): Expression {
  return term.select(term.le(x, 0), 0, x);
}

/**
 * From the gradient of the next state: those of the gates, of the previous cell, and what reaches the previous state past the weight. A GRU's
 * gradients of the two projections differ in the last gate.
 */
function backwardValues(cell: Cell, read: Read, upstream: Expression): Values {
  switch (cell) {
    case "lstm": {
      const [i, f, g, o] = [0, 1, 2, 3].map((index) => read(`saved${index}`)) as [
        Expression,
        Expression,
        Expression,
        Expression,
      ];
      const squashed = term.tanh(read("nextCell"));
      const ofCell = term.add(read("cellGradient"), term.mul(term.mul(upstream, o), tanhSlope(squashed)));
      return {
        gates0: term.mul(term.mul(ofCell, g), sigmoidSlope(i)),
        gates1: term.mul(term.mul(ofCell, read("cell")), sigmoidSlope(f)),
        gates2: term.mul(term.mul(ofCell, i), tanhSlope(g)),
        gates3: term.mul(term.mul(upstream, squashed), sigmoidSlope(o)),
        cellGradient: term.mul(ofCell, f),
      };
    }
    case "gru": {
      const [r, z, n, hidden] = [0, 1, 2, 3].map((index) => read(`saved${index}`)) as [
        Expression,
        Expression,
        Expression,
        Expression,
      ];
      const ofCandidate = term.mul(term.mul(upstream, term.sub(1, z)), tanhSlope(n));
      const reset = term.mul(term.mul(ofCandidate, hidden), sigmoidSlope(r));
      const update = term.mul(term.mul(upstream, term.sub(read("state"), n)), sigmoidSlope(z));
      return {
        ...{ gates0: reset, gates1: update, gates2: ofCandidate },
        ...{ hidden0: reset, hidden1: update, hidden2: term.mul(ofCandidate, r) },
        carry: term.mul(upstream, z),
      };
    }
    case "tanh":
      return { gates0: term.mul(upstream, tanhSlope(read("nextState"))) };
    case "relu":
      return { gates0: term.select(term.gt(read("nextState"), 0), upstream, 0) };
  }
}

const kernels = new Map<string, CellKernel>();

function cached(key: string, make: () => CellKernel): CellKernel {
  const existing = kernels.get(key);
  if (existing) return existing;
  const kernel = make();
  kernels.set(key, kernel);
  return kernel;
}

export interface CellKernelOptions {
  readonly cell: Cell;
  readonly dtype: Dtype;
  readonly isMasked: boolean;
  /** The dtype to which the next GEMM rounds its operand: the kernel stores the operand in it as well, as `rounded`. */
  readonly rounded?: Dtype | undefined;
}

/** The kernel of a step. With a mask, rows where it is false keep their states. */
export function forwardKernel(options: CellKernelOptions): CellKernel {
  const { cell, isMasked, rounded } = options;
  return cached(`forward ${keyOf(options)}`, () => {
    const { gates, hasCell } = cellShapes[cell];
    const readsState = cell === "gru" || isMasked;
    const inputs = [
      ...[...numbered("gates", gates), ...numbered("hidden", gates)],
      ...(readsState ? ["state"] : []),
      ...[...(hasCell ? ["cell"] : []), ...(isMasked ? ["mask"] : [])],
    ];
    return makeKernel(`${cell} cell`, options, inputs, (read) => {
      const values = forwardValues(cell, read);
      const kept = isMasked ? { nextState: "state", nextCell: "cell" } : {};
      const masked = Object.entries(kept).flatMap(([name, old]) => {
        const value = values[name];
        return value ? [[name, term.select(read("mask"), value, read(old))] as const] : [];
      });
      const { nextState, ...others } = { ...values, ...Object.fromEntries(masked) };
      if (!nextState) return others;
      return { ...others, nextState, ...(rounded && { rounded: nextState }) };
    });
  });
}

/** The kernel of a step's gradient. With a mask, rows where it is false pass the gradients of their states on. */
export function backwardKernel(options: CellKernelOptions): CellKernel {
  const { cell, isMasked, rounded } = options;
  return cached(`backward ${keyOf(options)}`, () => {
    const { gates, saved, hasCell, carries } = cellShapes[cell];
    const inputs = [
      ...["upstream", "recurrent"],
      ...(carries || isMasked ? ["carry"] : []),
      ...numbered("saved", saved),
      ...(hasCell ? ["nextCell", "cell", "cellGradient"] : cell === "gru" ? ["state"] : ["nextState"]),
      ...(isMasked ? ["mask"] : []),
    ];
    return makeKernel(`${cell} cell gradient`, options, inputs, (read) => {
      const sum = term.add(read("upstream"), read("recurrent"));
      const upstream = inputs.includes("carry") ? term.add(sum, read("carry")) : sum;
      const zero = term.constant(0, upstream.type);
      const values = { ...(isMasked && { carry: zero }), ...backwardValues(cell, read, upstream) };
      const kept: Values = { carry: upstream, ...(hasCell && { cellGradient: read("cellGradient") }) };
      const masked = Object.entries(values).map(
        ([name, value]) =>
          [name, isMasked ? term.select(read("mask"), value, kept[name] ?? zero) : value] as const,
      );
      // Last, because the other values read what these overwrite.
      const { carry, cellGradient, ...others }: Values = Object.fromEntries(masked);
      const operand = cell === "gru" ? "hidden" : "gates";
      const copies = numbered("rounded", rounded ? gates : 0).flatMap((name, index) => {
        const value = others[`${operand}${index}`];
        return value ? [[name, value] as const] : [];
      });
      return {
        ...{ ...others, ...Object.fromEntries(copies) },
        ...{ ...(cellGradient && { cellGradient }), ...(carry && { carry }) },
      };
    });
  });
}

/** Planes that are kept in the compute dtype: sums over many steps. */
const wide: ReadonlySet<string> = new Set(["cell", "nextCell", "cellGradient", "carry"]);

function keyOf({ cell, dtype, isMasked, rounded }: CellKernelOptions): string {
  return `${cell} ${dtype} ${isMasked} ${rounded}`;
}

function makeKernel(
  name: string,
  { dtype, rounded = dtype }: CellKernelOptions,
  inputs: readonly string[],
  valuesOf: (read: Read) => Values,
): CellKernel {
  const { compute } = dtypes[dtype];
  const dtypeOf = (plane: string): Dtype => {
    if (plane === "mask") return "bool";
    if (plane.startsWith("rounded")) return rounded;
    return wide.has(plane) ? compute : dtype;
  };
  const read: Read = (plane) => {
    const type: Compute = plane === "mask" ? "i32" : compute;
    return term.load(inputs.indexOf(plane), type);
  };
  const values = valuesOf(read);
  const outputs = Object.keys(values);
  return {
    inputs,
    outputs,
    kernel: {
      name,
      inputs: inputs.map(dtypeOf),
      outputs: outputs.map((plane) => ({ dtype: dtypeOf(plane), per: "element" as const })),
      scalars: [],
      stages: outputs.flatMap((plane, output) => {
        const value = values[plane];
        return value ? [{ kind: "store" as const, output, value }] : [];
      }),
    },
  };
}
